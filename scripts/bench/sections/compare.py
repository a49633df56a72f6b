"""The same work by a tool that people use for it: dlt, installed from its registry into a folder that is kept."""

import json
import os
import pathlib
import shutil

import environments
import measure
from measure import median
from results import Row
from service import FLAGS, Side

PULL = pathlib.Path(__file__).parent.parent / "compare" / "dlt_pull.py"
PACKAGES = ["dlt[duckdb,parquet]==1.31.0", "duckdb==1.5.6", "pyarrow==26.0.1", "orjson==3.13.0", "requests"]


def measure_others(setting, table):
    python = environments.installed("dlt", PACKAGES)
    with setting.service(setting.rows, setting.days()) as service:
        for name, flags in (("flags off", []), ("all flags", FLAGS)):
            costs = measure.alternate(setting.rounds, sides_of(setting, service, python, flags))
            for destination in ("duckdb", "parquet"):
                ours = median(costs[f"studysync {destination}"])
                for way, times in (("append", 5), ("merge", 15)):
                    key = f"dlt {way} {destination}"
                    if key in costs:
                        other = median(costs[key])
                        table.add(Row(f"{key} {name}", f"backfill into {destination}, {name}, times as fast as dlt {way}", f"≥ {times}", other / ours, times, False,
                                      f"{ours:.2f} s ({measure.spread(costs[f'studysync {destination}'])})", f"dlt 1.31 {other:.1f} s ({measure.spread(costs[key])})"))


def sides_of(setting, service, python, flags):
    reach = [service.address, str(service.from_ms), str(service.to_ms)]

    def dlt(way, destination):
        def run():
            folder = setting.folder / "dlt"
            shutil.rmtree(folder, ignore_errors=True)
            os.sync()
            cost = measure.run([python, PULL, way, destination, *reach, folder, *flags])
            told = json.loads(cost.stdout.strip().splitlines()[-1])
            cost.wall_secs = told["secs"]
            setting.require_same_rows(loads[destination], "dlt", told["rows"])
            return cost
        return run

    def ours(destination):
        def run():
            loads[destination] = Side(setting.program, setting.folder / destination, service, flags, (destination,)).first_load()
            return loads[destination]
        return run

    loads = {}
    # Runs once before the rounds, because every second round begins with dlt, whose rows are
    # compared with ours.
    for destination in ("duckdb", "parquet"):
        ours(destination)()
    return {
        "studysync duckdb": ours("duckdb"),
        "dlt append duckdb": dlt("append", "duckdb"),
        "studysync parquet": ours("parquet"),
        "dlt append parquet": dlt("append", "parquet"),
        "dlt merge duckdb": dlt("merge", "duckdb"),
    }
