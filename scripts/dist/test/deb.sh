#!/usr/bin/env bash
# Installs, uses, upgrades, removes and purges the package in a separate Debian, in which systemd
# runs. Needs root, debootstrap and systemd-nspawn. lintian checks the package if it is installed.
#
# Usage: STUDYSYNC_DIST_ROOT=yes deb.sh PACKAGE
set -euo pipefail
package=$(realpath "$1")
tests=$(realpath "$(dirname "$0")")

if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning "$package"
else
    echo "SKIPPED: lintian is not there"
fi
for tool in debootstrap systemd-nspawn; do
    if [ -z "${STUDYSYNC_DIST_ROOT:-}" ] || ! command -v "$tool" >/dev/null; then
        echo "SKIPPED: the package is not installed: it takes root, debootstrap and systemd-nspawn"
        exit 0
    fi
done

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
machine=$work/machine
"$tests/base.sh" "$machine" systemd systemd-sysv dbus adduser ca-certificates libstdc++6 procps

cp "$package" "$machine/root/studysync.deb"
cp "$tests/deb_inside.sh" "$machine/root/inside.sh"
cat >"$machine/etc/systemd/system/inside.service" <<'END'
[Unit]
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/bash /root/inside.sh
ExecStopPost=/bin/sh -c 'systemctl poweroff --no-block'
StandardOutput=file:/root/told
StandardError=inherit
TimeoutStartSec=300

[Install]
WantedBy=default.target
END
ln -s ../inside.service "$machine/etc/systemd/system/multi-user.target.wants/inside.service"
# Prints the journal, to help find the cause of a failure.
timeout 400 systemd-nspawn --quiet --directory "$machine" --machine "studysync-$$" --boot --register=no --keep-unit \
    --private-network --console=pipe >"$work/boot" 2>&1 </dev/null || true
if ! grep -q '^the package works$' "$machine/root/told" 2>/dev/null; then
    tail -40 "$work/boot" >&2
    cat "$machine/root/told" "$machine/root/journal" >&2 2>/dev/null || true
    exit 1
fi
cat "$machine/root/told"
