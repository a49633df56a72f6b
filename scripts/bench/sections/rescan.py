"""A second look at all rows, of which none, few or many were edited: what it costs, and that it writes nothing where nothing changed."""

import hashlib

import measure
from measure import median
from results import Row
from service import Side, report_of

EDITS = {1_000: 0.4, 50_000: 0.6}
EVERY_RUN = 'rescan = ["all every run"]'


def measure_rescan(setting, table):
    with setting.service(setting.rows, setting.days()) as service:
        for warehouse, files in (("duckdb", "warehouse.duckdb"), ("parquet", "parquet/**/*.parquet")):
            side = Side(setting.program, setting.folder / "rescan", service, [], (warehouse,), more=EVERY_RUN)
            loads, scans, written = [], {0: [], **{edits: [] for edits in EDITS}}, 0
            for at in range(setting.rounds):
                loads.append(side.first_load())
                side.run("sync", "--json")  # Pulls the time from the backfill's end until now.
                for edits, costs in scans.items():
                    if edits:
                        service.control("POST", "changes", {"seed": at, "edits": edits})
                    before = fingerprints(side.folder, files)
                    costs.append(side.run("sync", "--json"))
                    rows = report_of(costs[-1])["streams"]["responses"]
                    changed = [name for name, print_of in fingerprints(side.folder, files).items() if before.get(name) != print_of]
                    written += bool(changed) and not edits
                    measure.tell(f"  {warehouse}: load {loads[-1].wall_secs:.2f} s, {edits} edits: {costs[-1].wall_secs:.2f} s, {rows['updated']} updated, "
                                 f"{len(changed)} of {len(before)} files changed")
            load = median(loads)
            for edits, goal in {0: 0.35, **EDITS}.items():
                scan = median(scans[edits])
                what = f"{edits:,} edits among them" if edits else "nothing changed"
                table.add(Row(f"rescan {warehouse} {edits}", f"re-scan against the first load, {what}, {warehouse}", f"≤ {goal}", scan / load, goal, True,
                              f"{scan:.2f} s ({measure.spread(scans[edits])})", f"first load {load:.2f} s"))
            table.add(Row(f"rescan written {warehouse}", f"data files that an unchanged re-scan changes, {warehouse}", "0", written, 0, True,
                          f"{written} of {setting.rounds} scans", "time of change, size and bytes"))


def fingerprints(folder, pattern):
    """Of each file its time of change, its size and its bytes."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        status = path.stat()
        with open(path, "rb") as file:
            found[str(path)] = (status.st_mtime_ns, status.st_size, hashlib.file_digest(file, "sha256").hexdigest())
    return found
