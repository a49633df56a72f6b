#!/usr/bin/env bash
# Tests the status page of `serve` with headless Chromium: it follows a run without a reload,
# reports a failed night, works on a phone, in dark mode, by keyboard and without scripts, and
# axe-core finds nothing; a report in light, dark and on a phone; and the pages of the book,
# above all on a phone. Writes screenshots to a folder. Installs playwright-core and axe-core into a folder that stays between runs, and, as
# root on Debian, Chromium.
# Usage: run.sh [PROGRAM [FOLDER]]
set -euo pipefail
cd "$(dirname "$0")/../.."

program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/quick/studysync}")
pictures=${2:-${CARGO_TARGET_DIR:-target}/status-page}
kept=${STUDYSYNC_BROWSER:-$HOME/.cache/studysync-browser}

skip() {
    echo "SKIPPED: $1" >&2
    exit 0
}
command -v npm >/dev/null || skip "npm is not there"
if ! command -v chromium >/dev/null; then
    install() { timeout 300 apt-get install -y -qq chromium >/dev/null 2>&1; }
    { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && { install || { apt-get update -qq >/dev/null 2>&1 && install; }; }; } ||
        skip "chromium cannot be had from here"
fi
mkdir -p "$kept" "$pictures"
if ! cmp -s scripts/browser/package.json "$kept/package.json"; then
    cp scripts/browser/package.json "$kept/package.json.new"
    (cd "$kept" && mv package.json.new package.json && npm install --no-audit --no-fund --ignore-scripts --silent) ||
        { rm -f "$kept/package.json" && skip "playwright-core and axe-core cannot be had from here"; }
fi
mdbook=$(scripts/mdbook.sh) || skip "mdBook cannot be had from here"
"$mdbook" build docs -d "$kept/book" >/dev/null 2>&1
# Node looks for modules next to the file.
cp scripts/browser/*.mjs "$kept/"

# The folder in which scripts/cargo.sh puts the library of the program.
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/libduckdb}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Some minutes; a machine that is busy with something else takes longer.
exec timeout 900 node "$kept/status-page.mjs" "$program" "$(realpath "$pictures")" "$kept/book"
