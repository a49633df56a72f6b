# shellcheck shell=bash disable=SC2034
# Sourced by the scripts of `make dist`: names and times that the packages share. Run from the
# repository's root.

version=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
system=$(uname -s | tr '[:upper:]' '[:lower:]')
machine=$(uname -m)
case $system in
    darwin) library=libduckdb.dylib ;;
    *) library=libduckdb.so ;;
esac
target=${CARGO_TARGET_DIR:-$PWD/target}
# Each timestamp in a package is that of the last commit, so that the same build writes identical
# files.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}"
export SOURCE_DATE_EPOCH
export LC_ALL=C TZ=UTC
umask 022
