#!/usr/bin/env bash
# Fills both warehouses from the sandbox and reads them with common readers, in the versions below:
# DuckDB (Python and command line, this major version and the one before), pandas, pyarrow, Polars,
# DataFusion and Spark. Installs them into a folder that stays between runs. Spark needs a Java
# runtime, which the script installs as root on Debian.
# Usage: run.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/../.."

duckdb_previous=1.5.6
readers=(duckdb==2.0.0 duckdb-cli==1.5.6 pandas==3.1.1 pyarrow==26.0.1 polars==2.1.0 datafusion==55.0.0 pyspark==4.3.0)
notebook=(matplotlib==3.11.2 ipykernel==7.4.0 nbclient==0.11.0 -r examples/requirements.txt)

program=${1:-${CARGO_TARGET_DIR:-target}/release/studysync}
kept=${STUDYSYNC_READERS:-$HOME/.cache/studysync-readers}
work=$(mktemp -d)
trap 'kill "${service:-}" 2>/dev/null || true; rm -rf "$work"' EXIT

. scripts/python-environment.sh
installed current "${readers[@]}" "${notebook[@]}"
installed previous duckdb==$duckdb_previous duckdb-cli==$duckdb_previous
java_installed

# The folder in which scripts/cargo.sh puts the library of the program.
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/libduckdb}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export STUDYSYNC_API_KEY=readers
"$program" sandbox --api-key "$STUDYSYNC_API_KEY" --responses 20000 --days 100 --hostile-share 0.02 --listen 127.0.0.1:0 >"$work/sandbox.log" 2>&1 &
service=$!
for _ in $(seq 600); do
    address=$(grep -o 'http://[0-9.:]*' "$work/sandbox.log" | head -1) && break
    sleep 0.1
done
[ -n "$address" ] || { cat "$work/sandbox.log" >&2; exit 1; }
cat >"$work/studysync.toml" <<'TOML'
[streams.responses]
flags = ["with_snapshots", "with_urls", "with_meta", "with_custom_metadata", "with_deleted_responses"]
[warehouse]
duckdb = "warehouse.duckdb"
parquet = "parquet"
publish = "analytics.duckdb"
TOML
"$program" --config "$work/studysync.toml" --quiet backfill --from "$(date -u -d '-110 days' +%F)" --base-url "$address" || [ $? = 3 ]
"$program" schema --format json >"$work/schema.json"

"$kept/current/bin/python" scripts/readers/read.py current "$work"
"$kept/previous/bin/python" scripts/readers/read.py previous "$work"
# The files that users copy from examples/: the notebook, the queries over Parquet only, and the dbt
# project with its documentation.
"$kept/current/bin/python" scripts/readers/notebook.py "$program" "$work"
sed "s#'warehouse-parquet'#'$work/parquet'#" examples/parquet_views.sql | cat - examples/questions.sql |
    "$kept/current/bin/duckdb" -bail -batch >"$work/questions.txt"
export DBT_WORK=$kept/dbt
examples/dbt/try.sh "$work/warehouse.duckdb"
scripts/readers/bi.sh "$work/analytics.duckdb"
"$DBT_WORK/venv/bin/python" scripts/readers/dbt_sources.py check "$work/schema.json" "$DBT_WORK/target"
echo "all readers agree"
