#!/usr/bin/env bash
# Installs what tests use beyond Rust, on Debian and as root: libfaketime, which moves the machine's clock, and strace, which makes
# system calls fail. A test that misses one says SKIPPED; nothing else depends on them.
set -euo pipefail
library=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1
[ -e "$library" ] && command -v strace >/dev/null && exit 0
install() { timeout 120 apt-get install -y -qq libfaketime strace >/dev/null 2>&1; }
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && { install || { timeout 120 apt-get update -qq >/dev/null 2>&1 && install; }; }; then
    exit 0
fi
echo "libfaketime or strace is not there: the tests that move this machine's clock or make locks fail will be skipped" >&2
