#!/usr/bin/env bash
# Starts the folder of an image as an engine does with --read-only, and checks syncs, health, and
# the end by SIGTERM as process 1. Runs in a separate network and mount namespace (container.sh).
#
# Usage: container_run.sh IMAGE DESCRIPTION
set -euo pipefail
image=$1
declare -a entrypoint command check variables
user='' group='' workdir='' volume=''
# shellcheck disable=SC1090
. "$2"
ip link set lo up

started=()
# A container ends with the process that started it.
end() { [ "${#started[@]}" = 0 ] || kill -KILL "${started[@]}" 2>/dev/null || true; }
trap end EXIT
fail() { echo "failed: $*"; exit 1; }

# The root is read-only, except for a volume and a /tmp in memory.
data=$(mktemp -d)
chown "$user:$group" "$data"
mount --bind "$image" "$image"
mount -o remount,bind,ro "$image"
mount --bind "$data" "$image$volume"
mount -t tmpfs none "$image/tmp"
mount --rbind /dev "$image/dev"
if touch "$image/usr/x" 2>/dev/null; then fail "the root can be written to"; fi

# Starts a container: process 1 of its own process namespace, as the user of the image. `started` is
# the process that an engine would signal.
in_image() { exec unshare --pid --fork --kill-child --mount-proc="$image/proc" \
    chroot --userspec="$user:$group" --groups= "$image" \
    env -i "${variables[@]}" STUDYSYNC_API_KEY=sandbox-key STUDYSYNC_WEBHOOK_SECRET=a-secret sh -c "cd $workdir && exec \"\$@\"" sh "$@"; }
run() { (in_image "${entrypoint[@]}" "$@"); }
# Returns the first process of the container, as a process of this machine.
first_of() {
    for _ in $(seq 100); do
        found=$(pgrep -P "$1" -x studysync || true)
        if [ -n "$found" ]; then echo "$found"; return; fi
        sleep 0.1
    done
    fail "the container did not start"
}
ends_with() {
    local code=0
    wait "$1" || code=$?
    [ "$code" = "$2" ] || fail "$3 ended with $code instead of $2"
}

in_image "${entrypoint[@]}" sandbox --listen 127.0.0.1:8787 --responses 20000 --days 60 >/dev/null 2>&1 &
started+=("$!")
for _ in $(seq 100); do
    if (exec 3<>/dev/tcp/127.0.0.1/8787) 2>/dev/null; then break; fi
    sleep 0.1
done

echo "- a first sync on a root that cannot be written to"
run init >/dev/null
sed -i 's|^base_url = .*|base_url = "http://127.0.0.1:8787"|; s|^# parquet = .*|parquet = "parquet"|' "$data/studysync.toml"
run --quiet sync
rows=$(run query --format csv "SELECT count(*) > 1000 AS many FROM responses" | tail -1)
[ "$rows" = true ] || fail "there are too few answers"
[ -z "$(find "$data" ! -user "$user")" ] || fail "files of another user: $(find "$data" ! -user "$user")"

echo "- SIGTERM to a sync that is process 1: it ends in order, and the next one goes on"
wait_ms='{"latency":{"ms":300}}'
printf 'POST /_sandbox/faults HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' \
    "${#wait_ms}" "$wait_ms" >"$data/request"
exec 3<>/dev/tcp/127.0.0.1/8787
cat "$data/request" >&3
head -1 <&3 | grep -q 200 || fail "the sandbox took no faults"
exec 3>&-
in_image "${entrypoint[@]}" --quiet backfill --from "$(date -u -d '-60 days' +%F)" 2>&1 &
container=$!
started+=("$container")
first=$(first_of "$container")
grep -q "^NSpid:.*[[:space:]]1$" "/proc/$first/status" || fail "it is not process 1"
grep -q "^Uid:[[:space:]]${user}[[:space:]]" "/proc/$first/status" || fail "it runs as another user"
sleep 2
kill -TERM "$first"
ends_with "$container" 130 "the backfill"

echo "- serve: CMD, HEALTHCHECK and SIGTERM"
in_image "${entrypoint[@]}" "${command[@]}" >/dev/null 2>&1 &
container=$!
started+=("$container")
healthy=no
for _ in $(seq 100); do
    if (in_image "${check[@]}") >/dev/null 2>&1; then healthy=yes; break; fi
    sleep 0.2
done
[ "$healthy" = yes ] || fail "it does not become healthy"
kill -TERM "$(first_of "$container")"
ends_with "$container" 0 serve
if (in_image "${check[@]}") >/dev/null 2>&1; then fail "it is healthy although nothing runs"; fi
echo "the container works"
