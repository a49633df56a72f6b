#!/usr/bin/env bash
# Runs the scheduler examples of examples/ with the real program and the sandbox, and provokes each
# exit code: cron (the real daemon, if root can install it), systemd (units verified, commands run),
# Kubernetes (schemas, commands run), Slurm (commands run), Airflow and Dagster (both real, in the versions below).
# Installs them into a folder that stays between runs. Usage: run.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/../.."

program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/studysync}")
kept=${STUDYSYNC_SCHEDULERS:-$HOME/.cache/studysync-schedulers}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

. scripts/python-environment.sh

check() { # NAME ENVIRONMENT: prints the output of a failed check, or else its last lines
    local python=$kept/$2/bin/python
    if [ "$2" = - ]; then python=python3; fi
    if "$python" "scripts/schedulers/check_$1.py" "$program" >"$work/$1.log" 2>&1; then
        grep -E "^($1|SKIPPED|logrotate): " "$work/$1.log"
    else
        tail -n 100 "$work/$1.log" >&2
        return 1
    fi
}

# The folder in which scripts/cargo.sh puts the library of the program.
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/libduckdb}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONDONTWRITEBYTECODE=1

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v cron && command -v logrotate; } >/dev/null; then
    install() { timeout 120 apt-get install -y -qq --no-install-recommends cron logrotate >/dev/null 2>&1; }
    install || { timeout 120 apt-get update -qq >/dev/null 2>&1 && install; } || echo "cron cannot be installed from here" >&2
fi
# cron waits for the next full minute; the others run meanwhile.
check cron - &
cron=$!
installed kubernetes kubernetes-validate==1.37.0
installed dagster dagster==1.13.29
installed airflow apache-airflow==3.3.2
check systemd -
check kubernetes kubernetes
check slurm -
check dagster dagster
check airflow airflow
wait "$cron"
echo "all schedulers take the exit codes as they are meant"
