#!/usr/bin/env bash
# Runs the conformance suite of a Parquet warehouse, and nights of the program, against a real S3 server on this machine, and reads a
# warehouse there with DuckDB, pandas, pyarrow, Polars and Spark. Installs server and readers into a folder that stays between runs.
# Usage: bucket.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# DuckDB of the version for which its extension `httpfs` is on PyPI.
readers=(duckdb==1.5.5 duckdb-extension-httpfs==1.5.5 pandas==3.1.1 pyarrow==26.0.1 polars==2.1.0 pyspark==4.3.0)

. scripts/s3-server.sh
. scripts/built-tests.sh
if ! s3_installed; then
    echo "SKIPPED: the S3 server cannot be installed, so no bucket is tested"
    exit 0
fi
build_tests

work=$(mktemp -d)
trap 'kill -9 "${s3_server:-}" "${service:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/s3"
start_s3 "$work/s3"
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/libduckdb}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for binary in "${built[@]:0:2}"; do
    STUDYSYNC_TEST_BUCKET=s3://studysync CARGO_MANIFEST_DIR=$PWD "$binary" real_bucket --include-ignored --test-threads 2
done

if ! { installed readers "${readers[@]}" && java_installed; }; then
    echo "SKIPPED: the readers cannot be installed, so no other program reads the bucket"
    exit 0
fi
program=${built[2]}
export STUDYSYNC_API_KEY=readers
exec 3< <(exec "$program" sandbox --api-key "$STUDYSYNC_API_KEY" --responses 20000 --days 100 --hostile-share 0.02 --listen 127.0.0.1:0 2>"$work/sandbox.log")
service=$!
read -r _ _ address <&3
cd "$work"
cat >studysync.toml <<'TOML'
[streams.responses]
flags = ["with_snapshots", "with_urls", "with_meta", "with_custom_metadata", "with_deleted_responses"]
TOML
# The range ends before answers that the second run could load, and the first one not yet.
for warehouse in parquet s3://studysync/read; do
    "$program" --quiet backfill --from "$(date -u -d '-110 days' +%F)" --to "$(date -u -d '-1 day' +%F)" --base-url "$address" \
        --parquet "$warehouse" --state "${warehouse##*/}.state/state.sqlite" --archive none || [ $? = 3 ]
done
"$program" schema --format json >schema.json
AWS_ALLOW_HTTP=true "$kept/readers/bin/python" "$OLDPWD/scripts/readers/bucket.py" bucket "$work" s3://studysync/read
echo "all readers of the bucket agree with the folder"
