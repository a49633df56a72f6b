"""Backfills of rough data against those of smooth data, in turns. A byte of JSON is the measure: rough records are longer."""

import dataclasses

import measure
from measure import median
from results import Row
from service import FLAGS, Side, report_of


def measure_rough(setting, table):
    def service(data):
        return dataclasses.replace(setting, data=data).service(setting.rows, setting.days())

    with service("smooth") as smooth, service("rough") as rough:
        for label, flags in (("flags off", []), ("all flags", FLAGS)):
            for warehouse, name in (("duckdb", "DuckDB"), ("parquet", "Parquet")):
                sides = {
                    data: Side(setting.program, setting.folder / f"{data}-{warehouse}", asked, flags, (warehouse,)).first_load
                    for data, asked in (("smooth", smooth), ("rough", rough))
                }
                costs = measure.alternate(setting.rounds, sides)
                add(table, f"{label} rough {warehouse}", f"backfill into {name}, rough data against smooth, a byte of JSON, {label}", costs)


def add(table, key, work, costs):
    told = {data: report_of(each[-1]) for data, each in costs.items()}
    bytes_read = {data: report["requests"]["bytes"] for data, report in told.items()}
    wall, peak = ({data: median(each, field) for data, each in costs.items()} for field in ("wall_secs", "peak_rss_bytes"))
    per_byte = {data: wall[data] / bytes_read[data] for data in wall}

    def said(data):
        rows = told[data]["streams"]["responses"]["rows_read"]
        return (f"{data} {wall[data]:.2f} s ({measure.spread(costs[data])}), {median(costs[data], 'cpu_secs'):.2f} s of processors, "
                f"{rows:,} records of {bytes_read[data] / rows:.0f} bytes")

    table.add(Row(key, work, "≤ 1.15", per_byte["rough"] / per_byte["smooth"], 1.15, True, said("rough"), said("smooth")))
    table.add(Row(f"{key} memory", work.replace("a byte of JSON", "peak memory"), "≤ 1.1", peak["rough"] / peak["smooth"], 1.1, True,
                  f"rough {peak['rough'] / 2**20:.0f} MiB", f"smooth {peak['smooth'] / 2**20:.0f} MiB"))
