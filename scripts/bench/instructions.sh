#!/usr/bin/env bash
# Builds the counted paths and compares their instructions with the recorded numbers.
# Usage: instructions.sh [--record]
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v valgrind >/dev/null; then
    echo "SKIPPED: no valgrind on this machine, so no instructions are counted (Debian: apt install valgrind)"
    exit 0
fi
program=$(scripts/cargo.sh build --bench hot_paths --message-format=json |
    python3 -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["target"]["name"] == "hot_paths":
        print(made["executable"])')
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/libduckdb}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec python3 scripts/bench/instructions.py "$program" "$@"
