#!/usr/bin/env bash
# Runs what examples/ has for schedulers with the real program and the sandbox, and provokes each exit code: cron (the real daemon,
# where root can install it), systemd (units verified, commands run), Kubernetes (schemas, commands run), Airflow and Dagster (both
# for real, in the versions below). Installs them into a folder that it keeps. Usage: run.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/../.."

program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/studysync}")
kept=${STUDYSYNC_SCHEDULERS:-$HOME/.cache/studysync-schedulers}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

. scripts/python-environment.sh

check() { # NAME ENVIRONMENT: what it says is shown where it fails; else its last lines
    local python=$kept/$2/bin/python
    if [ "$2" = - ]; then python=python3; fi
    if "$python" "scripts/schedulers/check_$1.py" "$program" >"$work/$1.log" 2>&1; then
        grep -E "^($1|SKIPPED|logrotate): " "$work/$1.log"
    else
        tail -n 100 "$work/$1.log" >&2
        return 1
    fi
}

# Where scripts/cargo.sh put the library that the program is linked with.
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/libduckdb}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONDONTWRITEBYTECODE=1

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v cron && command -v logrotate; } >/dev/null; then
    install() { timeout 120 apt-get install -y -qq --no-install-recommends cron logrotate >/dev/null 2>&1; }
    install || { timeout 120 apt-get update -qq >/dev/null 2>&1 && install; } || echo "cron cannot be installed from here" >&2
fi
# cron waits for the next full minute: meanwhile the others run.
check cron - &
cron=$!
installed kubernetes kubernetes-validate==1.37.0
installed dagster dagster==1.13.29
installed airflow apache-airflow==3.3.2
check systemd -
check kubernetes kubernetes
check dagster dagster
check airflow airflow
wait "$cron"
echo "all schedulers take the exit codes as they are meant"
