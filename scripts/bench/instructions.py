"""Counts the instructions of the hot paths with callgrind and holds them against the numbers in benches/instructions.json.

    instructions.py PROGRAM [--record]

Instructions, unlike seconds, are the same on a busy machine. They are not the same with another compiler, C library or processor
family; where one of these differs from what the numbers were made with, nothing is compared, and that is said."""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

NUMBERS = pathlib.Path(__file__).parent.parent.parent / "benches" / "instructions.json"
LIMIT_PERCENT = 5.0
COUNTED = "*counted_path*"


def main(program, *options):
    if shutil.which("valgrind") is None:
        print("SKIPPED: no valgrind on this machine, so no instructions are counted (Debian: apt install valgrind)")
        return 0
    made_with = environment()
    counts = {path: count(program, path) for path in said(program).split()}
    if "--record" in options:
        NUMBERS.write_text(json.dumps({"made_with": made_with, "instructions": counts}, indent=2) + "\n")
        print(f"wrote {NUMBERS}")
        return 0
    if not NUMBERS.exists():
        print(f"SKIPPED: there is no {NUMBERS.name}; `make instructions RECORD=1` makes it")
        return 0
    kept = json.loads(NUMBERS.read_text())
    if kept["made_with"] != made_with:
        print(f"SKIPPED: the numbers were made with {kept['made_with']}, here is {made_with}; `make instructions RECORD=1` makes new ones")
        return 0
    return 1 if compare(kept["instructions"], counts) else 0


def compare(kept, counts):
    """Prints a line for each path; the answer is how many are wrong."""
    wrong = 0
    for path in sorted(kept.keys() | counts.keys()):
        before, now = kept.get(path), counts.get(path)
        if before is None or now is None:
            verdict, wrong = "is new or gone: record", wrong + 1
        else:
            change = 100 * (now - before) / before
            verdict = f"{change:+.2f} %"
            if change > LIMIT_PERCENT:
                verdict, wrong = verdict + f": more than {LIMIT_PERCENT:g} % slower", wrong + 1
            elif change < -LIMIT_PERCENT:
                verdict, wrong = verdict + ": faster, record it, so that it stays so", wrong + 1
        print(f"{path:36} {before or 0:>14,} {now or 0:>14,}  {verdict}")
    if wrong:
        print("`make instructions RECORD=1` writes these numbers down; say in the commit why they changed")
    return wrong


def count(program, path):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        said("valgrind", "--tool=callgrind", f"--toggle-collect={COUNTED}", f"--callgrind-out-file={out}", program, path)
        counted = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    if counted is None or int(counted[1]) == 0:
        sys.exit(f"callgrind counted nothing for {path}: is {COUNTED} still the name of the function?")
    return int(counted[1])


def environment():
    features = next((line for line in open("/proc/cpuinfo") if line.startswith(("flags", "Features"))), "")
    return {"rustc": said("rustc", "--version"), "libc": " ".join(platform.libc_ver()), "machine": platform.machine(),
            "avx2": "avx2" in features.split(), "valgrind": said("valgrind", "--version")}


def said(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
