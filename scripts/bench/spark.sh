#!/usr/bin/env bash
# Loads answers into an Iceberg catalog, and runs examples/iceberg/nps_spark.py over them with Spark on all cores. Its figures must be those of the
# program's views. Needs Java, and about 2 GB of disk for each million answers.
# Usage: scripts/lakes.sh run scripts/bench/spark.sh PROGRAM [ANSWERS]     10,000,000 answers by default
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "$1")
rows=${2:-10000000}

kept=${STUDYSYNC_BUCKET:-$HOME/.cache/studysync-bucket}
. scripts/python-environment.sh
# The versions for which the client of Iceberg is on PyPI.
installed lake-spark pyspark==3.5.5 snowpark-connect-deps-iceberg==1.0.2 duckdb==1.5.5
bench=${STUDYSYNC_BENCH:-$HOME/.cache/studysync-bench}
kept=$bench installed lakes duckdb==1.5.5 'pyiceberg[pyarrow,pyiceberg-core]==0.12.0'
java_installed

work=$(mktemp -d)
trap 'kill "${service:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
export STUDYSYNC_API_KEY=spark STUDYSYNC_WAREHOUSE_EXTENSION_DIRECTORY=$STUDYSYNC_TEST_EXTENSIONS
export STUDYSYNC_ICEBERG_CREDENTIAL=$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY
days=$((rows / 2740))
exec 3< <(exec "$program" sandbox --api-key "$STUDYSYNC_API_KEY" --responses "$rows" --days "$days" --data rough --listen 127.0.0.1:0 2>"$work/sandbox.log")
service=$!
read -r _ _ address <&3
cat >"$work/studysync.toml" <<TOML
[service]
base_url = "$address"
[streams.responses]
flags = ["with_meta"]
[streams.surveys]
enabled = false
[streams.themes]
enabled = false
[warehouse]
iceberg = "$STUDYSYNC_TEST_ICEBERG?warehouse=lakehouse&namespace=spark"
memory_limit_mb = 1024
[archive]
path = "none"
TOML
studysync() { "$program" --config "$work/studysync.toml" --quiet "$@" || { local code=$?; [ $code = 3 ] || return $code; }; }
SECONDS=0
studysync backfill --from "$(date -u -d "-$((days + 1)) days" +%F)" --to "$(date -u +%F)"
echo "loaded in $SECONDS s"
kill $service
studysync query --format csv "SELECT date_trunc('month', created_at)::DATE AS month, meta_language AS segment, count(*) AS responses,
    count(*) FILTER (answer_number >= 9) AS promoters, count(*) FILTER (answer_number <= 6) AS detractors
    FROM current_responses WHERE question_type = 'NPS' AND answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) GROUP BY ALL" >"$work/segments.csv"
studysync query --format csv "SELECT month, responses, nps FROM nps_by_month" >"$work/months.csv"

# No package registry in use has Spark's client for S3, so Spark reads a copy of the bucket.
"$bench/lakes/bin/python" -c 'import os, pathlib, sys
from pyarrow import fs
bucket, below = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"]), "lakehouse/spark"
for found in bucket.get_file_info(fs.FileSelector(below + "/responses", recursive=True)):
    copy = pathlib.Path(sys.argv[1] + found.path.removeprefix(below))
    if found.type == fs.FileType.File:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(bucket.open_input_file(found.path).readall())' "$work/mirror"
du -sh "$work/mirror"
runtime=$(ls "$kept"/lake-spark/lib/python3*/site-packages/snowpark_connect_deps_iceberg/jars/iceberg-spark-runtime-3.5_2.12-*.jar)
view=spark.hadoop.fs.viewfs
PATH=$kept/lake-spark/bin:$PATH spark-submit --master 'local[*]' --driver-memory 4g --jars "$runtime" --conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1 \
    --conf spark.driver.host=127.0.0.1 --conf spark.log.level=ERROR --conf spark.sql.catalog.lake.io-impl=org.apache.iceberg.hadoop.HadoopFileIO \
    --conf spark.hadoop.fs.s3.impl=org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme \
    --conf "$view.overload.scheme.target.s3.impl=org.apache.hadoop.fs.LocalFileSystem" \
    --conf "$view.overload.scheme.target.file.impl=org.apache.hadoop.fs.RawLocalFileSystem" \
    --conf "$view.mounttable.lakehouse.link./spark=file://$work/mirror" \
    scripts/bench/spark.py "$work/segments.csv" "$work/months.csv" --catalog "$STUDYSYNC_TEST_ICEBERG" --warehouse lakehouse --namespace spark --segment meta_language
