#!/usr/bin/env bash
# Copies the program that `make build` made to PREFIX/bin, and its DuckDB library to
# PREFIX/lib/studysync, where the program looks for it. A program with DuckDB compiled in needs no
# library.
#
# Usage: install.sh PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${1:?usage: install.sh PREFIX}
built=${CARGO_TARGET_DIR:-$PWD/target}/release

mkdir -p "$prefix/bin"
for library in "$built"/libduckdb.so "$built"/libduckdb.dylib; do
    [ -f "$library" ] || continue
    mkdir -p "$prefix/lib/studysync"
    # Replaced by a rename, so that a run that has loaded the old library keeps it.
    cp "$library" "$prefix/lib/studysync/.$(basename "$library").new"
    chmod 755 "$prefix/lib/studysync/.$(basename "$library").new"
    mv -f "$prefix/lib/studysync/.$(basename "$library").new" "$prefix/lib/studysync/$(basename "$library")"
done
cp "$built/studysync" "$prefix/bin/.studysync.new"
mv -f "$prefix/bin/.studysync.new" "$prefix/bin/studysync"
# Runs the installed program, not the one in the build folder.
(cd / && "$prefix/bin/studysync" --version)
echo "installed $prefix/bin/studysync"
