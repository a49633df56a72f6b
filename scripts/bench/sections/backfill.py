"""First loads of smooth and of rough data in one sitting, against DuckDB reading finished files and a plain script."""

import contextlib
import dataclasses
import json
import os
import shutil

import measure
from measure import median
from results import DATA, Row
from service import FLAGS, Side, days_of, report_of

from . import floor as floors

MIB = 2**20
PAGE_ROWS = 1000
# The limit of the process's peak memory, by the flags that it requests.
PEAK_MIB = {"flags off": 512, "all flags": 768}
WAREHOUSES = {
    "duckdb": ("DuckDB", "read_json", "typed `read_json` of saved pages"),
    "parquet": ("Parquet", "read_json_parquet", "the same and `COPY`"),
}


def without_flags(setting, table):
    measure_backfill(setting, table, "flags off", [])


def with_all_flags(setting, table):
    measure_backfill(setting, table, "all flags", FLAGS)


def measure_backfill(setting, table, label, flags):
    settings = {data: dataclasses.replace(setting, data=data, folder=setting.folder / data) for data in DATA}
    with contextlib.ExitStack() as open_until_measured:
        sides = {}
        for data, of in settings.items():
            of.folder.mkdir(exist_ok=True)
            service = open_until_measured.enter_context(of.service(of.rows, of.days()))
            sides |= {(data, name): side for name, side in sides_of(of, service, flags).items()}
        for data in DATA:
            sides.pop((data, "download"))()
        costs = measure.alternate(setting.rounds, sides)
        for data, of in settings.items():
            table.data = data
            each = {name: found for (at, name), found in costs.items() if at == data}
            add_rows(of, table, each, label)
            parts(of, table, each, label)
        table.data = "rough"
        add_ratios(table, costs, label)


def sides_of(setting, service, flags):
    """What is run, by name. The download fills the folder that `read_json` reads."""
    pages, out = setting.folder / "pages", setting.folder / "floor.duckdb"
    reach = [service.address, str(service.from_ms), str(service.to_ms - 1)]

    def floor(kind, *arguments, fresh=()):
        def run():
            out.unlink(missing_ok=True)
            os.sync()
            for folder in fresh:
                shutil.rmtree(folder, ignore_errors=True)
            return floors.run(kind, *arguments)
        return run

    def ours(name):
        return Side(setting.program, setting.folder / name, service, flags, (name,)).first_load

    return {
        "download": floor("download", *reach, pages, *flags, fresh=[pages]),
        "read_json": floor("read_json", pages, out, setting.threads),
        "duckdb": ours("duckdb"),
        "read_json_parquet": floor("read_json_parquet", pages, setting.folder / "floor.parquet", setting.threads),
        "parquet": ours("parquet"),
        "script": floor("script", *reach, setting.folder / "script", out, setting.threads, *flags, fresh=[setting.folder / "script"]),
    }


def add_rows(setting, table, costs, label):
    wall = {name: median(each) for name, each in costs.items()}
    read = json.loads(costs["read_json"][-1].stdout)["rows"]
    for name, (title, floor, floor_title) in WAREHOUSES.items():
        setting.require_same_rows(costs[name][-1], "read_json", read)
        said = f"{wall[name]:.2f} s ({measure.spread(costs[name])}), {median(costs[name], 'cpu_secs'):.2f} s of processors"
        table.add(Row(f"{label} {name}", f"backfill into {title}, {label}, against {floor_title}", "≤ 1.6", wall[name] / wall[floor], 1.6, True, said,
                      f"{wall[floor]:.2f} s ({measure.spread(costs[floor])})"))
        peak, most = median(costs[name], "peak_rss_bytes") / MIB, PEAK_MIB[label]
        table.add(Row(f"{label} memory {name}", f"the same: peak memory, MiB, {title}, {label}", f"≤ {most}", peak, most, True, f"{peak:.0f} MiB", ""))
    table.add(Row(f"{label} script", f"backfill into DuckDB, {label}, times as fast as the plain script", "≥ 1.5", wall["script"] / wall["duckdb"], 1.5, False,
                  f"{wall['duckdb']:.2f} s", f"{wall['script']:.2f} s ({measure.spread(costs['script'])})"))
    if label == "flags off":
        requests(table, costs["duckdb"])


def add_ratios(table, costs, label):
    """Rough against smooth. A byte of JSON is the measure: rough records are longer."""
    for name, (title, _, _) in WAREHOUSES.items():
        secs, said = [], []
        for data in DATA:
            each = costs[data, name]
            report = report_of(each[-1])
            read = report["requests"]["bytes"]
            secs.append(median(each) / read)
            said.append(f"{median(each):.2f} s, {read / 1e6:.0f} MB")
        table.add(Row(f"{label} rough {name}", f"backfill into {title}, {label}, rough data against smooth, a byte of JSON", "≤ 1.15", secs[1] / secs[0], 1.15, True,
                      said[1], said[0]))


def parts(setting, table, costs, label):
    """CPU seconds of the parts that no way around a backfill into DuckDB leaves out, each alone and in its fastest known form (see
    benches/floor.rs), over all processors: pages are received, flattened, compressed for the archive, and DuckDB writes the tables, whose
    rows lie in its own file already. HTTP, keys, the comparison, the ledger and all waiting are left out. It has no goal."""
    scratch = setting.folder / "bare"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    alone = json.loads(measure.run([setting.floor, setting.folder / "pages", scratch]).stdout)
    shutil.rmtree(scratch)
    write = floors.run("rewrite", setting.folder / "duckdb" / "warehouse.duckdb", setting.folder / "anew.duckdb", setting.threads)
    work = {"receiving": alone["receive_cpu_secs"], "flatten": alone["flatten_cpu_secs"], "zstd": alone["keep_cpu_secs"], "writing": write.cpu_secs}
    floor = sum(work.values()) / setting.threads
    said = ", ".join(f"{part} {secs:.2f}" for part, secs in work.items())
    read = median(costs["read_json"])
    table.add(Row(f"{label} parts duckdb", f"floor: the parts of a backfill into DuckDB, each alone, spread over {setting.threads} processors without a gap, {label}", "",
                  floor / read, None, True, f"{floor:.2f} s (CPU seconds: {said})", f"typed `read_json` {read:.2f} s"))


def requests(table, ours):
    report = report_of(ours[-1])
    total, rows = report["requests"]["total"], report["streams"]["responses"]["rows_read"]
    table.add(Row("requests", f"requests of a backfill against rows/1000, {rows:,} rows", "≤ 1.05", total / (rows / PAGE_ROWS), 1.05, True, f"{total}",
                  f"{rows / PAGE_ROWS:.0f}, in {report['streams']['responses']['windows']} windows, {report['requests']['ties_probed']} looks at edges"))


def memory(setting, table):
    """Time and peak memory at ten times the rows. Only with BIG_ROWS."""
    if not setting.big_rows:
        return
    found = {}
    for rows in (setting.rows, setting.big_rows):
        with setting.service(rows, days_of(rows)) as service:
            for name in WAREHOUSES:
                cost = Side(setting.program, setting.folder / "memory", service, (), (name,)).first_load()
                found[rows, name] = cost
                measure.tell(f"  {rows} rows, {name}: {cost.wall_secs:.1f} s, {cost.cpu_secs:.1f} s of processors, {cost.peak_rss_bytes / MIB:.0f} MiB")
    for name, (title, _, _) in WAREHOUSES.items():
        small, large = (found[rows, name] for rows in (setting.rows, setting.big_rows))
        peaks = [cost.peak_rss_bytes / MIB for cost in (small, large)]
        most = PEAK_MIB["flags off"]
        table.add(Row(f"memory {name}", f"peak memory, MiB, {setting.big_rows:,} rows, flags off, {title}", f"≤ {most}", peaks[1], most, True,
                      f"{peaks[1]:.0f} MiB", f"{setting.rows:,} rows: {peaks[0]:.0f} MiB"))
        table.add(Row(f"memory growth {name}", f"peak memory, {setting.big_rows:,} rows against {setting.rows:,}, {title}", "≤ 1.1", peaks[1] / peaks[0], 1.1, True,
                      f"{peaks[1]:.0f} MiB", f"{peaks[0]:.0f} MiB"))
        steeper = large.wall_secs / small.wall_secs / (setting.big_rows / setting.rows)
        table.add(Row(f"growth rows {name}", f"time a row, {setting.big_rows:,} rows against {setting.rows:,}, {title}", "≤ 1.1", steeper, 1.1, True,
                      f"{large.wall_secs:.1f} s", f"{small.wall_secs:.1f} s"))


# Bytes of text in a record, and the number of records: about 600 MB of JSON each, except for the
# short ones.
WIDTHS = {"short": (0, 400_000), "30 KiB": (30 * 1024, 16_000), "304 KiB": (304 * 1024, 2_000), "1 MiB": (MIB, 600)}
LIMITS_MIB = (256, 512, 1024)


def wide(setting, table):
    """Peak memory against memory_limit_mb, with all flags, by the width of the records. Each warehouse needs 256 MiB."""
    for width, (text_bytes, rows) in WIDTHS.items():
        with setting.service(rows, 30, "--text-bytes", str(text_bytes)) as service:
            for limit_mib in LIMITS_MIB:
                for warehouses in (("duckdb",), ("parquet",), ("duckdb", "parquet")):
                    if limit_mib >= 256 * len(warehouses):
                        add_peak(setting, table, service, width, limit_mib, warehouses)


def add_peak(setting, table, service, width, limit_mib, warehouses):
    cost = Side(setting.program, setting.folder / "wide", service, FLAGS, warehouses, memory_mib=limit_mib).first_load()
    peak, titles = cost.peak_rss_bytes / MIB, " and ".join(WAREHOUSES[name][0] for name in warehouses)
    measure.tell(f"  {width}, {limit_mib} MiB, {titles}: {cost.wall_secs:.1f} s, {peak:.0f} MiB")
    table.add(Row(f"wide {width} {limit_mib} {'+'.join(warehouses)}", f"peak memory against a limit of {limit_mib} MiB, records: {width}, all flags, {titles}",
                  "≤ 1.25", peak / limit_mib, 1.25, True, f"{peak:.0f} MiB", f"{limit_mib} MiB"))
