"""Forgetting one person, against writing the warehouse file anew once."""

import measure
from measure import median
from results import Row
from sections import floor as floors
from service import Side, days_of

# The limit of "close to one rewrite": a rewrite, a search of every file, and some slack.
CLOSE = 1.5


def measure_erase(setting, table):
    import duckdb
    rows = setting.big_rows or setting.rows
    with setting.service(rows, days_of(rows)) as service:
        for name, archive in (("without an archive", False), ("with the archive of all pages", True)):
            side = Side(setting.program, setting.folder / "erase", service, archive=archive)
            side.first_load()
            file = side.folder / "warehouse.duckdb"
            with duckdb.connect(str(file), read_only=True) as connection:
                people = connection.execute("SELECT DISTINCT external_user_id FROM responses WHERE regexp_matches(external_user_id, '[a-z].*[0-9]') ORDER BY 1 LIMIT ?",
                                            [setting.rounds]).fetchall()

            def erase(people=iter(people)):
                return side.run("erase", "--user-id", next(people)[0], "--yes", "--json")

            def rewrite():
                return floors.run("rewrite", file, side.folder / "anew.duckdb", setting.threads)

            costs = measure.alternate(len(people), {"erase": erase, "rewrite": rewrite})
            ours, floor = median(costs["erase"]), median(costs["rewrite"])
            limit = None if archive else CLOSE
            table.add(Row(f"erase {name}", f"`erase` of one person among {rows:,}, DuckDB, {name}", "" if archive else f"≤ {CLOSE}", ours / floor, limit, True,
                          f"{ours:.2f} s ({measure.spread(costs['erase'])})", f"`COPY FROM DATABASE` of the file {floor:.2f} s"))
