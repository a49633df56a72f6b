"""Commands that do next to nothing, against the start of DuckDB."""

import pathlib
import sys

import measure
from measure import median
from results import Row
from service import Service, Side, report_of

ROUNDS_MIN = 11
GOAL_MS = 50


def measure_starts(setting, table):
    with Service(setting.program, setting.rows, setting.days()) as service:
        side = Side(setting.program, setting.folder / "small", service)
        side.first_load()
        side.run("sync", "--json")
        shell = pathlib.Path(sys.executable).with_name("duckdb")
        sides = {
            "duckdb": lambda: measure.run([shell, "-c", "SELECT 1"]),
            "duckdb file": lambda: measure.run([shell, "-readonly", str(side.folder / "warehouse.duckdb"), "-c", "SELECT 1"]),
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
