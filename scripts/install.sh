#!/usr/bin/env bash
# Puts the program that `make build` made into PREFIX/bin, and the DuckDB library that it is linked with into PREFIX/lib/studysync,
# where it looks for it. A program with DuckDB compiled in needs no library.
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
    # Renamed into place: a run that has the old one loaded goes on with it.
    cp "$library" "$prefix/lib/studysync/.$(basename "$library").new"
    chmod 755 "$prefix/lib/studysync/.$(basename "$library").new"
    mv -f "$prefix/lib/studysync/.$(basename "$library").new" "$prefix/lib/studysync/$(basename "$library")"
done
cp "$built/studysync" "$prefix/bin/.studysync.new"
mv -f "$prefix/bin/.studysync.new" "$prefix/bin/studysync"
# From here, not from where it was built.
(cd / && "$prefix/bin/studysync" --version)
echo "installed $prefix/bin/studysync"
