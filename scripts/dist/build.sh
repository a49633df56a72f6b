#!/usr/bin/env bash
# Makes the packages in dist/: a tarball, a Python wheel, on Debian a .deb, an SBOM, and the checksums of all of them.
# Without PROGRAM it compiles the program first. Two runs with the same program write identical
# files.
#
# Usage: build.sh [PROGRAM]      PROGRAM is next to its libduckdb, or has DuckDB compiled in
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/dist/common.sh

if [ $# -gt 0 ]; then
    program=$1 checks=()
else
    program=$(scripts/dist/compile.sh) checks=(--no-build-paths)
fi
dist=$PWD/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

scripts/dist/stage.sh "$program" "$work/stage"
python3 scripts/dist/check.py ${checks[@]+"${checks[@]}"} "$work/stage"

rm -rf "$dist"
mkdir -p "$dist"
cp "$work/stage/share/doc/studysync/sbom.cdx.json" "$dist/studysync-$version.cdx.json"
python3 scripts/dist/tarball.py "$work/stage" "$dist" "studysync-$version-$system-$machine"
python3 scripts/dist/wheel.py "$work/stage" "$dist" "$version"
if command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
    scripts/dist/deb.sh "$work/stage" "$dist"
else
    echo "no .deb: it takes dpkg-deb and dpkg-shlibdeps (Debian's dpkg-dev)" >&2
fi
(
    cd "$dist"
    if command -v sha256sum >/dev/null; then sha256sum -- *; else shasum -a 256 -- *; fi >"$work/SHA256SUMS"
    mv "$work/SHA256SUMS" .
    chmod 644 SHA256SUMS
    ls -l
)
