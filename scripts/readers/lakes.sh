#!/usr/bin/env bash
# Fills a DuckDB file, an Iceberg catalog and PostgreSQL in one run, and reads them with other programs: DuckDB, PyIceberg, Polars,
# ClickHouse, Spark, psql and dbt. Then it removes a person, and what `erase` leaves in Iceberg with examples/iceberg/maintain.py.
# What cannot be installed is skipped, with a message. Run by scripts/lakes.sh, which starts the servers and sets the variables.
# Usage: lakes.sh PROGRAM
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "$1")

kept=${STUDYSYNC_BUCKET:-$HOME/.cache/studysync-bucket}
. scripts/python-environment.sh
readers=(duckdb==1.5.5 'pyiceberg[pyarrow,pyiceberg-core]==0.12.0' fastavro==1.13.1 polars==2.1.0 chdb==4.4.0 sqlglot==30.30.0)
# The versions for which the client of Iceberg is on PyPI, and a view of DuckDB for the comparison.
spark=(pyspark==3.5.5 snowpark-connect-deps-iceberg==1.0.2 duckdb==1.5.5)
skipped() { echo "SKIPPED: $1 cannot be installed, so it does not read the catalogs"; }
has_readers=true has_spark=true
installed lake-readers "${readers[@]}" || has_readers=false
{ installed lake-spark "${spark[@]}" && java_installed; } || has_spark=false
if [ $has_readers = false ]; then
    skipped "DuckDB, PyIceberg, Polars or ClickHouse"
    exit 0
fi
python=$kept/lake-readers/bin/python

work=$(mktemp -d)
trap 'kill "${service:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
export STUDYSYNC_API_KEY=readers NAMESPACE=readers_$$
export STUDYSYNC_ICEBERG_CREDENTIAL=$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY STUDYSYNC_WAREHOUSE_EXTENSION_DIRECTORY=$STUDYSYNC_TEST_EXTENSIONS
iceberg="$STUDYSYNC_TEST_ICEBERG?warehouse=lakehouse&namespace=$NAMESPACE"
exec 3< <(exec "$program" sandbox --api-key "$STUDYSYNC_API_KEY" --responses 12000 --days 100 --hostile-share 0.02 --listen 127.0.0.1:0 2>"$work/sandbox.log")
service=$!
read -r _ _ address <&3
cat >"$work/studysync.toml" <<TOML
[service]
base_url = "$address"
[streams.responses]
flags = ["with_snapshots", "with_urls", "with_meta", "with_custom_metadata", "with_deleted_responses"]
[warehouse]
memory_limit_mb = 1024
duckdb = "warehouse.duckdb"
iceberg = "$iceberg"
postgres = "$STUDYSYNC_TEST_POSTGRES?schema=$NAMESPACE"
TOML
studysync() { "$program" --config "$work/studysync.toml" --quiet "$@" || { local code=$?; [ $code = 3 ] || return $code; }; }
studysync backfill --from "$(date -u -d '-110 days' +%F)" --archive none
curl --silent --fail --output /dev/null --data '{"advance_ms":86400000}' "$address/_sandbox/clock"
curl --silent --fail --output /dev/null --data '{"seed":7,"new_answers":300,"edits":200,"soft_deletes":50,"late":8,"within_ms":1728000000}' "$address/_sandbox/changes"
studysync sync --archive none
"$program" schema --format json >"$work/schema.json"

$python scripts/readers/dialects.py check
$python scripts/readers/lakes.py prepare "$work"
$python scripts/readers/lakes.py current "$work"
if [ $has_spark = true ]; then
    "$kept/lake-spark/bin/python" scripts/readers/lakes.py spark "$work"
    # Spark has maintained a copy of the tables.
    $python scripts/readers/lakes.py maintained "$work"
else
    skipped Spark
fi
# The dbt project. PostgreSQL lacks views that one of its models and some tests of sources read.
if installed lake-dbt "dbt-core>=1.9,<1.12" "dbt-duckdb>=1.9,<1.12" "dbt-postgres>=1.9,<1.12" duckdb==1.5.5; then
    export STUDYSYNC_ICEBERG_CATALOG=$STUDYSYNC_TEST_ICEBERG STUDYSYNC_ICEBERG_WAREHOUSE=lakehouse STUDYSYNC_ICEBERG_NAMESPACE=$NAMESPACE
    export DBT_PROFILES_DIR=. DBT_SEND_ANONYMOUS_USAGE_STATS=false DBT_DUCKDB=$work/dbt.duckdb STUDYSYNC_DBT_SCHEMA=${NAMESPACE}_dbt
    export STUDYSYNC_DBT_VIEWS=${NAMESPACE}_views
    dbt() { (cd examples/dbt && env -u LD_LIBRARY_PATH "$kept/lake-dbt/bin/dbt" --quiet "$@" --target-path "$work/dbt" --log-path "$work/dbt"); }
    dbt build --target iceberg
    postgres=${STUDYSYNC_TEST_POSTGRES#postgres://*@}
    PGHOST=${postgres%%:*} PGPORT=$(cut -d: -f2 <<<"${postgres%%/*}") PGUSER=postgres PGDATABASE=${postgres##*/} \
        dbt build --target postgres --select nps_by_language visitor_months
    echo "dbt: the project runs on Iceberg and on PostgreSQL"
else
    skipped dbt
fi
$python scripts/readers/lakes_erased.py "$program" "$work" "$iceberg"
echo "all readers of the catalogs agree with the DuckDB file"
