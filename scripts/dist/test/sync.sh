#!/usr/bin/env bash
# Runs a first sync with an installed program, from its own sandbox. The program must load the
# library that was installed with it.
#
# Usage: sync.sh PROGRAM
set -euo pipefail
program=$1
work=$(mktemp -d)
cd "$work"
sandbox=
end() {
    if [ -n "$sandbox" ]; then kill "$sandbox" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap end EXIT

"$program" --version
installed=$(dirname "$(dirname "$(readlink -f "$program")")")
loaded=$(ldd "$program" | sed -n 's/.*libduckdb[^ ]* => \(.*\) (0x.*/\1/p')
case $(readlink -f "$loaded") in
    "$installed/lib/studysync/"*) ;;
    *) echo "the library is loaded from '$loaded', not from $installed/lib/studysync" >&2; exit 1 ;;
esac

"$program" sandbox --listen 127.0.0.1:0 --responses 500 --days 5 >listening &
sandbox=$!
for _ in $(seq 100); do
    grep -q 'listening on' listening && break
    sleep 0.1
done
url=$(sed -n 's/^listening on //p' listening)
# The program must connect only to the service.
traced=()
if command -v strace >/dev/null; then traced=(strace --follow-forks --trace=connect --quiet=all --output=connections); fi
STUDYSYNC_API_KEY=sandbox-key "${traced[@]}" \
    "$program" --quiet sync --base-url "$url" --duckdb warehouse.duckdb --parquet parquet
if [ -e connections ]; then
    grep -q AF_INET connections || { echo "strace saw no connection at all" >&2; exit 1; }
    others=$(grep AF_INET connections | grep -v "sin_port=htons(${url##*:}).*inet_addr(\"127.0.0.1\")" || true)
    [ -z "$others" ] || { echo "it asked somebody else: $others" >&2; exit 1; }
fi
rows=$("$program" query --duckdb warehouse.duckdb --format csv "SELECT count(*) > 400 AS many FROM responses" | tail -1)
[ "$rows" = true ] || { echo "the warehouse has too few answers" >&2; exit 1; }
