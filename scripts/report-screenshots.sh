#!/usr/bin/env bash
# Makes screenshots of a report on a desktop and a phone, light and dark. docs/report.png is one of
# them. Needs Chromium and a built program: `make build`.
#   scripts/report-screenshots.sh FOLDER [REPORT.html]      without a report: one of the demo's warehouse
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?name a folder for the pictures}
program=${STUDYSYNC:-${CARGO_TARGET_DIR:-target}/release/studysync}
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
mkdir -p "$folder"

report=${2:-}
if [ -z "$report" ]; then
    demo=$(mktemp -d)
    trap 'rm -rf "$demo"' EXIT
    "$program" demo --folder "$demo" >/dev/null
    report=$demo/report.html
    "$program" report --duckdb "$demo/warehouse.duckdb" --state "$demo/state/checkpoints.sqlite" --out "$report"
fi

picture() { # name, width, height, dark or light
    local profile
    profile=$(mktemp -d)
    # As root (in a container) Chromium runs only without its sandbox; the page runs no scripts.
    local flags=(--headless --disable-gpu --disable-quic --no-first-run --disable-background-networking
        --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$profile")
    if [ "$(id -u)" = 0 ]; then flags+=(--no-sandbox); fi
    if [ "$4" = dark ]; then flags+=(--blink-settings=preferredColorScheme=0); else flags+=(--blink-settings=preferredColorScheme=1); fi
    # Chromium's window cannot be as narrow as a phone, so a frame shows the page.
    printf '<!doctype html><body style="margin:0"><iframe src="file://%s" style="border:0;width:%spx;height:%spx"></iframe>' \
        "$(realpath "$report")" "$2" "$3" >"$profile/frame.html"
    "$browser" "${flags[@]}" --window-size="$(($2 < 500 ? 500 : $2)),$3" --screenshot="$folder/$1.png" "file://$profile/frame.html" 2>/dev/null
    rm -rf "$profile"
}

for theme in light dark; do
    picture "desktop-$theme" 1280 1800 "$theme"
    picture "phone-$theme" 390 1800 "$theme"
done
