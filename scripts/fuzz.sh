#!/usr/bin/env bash
# Fuzzes one target, or each in turn: scripts/fuzz.sh [TARGET|all] [EXECUTIONS]. Needs the nightly compiler and cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-all} runs=${2:-10000000}
# The library that `make build` downloaded. Only libFuzzer's own checks are used, because the crate
# has no unsafe code.
export DUCKDB_LIB_DIR=${DUCKDB_LIB_DIR:-$PWD/target/libduckdb}
export LD_LIBRARY_PATH=$DUCKDB_LIB_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

fuzz() {
    local dictionary=()
    case $1 in flatten_* | page_envelope) dictionary=(-dict=fuzz/dictionaries/json.dict) ;; esac
    mkdir -p "fuzz/corpus/$1"
    # New inputs are written to the first folder; the seeds stay as they are.
    cargo +nightly fuzz run --sanitizer none "$1" "fuzz/corpus/$1" "fuzz/seeds/$1" -- \
        -runs="$runs" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "${dictionary[@]}"
}

if [ "$target" = all ]; then
    for source in fuzz/fuzz_targets/*.rs; do fuzz "$(basename "$source" .rs)"; done
else
    fuzz "$target"
fi
