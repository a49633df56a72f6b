#!/usr/bin/env bash
# Compiles the program that `make dist` packs: with the profile `release`, linked with the pinned
# libduckdb, and without paths of this machine. Its compiler flags differ from those of `make
# build`, so it has its own target folder.
#
# Usage: compile.sh      prints the path of the program
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
scripts/fetch-libduckdb.sh "$target/libduckdb"

cargo_home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
# Replaces paths in panic messages and assertions. Longer paths come last, because the last match
# wins.
flags=()
c_flags=
remap() {
    flags+=("--remap-path-prefix=$1=$2")
    c_flags+=" -ffile-prefix-map=$1=$2"
}
remap "$cargo_home" /cargo
remap "$sysroot" /rust
remap "$PWD" /studysync
remap "$target" /target

# C compilers would use it as the date of their output, and run again after each commit.
unset SOURCE_DATE_EPOCH
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; printf %s "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS
export CFLAGS="${CFLAGS:-}$c_flags"
export CARGO_TARGET_DIR=$target/dist
export DUCKDB_LIB_DIR=$target/libduckdb
cargo build --release --locked --no-default-features --bin studysync >&2
echo "$CARGO_TARGET_DIR/release/studysync"
