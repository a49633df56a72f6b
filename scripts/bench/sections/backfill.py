"""First loads, against DuckDB reading finished files, a plain script, and parsing alone."""

import json
import os
import shutil
import statistics

import measure
from measure import median
from results import Row
from sections import floor as floors
from service import FLAGS, Side, days_of, report_of

MIB = 2**20
# What the engine may take unless set otherwise (`[warehouse] memory_limit_mb`), and what the program may take beside it.
ENGINE_BYTES = 1024 * MIB
OWN_BYTES = 256 * MIB
PAGE_ROWS = 1000


def without_flags(setting, table):
    with setting.service(setting.rows, setting.days()) as service:
        costs, pages = first_loads(setting, service, [])
        add_rows(table, costs, "flags off")
        alone = bare(setting, pages)
        processor_time(table, costs["duckdb"], alone)
        parts(setting, table, service, costs, alone, [])
        requests(table, costs["duckdb"])


def with_all_flags(setting, table):
    with setting.service(setting.rows, setting.days()) as service:
        costs, pages = first_loads(setting, service, FLAGS)
        add_rows(table, costs, "all flags")
        parts(setting, table, service, costs, bare(setting, pages), FLAGS)


def first_loads(setting, service, flags):
    """Costs of all sides, and the folder of pages that the last download left."""
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

    def ours(name, *warehouses):
        return Side(setting.program, setting.folder / name, service, flags, warehouses).first_load

    sides = {
        "download": floor("download", *reach, pages, *flags, fresh=[pages]),
        "read_json": floor("read_json", pages, out, setting.threads),
        "duckdb": ours("duckdb", "duckdb"),
        "read_json_parquet": floor("read_json_parquet", pages, setting.folder / "floor.parquet", setting.threads),
        "parquet": ours("parquet", "parquet"),
        "both": ours("both", "duckdb", "parquet"),
        "script": floor("script", *reach, setting.folder / "script", out, setting.threads, *flags, fresh=[setting.folder / "script"]),
    }
    sides["download"]()  # The pages that the second floor reads when a round goes backwards.
    costs = measure.alternate(setting.rounds, sides)
    read = json.loads(costs["read_json"][-1].stdout)["rows"]
    for name in ("duckdb", "parquet", "both"):
        setting.require_same_rows(costs[name][-1], "read_json", read)
    return costs, pages


def add_rows(table, costs, flags):
    wall = {name: median(each) for name, each in costs.items()}

    def add(key, work, goal, ours, other, other_name, limit, at_most=True):
        ratio = wall[ours] / wall[other] if at_most else wall[other] / wall[ours]
        table.add(Row(f"{flags} {key}", f"{work}, {flags}", goal, ratio, limit, at_most, f"{wall[ours]:.2f} s ({measure.spread(costs[ours])})",
                      f"{other_name} {wall[other]:.2f} s ({measure.spread(costs[other])})"))

    add("duckdb", "backfill into DuckDB, archive on", "≤ 1.0", "duckdb", "read_json", "typed `read_json` of saved pages", 1.0)
    add("parquet", "backfill into Parquet, archive on", "≤ 1.0", "parquet", "read_json_parquet", "the same and `COPY`", 1.0)
    add("both", "backfill into both", "≤ 1.5", "both", "duckdb", "DuckDB alone", 1.5)
    add("script", "backfill into DuckDB, times faster", "≥ 2", "duckdb", "script", "plain script: 4 connections, then `read_json`", 2.0, at_most=False)
    table.add(Row(f"{flags} download", f"backfill into DuckDB against the wire, {flags}", "", wall["duckdb"] / wall["download"], None, True,
                  f"{wall['duckdb']:.2f} s", f"plain download {wall['download']:.2f} s"))


def bare(setting, pages):
    """CPU seconds of the barest form of each part (see benches/floor.rs), and how many rows those were."""
    runs = []
    for _ in range(setting.rounds):
        scratch = setting.folder / "bare"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        runs.append(json.loads(measure.run([setting.floor, pages, scratch]).stdout))
    shutil.rmtree(scratch)
    return {name: statistics.median(each[name] for each in runs) for name in runs[0]}


def processor_time(table, ours, alone):
    """CPU seconds of a million rows."""
    parse, append = alone["parse_cpu_secs"], alone["append_cpu_secs"]
    cpu, scale = median(ours, "cpu_secs"), 1e6 / alone["rows"]
    table.add(Row("cpu", "CPU seconds a million rows, flags off, DuckDB", "≤ 2", cpu / (parse + append), 2.0, True, f"{cpu * scale:.2f} s",
                  f"serde_json into borrowed structs {parse * scale:.2f} s + appender {append * scale:.2f} s"))


def parts(setting, table, service, costs, alone, flags):
    """The parts that no way around a backfill leaves out, each alone and in its fastest known form: the service makes the pages and sends
    them, they are received, parsed, hashed, compressed into one file for the archive, their cells are written into columns, and DuckDB
    writes the tables, whose rows lie in its own file already. Their processor time over all processors is the least wall time of a
    backfill on this machine, whoever writes it: HTTP, keys, the comparison, the ledger and all waiting are left out."""
    label = "all flags" if flags else "flags off"
    file = setting.folder / "duckdb" / "warehouse.duckdb"
    reach = [service.address, str(service.from_ms), str(service.to_ms - 1)]
    served = []
    for _ in range(setting.rounds):
        before = service.cpu_secs()
        floors.run("download", *reach, setting.folder / "parts", *flags)
        served.append(service.cpu_secs() - before)
    serve = statistics.median(served)
    reading = {
        "parts": ("", {"receiving": alone["receive_cpu_secs"], "parsing": alone["parse_cpu_secs"], "hashes": alone["hash_cpu_secs"], "columns": alone["columns_cpu_secs"]}),
        "flattened parts": (", with this program's flatten in the place of bare parsing", {"receiving": alone["receive_cpu_secs"], "flatten": alone["flatten_cpu_secs"]}),
    }
    ways = {
        "duckdb": ("DuckDB", "rewrite", setting.folder / "anew.duckdb", "read_json", "typed `read_json`"),
        "parquet": ("Parquet", "rewrite_parquet", setting.folder / "anew", "read_json_parquet", "`read_json` and `COPY`"),
    }
    for name, (into, kind, out, other, other_name) in ways.items():
        writes = [floors.run(kind, file, out, setting.threads) for _ in range(setting.rounds)]
        wall, read = median(writes), median(costs[other])
        table.add(Row(f"{label} same tables {name}", f"floor: DuckDB writes the tables of a backfill into {into} from its own file, nothing else to do, {label}", "",
                      wall / read, None, True, f"{wall:.2f} s", f"{other_name} {read:.2f} s"))
        for key, (how, read_parts) in reading.items():
            work = {"the sandbox": serve, **read_parts, "zstd": alone["keep_cpu_secs"], "writing": median(writes, "cpu_secs")}
            floor = sum(work.values()) / setting.threads
            said = ", ".join(f"{part} {secs:.2f}" for part, secs in work.items())
            table.add(Row(f"{label} {key} {name}", f"floor: the parts of a backfill into {into}, each alone{how}, spread over {setting.threads} processors without a gap, {label}",
                          "", floor / read, None, True, f"{floor:.2f} s (CPU seconds: {said})", f"{other_name} {read:.2f} s"))


def requests(table, ours, key=""):
    report = report_of(ours[-1])
    total, rows = report["requests"]["total"], report["streams"]["responses"]["rows_read"]
    table.add(Row(f"requests{key}", f"requests of a backfill against rows/1000, {rows:,} rows", "≤ 1.05", total / (rows / PAGE_ROWS), 1.05, True, f"{total}",
                  f"{rows / PAGE_ROWS:.0f}, in {report['streams']['responses']['windows']} windows, {report['requests']['ties_probed']} looks at edges"))


def memory(setting, table):
    """Peak memory at both sizes. The larger one only with BIG_ROWS."""
    peaks, floor_peaks = {}, {}
    for rows in [setting.rows] + [setting.big_rows] * (setting.big_rows > 0):
        with setting.service(rows, days_of(rows)) as service:
            cost = Side(setting.program, setting.folder / "memory", service).first_load()
        file = setting.folder / "memory" / "warehouse.duckdb"
        floor_peaks[rows] = floors.run("rewrite", file, setting.folder / "anew.duckdb", setting.threads, ENGINE_BYTES // MIB).peak_rss_bytes
        peaks[rows] = cost.peak_rss_bytes
        measure.tell(f"  {rows} rows: {cost.wall_secs:.1f} s, {cost.peak_rss_bytes / MIB:.0f} MiB")
        if rows == setting.big_rows:
            requests(table, [cost], f" {rows}")
        table.add(Row(f"memory {rows}", f"peak memory, {rows:,} rows, flags off, DuckDB", "≤ 1", cost.peak_rss_bytes / (ENGINE_BYTES + OWN_BYTES), 1.0, True,
                      f"{cost.peak_rss_bytes / MIB:.0f} MiB", "256 MiB + 1024 MiB of DuckDB's own limit"))
    if len(peaks) == 2:
        small, large = peaks.values()
        table.add(Row("memory growth", "peak memory, ten times the rows", "≤ 1.05", large / small, 1.05, True, f"{large / MIB:.0f} MiB", f"{small / MIB:.0f} MiB"))
        small, large = floor_peaks.values()
        table.add(Row("memory floor", "floor: DuckDB alone copies the same tables within the same limit, ten times the rows", "", large / small, None, True,
                      f"{large / MIB:.0f} MiB", f"{small / MIB:.0f} MiB"))
