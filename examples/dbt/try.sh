#!/bin/sh
# Runs the dbt project against a warehouse, and makes its documentation: try.sh WAREHOUSE.duckdb. Installs dbt-duckdb into a folder of its
# own, once.
set -eu
warehouse=$(realpath "$1")
cd "$(dirname "$0")"
work=${DBT_WORK:-${TMPDIR:-/tmp}/studysync-dbt}
[ -x "$work/venv/bin/dbt" ] || { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet "dbt-core>=1.9,<1.12" "dbt-duckdb>=1.9,<1.12"; }
export STUDYSYNC_DUCKDB="$warehouse" DBT_DUCKDB="$work/analytics.duckdb" DBT_PROFILES_DIR=. DBT_SEND_ANONYMOUS_USAGE_STATS=false
set -- --target-path "$work/target" --log-path "$work/logs"
"$work/venv/bin/dbt" build "$@"
"$work/venv/bin/dbt" source freshness "$@"
"$work/venv/bin/dbt" docs generate "$@"
