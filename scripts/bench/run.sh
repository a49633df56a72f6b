#!/usr/bin/env bash
# Compares the program with the limits of the machine, and writes docs/benchmarks.md. Installs the
# Python packages below into a folder that stays between runs.
# Usage: run.sh [SECTION...]; N, ROWS, BIG_ROWS and KEEP are settings of bench.py.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages=(duckdb==1.5.6 duckdb-cli==1.5.6)
kept=${STUDYSYNC_BENCH:-$HOME/.cache/studysync-bench}

at=$kept/floors
if [ "$(cat "$at/packages" 2>/dev/null)" != "${packages[*]}" ]; then
    rm -rf "$at"
    python3 -m venv "$at"
    "$at/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
    echo "${packages[*]}" >"$at/packages"
fi
# The folder in which scripts/cargo.sh puts the library of the program.
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/libduckdb}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
exec "$at/bin/python" scripts/bench/bench.py "$@"
