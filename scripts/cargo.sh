#!/usr/bin/env bash
# Runs cargo with the pinned DuckDB library if it can be downloaded, else with DuckDB compiled in.
# Usage: cargo.sh SUBCOMMAND [ARGUMENTS]     DUCKDB=bundled compiles DuckDB in;
# PROFILE=quick selects the profile of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
library=$target/libduckdb
profile=${PROFILE:-release}
subcommand=${1:?usage: cargo.sh SUBCOMMAND [ARGUMENTS]}
shift

if [ ! -e "$target/$profile" ]; then
    echo "The first build fetches DuckDB's library (70 MB) and compiles 300 crates: 3 to 8 minutes on two cores. Later ones take seconds." >&2
fi
if [ "${DUCKDB:-}" != bundled ] && scripts/fetch-libduckdb.sh "$library"; then
    export DUCKDB_LIB_DIR=$library
    exec cargo "$subcommand" --profile "$profile" --locked --no-default-features "$@"
fi
echo "DuckDB is compiled in: that takes half an hour the first time" >&2
unset DUCKDB_LIB_DIR
exec cargo "$subcommand" --profile "$profile" --locked "$@"
