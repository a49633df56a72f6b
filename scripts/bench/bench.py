"""`make bench`: the table of docs/benchmarks.md, measured. Everything runs on this machine, in turns; no number is ever asserted.

    bench.py [SECTION...]     backfill flags memory wide rescan latency small views replay nightly bucket erase windows compare; without any, all
                              of them. Each is measured on smooth and on rough data of the sandbox; DATA=smooth measures one alone
    bench.py catalogs         each kind of warehouse, on rough data, in some hours: NIGHTS=365, KINDS="duckdb iceberg" measures some

N=5 rounds, ROWS=1000000 responses, BIG_ROWS=0 (10000000 for the rows that ask for it), KEEP=1 leaves the folder."""

import dataclasses
import os
import pathlib
import shutil
import sys
import tempfile

import results
import sections
from measure import tell

HERE = pathlib.Path(__file__).parent
REPOSITORY = HERE.parent.parent


def number(name, default):
    return int(os.environ.get(name, default))


def main(wanted):
    target = pathlib.Path(os.environ["CARGO_TARGET_DIR"])
    program = target / "release" / "studysync"
    setting = sections.Setting(
        program=program, floor=newest(target / "release" / "deps", "floor-*"), rounds=number("N", 5), rows=number("ROWS", 1_000_000),
        big_rows=number("BIG_ROWS", 0), threads=os.cpu_count(), folder=pathlib.Path(tempfile.mkdtemp(prefix="bench-", dir=target)))
    table = results.Results(REPOSITORY / "docs" / "benchmarks.json", {"rows": setting.rows, "rounds": setting.rounds})
    try:
        for name in wanted or [*sections.BOTH, *sections.ALL]:
            measured = ["rough"] if name in sections.BOTH | sections.NAMED else os.environ.get("DATA", "smooth rough").split()
            for table.data in measured:
                tell(f"{name}, {table.data}:")
                (sections.ALL | sections.BOTH | sections.NAMED)[name](dataclasses.replace(setting, data=table.data), table)
    finally:
        if not os.environ.get("KEEP"):
            shutil.rmtree(setting.folder, ignore_errors=True)
    results.write_markdown(table, HERE / "page.md", REPOSITORY / "docs" / "benchmarks.md", results.machine(), results.versions(program))


def newest(folder, pattern):
    found = [path for path in folder.glob(pattern) if os.access(path, os.X_OK) and path.suffix == ""]
    if not found:
        sys.exit(f"{folder} has no {pattern}: run `make bench`")
    return max(found, key=lambda path: path.stat().st_mtime)


if __name__ == "__main__":
    main(sys.argv[1:])
