#!/usr/bin/env bash
# Prepares a new container: the compiler, DuckDB's library, the tools of the tests, and a first build of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

# The image may have an older Rust than `rust-version` in Cargo.toml asks for.
rustup toolchain install stable --profile minimal --component rustfmt --component clippy
rustup default stable

# Without the library cargo compiles DuckDB; without the tools some tests say SKIPPED. Neither ends the preparation.
scripts/fetch-libduckdb.sh target/libduckdb || true
sudo apt-get update -qq && sudo apt-get install -y -qq libfaketime strace || true
scripts/test-tools.sh || true

PROFILE=quick scripts/cargo.sh test --no-run
