"""A second look at rows that did not change: what it costs, and that it writes nothing."""

import hashlib

import measure
from measure import median
from results import Row
from service import Side, report_of

EVERY_RUN = 'rescan = ["all every run"]'


def measure_rescan(setting, table):
    with setting.service(setting.rows, setting.days()) as service:
        for warehouse, files in (("duckdb", "warehouse.duckdb"), ("parquet", "parquet/**/*.parquet")):
            side = Side(setting.program, setting.folder / "rescan", service, [], (warehouse,), more=EVERY_RUN)
            loads, scans, written = [], [], 0
            for _ in range(setting.rounds):
                loads.append(side.first_load())
                side.run("sync", "--json")  # What lies between the backfill's end and now.
                before = fingerprints(side.folder, files)
                scans.append(side.run("sync", "--json"))
                rows = report_of(scans[-1])["streams"]["responses"]
                changed = [name for name, print_of in fingerprints(side.folder, files).items() if before.get(name) != print_of]
                written += bool(changed)
                measure.tell(f"  {warehouse}: {len(changed)} of {len(before)} files changed; {rows}")
                measure.tell(f"  {warehouse}: load {loads[-1].wall_secs:.2f} s, re-scan {scans[-1].wall_secs:.2f} s of {rows['rows_read']} rows")
            load, scan = median(loads), median(scans)
            table.add(Row(f"rescan {warehouse}", f"re-scan of unchanged rows, {warehouse}", "≤ 0.6", scan / load, 0.6, True,
                          f"{scan:.2f} s ({measure.spread(scans)})", f"first load {load:.2f} s"))
            table.add(Row(f"rescan written {warehouse}", f"data files that a re-scan changes, {warehouse}", "0", written, 0, True,
                          f"{written} of {setting.rounds} scans", "time of change, size and bytes"))


def fingerprints(folder, pattern):
    """Of each file its time of change, its size and its bytes."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        status = path.stat()
        with open(path, "rb") as file:
            found[str(path)] = (status.st_mtime_ns, status.st_size, hashlib.file_digest(file, "sha256").hexdigest())
    return found
