#!/usr/bin/env bash
# Installs what tests use beyond Rust, on Debian and as root: libfaketime, which moves the machine's clock. A test that misses it
# says SKIPPED; nothing else depends on it.
set -euo pipefail
library=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1
[ -e "$library" ] && exit 0
install() { timeout 120 apt-get install -y -qq libfaketime >/dev/null 2>&1; }
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && { install || { timeout 120 apt-get update -qq >/dev/null 2>&1 && install; }; }; then
    exit 0
fi
echo "libfaketime is not there: the test that moves this machine's clock will be skipped" >&2
