#!/usr/bin/env bash
# Downloads the pinned official libduckdb into a folder, so that the program links it in seconds and
# does not compile DuckDB's C++ for half an hour. Tries the GitHub release, then the official npm
# package: both have the same file, and its checksum is pinned here. Prints only errors. Exits with
# 1 if the library cannot be downloaded; the caller then builds with the feature `bundled`.
#
# Usage: fetch-libduckdb.sh DIR [tests]     tests: the version that has extensions, on Linux x86-64
# only; see scripts/test-tools.sh
set -euo pipefail

version=1.5.6
npm_version=1.5.6-r.1
dir=${1:?usage: fetch-libduckdb.sh DIR [tests]}

case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) release=linux-amd64 package=linux-x64 file=libduckdb.so sha256=3f4962cdd266eab2b479a5b5a4a6d063d279b2954ae814ed00385d553b747633 ;;
    Linux-aarch64) release=linux-arm64 package=linux-arm64 file=libduckdb.so sha256=23686593dba4ec22c6e581bb1c843b3964e84c4bc4d0063d8b4daddd2e20e30a ;;
    Darwin-*) release=osx-universal package=darwin-arm64 file=libduckdb.dylib sha256=75a519cb914ae36ca22cff0995a8a2e8c9a46990b8c0a479514f741a0d93f344 ;;
    *) echo "no libduckdb is pinned for $(uname -s) on $(uname -m)" >&2; exit 1 ;;
esac
if [ "${2:-}" = tests ]; then
    [ "$release" = linux-amd64 ] || exit 1
    version=1.5.5 npm_version=1.5.5-r.5 sha256=fc23f12e376c47be520f75221288281906e7942e8fd6f6ce4849198ba60d0405
fi

checksum() {
    if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}

if [ -f "$dir/$file" ] && [ "$(checksum "$dir/$file")" = "$sha256" ]; then
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

unpack_zip() {
    if command -v unzip >/dev/null; then unzip -qo "$1" "$file" -d "$work"
    elif command -v python3 >/dev/null; then python3 -m zipfile -e "$1" "$work"
    else return 1; fi
}

from_github() {
    command -v curl >/dev/null || return 1
    curl --fail --silent --location --connect-timeout 10 --max-time 600 --retry 2 --output "$work/lib.zip" \
        "https://github.com/duckdb/duckdb/releases/download/v$version/libduckdb-$release.zip" || return 1
    unpack_zip "$work/lib.zip"
}

from_npm() {
    command -v npm >/dev/null || return 1
    (cd "$work" && npm pack --silent "@duckdb/node-bindings-$package@$npm_version" >/dev/null 2>&1) || return 1
    tar xzf "$work"/*.tgz -C "$work" --strip-components=1 "package/$file"
}

for source in from_github from_npm; do
    rm -f "$work/$file"
    if $source && [ -f "$work/$file" ]; then
        found=$(checksum "$work/$file")
        if [ "$found" = "$sha256" ]; then
            mkdir -p "$dir"
            mv "$work/$file" "$dir/$file.new"
            mv "$dir/$file.new" "$dir/$file"
            exit 0
        fi
        echo "$file ($source) has the checksum $found instead of $sha256: not used" >&2
    fi
done
echo "libduckdb $version cannot be had from here" >&2
exit 1
