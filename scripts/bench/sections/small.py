"""Commands that do next to nothing, against the start of DuckDB."""

import pathlib
import sys

import floors
import measure
from measure import median
from results import Row
from service import DAY_MS, NOW_MS, Side, report_of

ROUNDS_MIN = 11
GOAL_MS = 50
# An idle `sync` scans the last days, up to the end of settled answers.
LOOKBACK_MS = 3 * DAY_MS
SETTLE_MS = 10 * 60 * 1000


def measure_starts(setting, table):
    with setting.service(setting.rows, setting.days()) as service:
        side = Side(setting.program, setting.folder / "small", service)
        side.first_load()
        side.run("sync", "--json")
        shell = pathlib.Path(sys.executable).with_name("duckdb")
        file, pages = side.folder / "warehouse.duckdb", setting.folder / "small-pages"
        floors.download(service.address, NOW_MS - LOOKBACK_MS, NOW_MS - SETTLE_MS, pages, [])
        sides = {
            "duckdb": lambda: measure.run([shell, "-c", "SELECT 1"]),
            "duckdb file": lambda: measure.run([shell, "-readonly", file, "-c", "SELECT 1"]),
            "duckdb compares": lambda: measure.run([shell, "-readonly", file, "-c", changed_among(pages)]),
            "help": lambda: side.run("--help"),
            "status": lambda: side.run("status"),
            "plan": lambda: side.run("plan", "--from", str(service.from_ms)),
            "sync": lambda: side.run("sync", "--json"),
        }
        costs = measure.alternate(max(setting.rounds, ROUNDS_MIN), sides)
    start = median(costs["duckdb"])
    for cost in costs["sync"]:
        cost.wall_secs -= report_of(cost)["time_ms"]["network"] / 1000
    for name, work in (("help", "`--help`"), ("status", "`status`"), ("plan", "`plan`"), ("sync", "idle `sync` beyond its requests")):
        wall = median(costs[name])
        table.add(Row(f"start {name}", f"{work}, in starts of DuckDB", "≤ 2", wall / start, 2.0, True, f"{wall * 1000:.0f} ms ({measure.spread(costs[name])} s)",
                      f"`duckdb -c 'SELECT 1'` {start * 1000:.0f} ms, with the file open {median(costs['duckdb file']) * 1000:.0f} ms"))
        table.add(Row(f"start {name} ms", f"{work}, ms", f"≤ {GOAL_MS}", wall * 1000, GOAL_MS, True, f"{wall * 1000:.0f} ms", ""))
    compares = median(costs["duckdb compares"])
    table.add(Row("start floor", "floor: DuckDB reads the pages of an idle `sync` from files and joins them to the file's rows, nothing else to do, in starts of DuckDB", "",
                  compares / start, None, True, f"{compares * 1000:.0f} ms ({measure.spread(costs['duckdb compares'])} s)", f"`duckdb -c 'SELECT 1'` {start * 1000:.0f} ms"))


def changed_among(pages):
    """The answers on these pages that the warehouse has otherwise, or not at all: what an idle `sync` has to tell, by two of their columns."""
    return (f"SELECT count(*) FROM ({floors.typed_read(pages)}) page ANTI JOIN responses held ON held.response_group_uid = page.responseGroupUid "
            "AND held.question_id = page.questionId AND held.updated_at IS NOT DISTINCT FROM page.updatedAt")
