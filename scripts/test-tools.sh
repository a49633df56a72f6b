#!/usr/bin/env bash
# Installs the tools that tests need besides Rust, on Debian and as root: libfaketime, which changes
# the machine's clock, and strace, which makes system calls fail. It also installs into the target
# folder: DuckDB's extension fts, mdBook, and Python packages that read metrics and traces. A test
# without its tool prints SKIPPED; nothing else depends on the tools.
set -euo pipefail
cd "$(dirname "$0")/.."

# The newest version whose extension can be downloaded; the package contains the file that DuckDB
# signed. Tests that load it run the program with the library of that version, which is in the same
# folder.
version=1.5.5
extensions=${CARGO_TARGET_DIR:-$PWD/target}/duckdb-extensions
folder=$extensions/v$version/linux_amd64
extension=$folder/fts.duckdb_extension
sha256=cd7e87ea9623b8c6985a4ea05910d8a4acf6e50d474869d12f55cb4f200ebf70

has_extension() {
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]
}

install_extension() {
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] && command -v python3 >/dev/null || return 1
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    timeout 120 python3 -m pip install --quiet --no-deps --only-binary :all: --target "$work" "duckdb-extension-fts==$version" \
        >/dev/null 2>&1 || return 1
    found=$work/duckdb_extension_fts/extensions/v$version/fts.duckdb_extension
    has_extension "$found" || return 1
    mkdir -p "$folder"
    mv "$found" "$extension"
}

if ! { has_extension "$extension" || install_extension; } || ! scripts/fetch-libduckdb.sh "$folder" tests; then
    echo "DuckDB's extension fts $version cannot be had from here: the tests of the index of words will be skipped" >&2
fi

scripts/mdbook.sh >/dev/null || true

# Parsers of metrics and traces: the Prometheus client, and the classes of OpenTelemetry's protocol.
python=${CARGO_TARGET_DIR:-$PWD/target}/test-python
pinned="prometheus-client==0.26.0 opentelemetry-proto==1.45.2"
if [ "$(cat "$python/pinned" 2>/dev/null)" != "$pinned" ]; then
    rm -rf "$python"
    # shellcheck disable=SC2086
    if command -v python3 >/dev/null && timeout 120 python3 -m pip install --quiet --only-binary :all: --target "$python" $pinned >/dev/null 2>&1
    then echo "$pinned" >"$python/pinned"
    else echo "prometheus-client and opentelemetry-proto cannot be had from here: the tests that read metrics by them will be skipped" >&2
    fi
fi

library=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1
[ -e "$library" ] && command -v strace >/dev/null && exit 0
install() { timeout 120 apt-get install -y -qq libfaketime strace >/dev/null 2>&1; }
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && { install || { timeout 120 apt-get update -qq >/dev/null 2>&1 && install; }; }; then
    exit 0
fi
echo "libfaketime or strace is not there: the tests that move this machine's clock or make locks fail will be skipped" >&2
