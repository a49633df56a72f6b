#!/usr/bin/env bash
# Makes the packages in dist/: a tarball, a Python wheel, on Debian a .deb, an SBOM, and the checksums of all of them.
# Without PROGRAM it compiles the program first. Two runs with the same program write identical
# files.
#
# Usage: build.sh [PROGRAM]      PROGRAM is next to its libduckdb, or has DuckDB compiled in
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/dist/common.sh

step() { echo "== $*" >&2; }

if [ $# -gt 0 ]; then
    step "pack the program $1"
    program=$1 checks=()
else
    step "compile the release program (about six minutes on two cores)"
    program=$(scripts/dist/compile.sh) checks=(--no-build-paths)
fi
dist=$PWD/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step "collect program, library, completions, manual pages, documents, examples, licences"
scripts/dist/stage.sh "$program" "$work/stage"
step "check library paths and links of the documents"
python3 scripts/dist/check.py ${checks[@]+"${checks[@]}"} "$work/stage"

rm -rf "$dist"
mkdir -p "$dist"
step "write the bill of materials and the tarball"
cp "$work/stage/share/doc/studysync/sbom.cdx.json" "$dist/studysync-$version.cdx.json"
python3 scripts/dist/tarball.py "$work/stage" "$dist" "studysync-$version-$system-$machine"
step "write the Python wheel"
python3 scripts/dist/wheel.py "$work/stage" "$dist" "$version"
if command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
    step "write the Debian package"
    scripts/dist/deb.sh "$work/stage" "$dist"
else
    step "no Debian package: install dpkg-dev, which has dpkg-deb and dpkg-shlibdeps"
fi
step "write the checksums"
cd "$dist"
if command -v sha256sum >/dev/null; then sha256sum -- *; else shasum -a 256 -- *; fi >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
chmod 644 SHA256SUMS
step "made in dist/:"
du -h -- * | awk -F '\t' '{printf "  %6s  %s\n", $1, $2}'
echo "Install: docs/install.md. Test each package: make dist-test"
