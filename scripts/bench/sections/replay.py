"""Every table anew from the archive, against the backfill that filled them."""

import measure
from measure import median
from results import Row
from service import Side


def measure_replay(setting, table):
    with setting.service(setting.rows, setting.days()) as service:
        for warehouse in ("duckdb", "parquet"):
            side = Side(setting.program, setting.folder / "replay", service, [], (warehouse,))
            costs = measure.alternate(setting.rounds, {"backfill": side.first_load, "replay": lambda: after_load(side)})
            load, replay = median(costs["backfill"]), median(costs["replay"])
            table.add(Row(f"replay {warehouse}", f"replay, times as fast as the backfill, {warehouse}", "≥ 1.5", load / replay, 1.5, False,
                          f"{replay:.2f} s ({measure.spread(costs['replay'])})", f"backfill {load:.2f} s"))


def after_load(side):
    if not (side.folder / "archive").exists():
        side.first_load()
    return side.run("replay", "--json")
