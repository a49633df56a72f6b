"""Reads a warehouse in an Iceberg catalog, and one in PostgreSQL, with other programs: `lakes.py READERS FOLDER`.

FOLDER has `warehouse.duckdb`, which the same run filled, and `schema.json`. READERS is `prepare`, then `current`, and `spark` in the
environment of Spark; scripts/readers/lakes.sh sets the variables. Each reader must find what DuckDB finds in its file: for each column its kind, the
number of values and a sum over them, the NPS of each month, and the rows of the views in its dialect. Exits with 1 if one differs.
"""

import csv
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import duckdb

import dialects
import read

CATALOG, NAMESPACE = os.environ["STUDYSYNC_TEST_ICEBERG"], os.environ["NAMESPACE"]
KEY, SECRET, ENDPOINT = (os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"))
POSTGRES = os.environ["STUDYSYNC_TEST_POSTGRES"]
BUCKET = "lakehouse"
MIRROR = read.FOLDER / "mirror"


def engine():
    """DuckDB with the Iceberg catalog as `lake` and PostgreSQL as `pg`."""
    connection = duckdb.connect(config={"extension_directory": os.environ["STUDYSYNC_TEST_EXTENSIONS"], "autoinstall_known_extensions": "false"})
    for extension in ("httpfs", "avro", "iceberg", "postgres"):
        connection.execute(f"LOAD {extension}")
    connection.execute(f"CREATE SECRET (TYPE s3, KEY_ID '{KEY}', SECRET '{SECRET}', REGION 'us-east-1', URL_STYLE 'path', "
                       f"USE_SSL false, ENDPOINT '{ENDPOINT.removeprefix('http://')}')")
    connection.execute(f"ATTACH '{BUCKET}' AS lake (TYPE iceberg, ENDPOINT '{CATALOG}', CLIENT_ID '{KEY}', CLIENT_SECRET '{SECRET}', "
                       f"OAUTH2_SERVER_URI '{CATALOG}/v1/oauth/tokens')")
    connection.execute(f"ATTACH '{POSTGRES}' AS pg (TYPE postgres, SCHEMA '{NAMESPACE}')")
    return connection


class LocalDuckDB:
    """The DuckDB file."""

    def __init__(self):
        self.connection = duckdb.connect()
        self.connection.execute(f"ATTACH '{read.DATABASE}' AS file (READ_ONLY); USE file")

    def source(self, table):
        return f'"{table}"'

    def facts(self, table):
        return read.from_duckdb_row(table, self.connection.execute(read.duckdb_sql(table, self.source(table))).fetchone())

    def nps(self):
        return dict(self.connection.execute(f"SELECT strftime(created_at, '%Y-%m') AS month, {read.NPS} "
                                            f"FROM {self.source('responses')} WHERE {read.NPS_ROWS} GROUP BY month").fetchall())


class WithoutNul(LocalDuckDB):
    """The DuckDB file as PostgreSQL can store it, which has no texts with the character NUL."""

    def source(self, table):
        texts = [name for name, kind in read.TABLES[table].items() if read.KINDS[kind] == "text"]
        replaced = ", ".join(f'replace("{name}", chr(0), chr(65533)) AS "{name}"' for name in texts)
        return f'(SELECT * REPLACE ({replaced}) FROM "{table}")'


class DuckDB(LocalDuckDB):
    """Reads Iceberg with its extension."""

    def __init__(self):
        self.connection = engine()

    def source(self, table):
        return f"lake.{NAMESPACE}.{table}"


def with_utc(found):
    """The Arrow table with times in UTC, as the tables of the program are without a zone."""
    import pyarrow as pa
    import pyarrow.types as types
    for at, field in enumerate(found.schema):
        if types.is_timestamp(field.type) and field.type.tz is None:
            found = found.set_column(at, field.name, found.column(at).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")))
    return found


def iceberg_table(table):
    from pyiceberg.catalog import load_catalog
    catalog = load_catalog("lake", type="rest", uri=CATALOG, warehouse=BUCKET, credential=f"{KEY}:{SECRET}", **{
        "oauth2-server-uri": f"{CATALOG}/v1/oauth/tokens", "s3.endpoint": ENDPOINT, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET,
        "s3.region": "us-east-1"})
    return catalog.load_table((NAMESPACE, table))


class PyIceberg:
    def facts(self, table):
        return read.from_arrow(table, with_utc(iceberg_table(table).scan().to_arrow()))

    def nps(self):
        found = iceberg_table("responses").scan(row_filter="question_type = 'NPS' and is_skipped = false and deleted_at is null "
                                                "and _vanished_at is null", selected_fields=("created_at", "answer_number"))
        points = {}
        for row in found.to_arrow().to_pylist():
            score = 8 if row["answer_number"] is None else row["answer_number"]
            points.setdefault(row["created_at"].strftime("%Y-%m"), []).append((score >= 9) - (score <= 6))
        return {month: 100 * sum(values) / len(values) for month, values in points.items()}


class Polars:
    def rows(self, table):
        import polars as pl
        os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
        return pl.scan_iceberg(iceberg_table(table))

    def facts(self, table):
        return read.from_arrow(table, with_utc(self.rows(table).collect().to_arrow()))

    def nps(self):
        import polars as pl
        number = pl.col("answer_number")
        rows = self.rows("responses").filter(pl.col("question_type") == "NPS", ~pl.col("is_skipped"), pl.col("deleted_at").is_null(),
                                             pl.col("_vanished_at").is_null())
        points = (100 * ((number >= 9).cast(int).sum() - (number <= 6).cast(int).sum()) / pl.len())
        return dict(rows.group_by(pl.col("created_at").dt.strftime("%Y-%m")).agg(points).collect().iter_rows())


class ClickHouse:
    """Reads Iceberg in this process, by the address of the table in the bucket."""

    def query(self, sql, table):
        import chdb
        address = iceberg_table(table).location().removeprefix("s3://")
        return chdb.query(sql.replace("{table}", f"icebergS3('{ENDPOINT}/{address}/', '{KEY}', '{SECRET}')")
                          + " SETTINGS output_format_arrow_string_as_string = 1, session_timezone = 'UTC'", "ArrowTable")

    def facts(self, table):
        columns = ", ".join(f"`{name}`" for name in read.TABLES[table])
        facts = read.from_arrow(table, with_utc(self.query(f"SELECT {columns} FROM {{table}}", table)))
        # ClickHouse has no lists that are NULL, and reads them as empty.
        lists = [name for name, kind in read.TABLES[table].items() if kind == "bigint_list"]
        expected = LocalDuckDB().facts(table) if lists else {}
        return {**facts, **{name: (facts[name][0], expected[name][1], facts[name][2]) for name in lists}}

    def nps(self):
        found = self.query(f"SELECT formatDateTime(created_at, '%Y-%m') AS month, {read.NPS} AS nps FROM {{table}} WHERE {read.NPS_ROWS} "
                           "GROUP BY month", "responses")
        return {row["month"]: row["nps"] for row in found.to_pylist()}


class PostgreSQL:
    """Reads with psql, which computes the sums."""

    KINDS = {"text": "text", "character varying": "text", "bigint": "bigint", "double precision": "double", "boolean": "boolean",
             "timestamp without time zone": "timestamp", "bigint[]": "bigint_list"}

    def query(self, sql):
        path = f"SET search_path = {NAMESPACE}_views, {NAMESPACE}; SET TimeZone = '{read.ZONE}'; "
        done = subprocess.run(["psql", "-X", "-q", "--csv", "-t", "-v", "ON_ERROR_STOP=1", "-c", path + sql, POSTGRES],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return list(csv.reader(done.stdout.splitlines(keepends=True)))

    def facts(self, table):
        parts = []
        for name, kind in read.TABLES[table].items():
            column = f'"{name}"'
            total = {
                "text": f"sum(octet_length({column}))",
                "bigint": f"sum({column}::NUMERIC)",
                "double": f"sum(round({column}::NUMERIC, 6))",
                "boolean": f"count(*) FILTER (WHERE {column})",
                "timestamp": f"sum((extract(epoch FROM {column}) * 1000000)::NUMERIC(38, 0))",
                "bigint_list": f"sum(cardinality({column})) + 7 * sum((SELECT coalesce(sum(one), 0) FROM unnest({column}) AS one))",
            }[read.KINDS[kind]]
            parts += [f"max(pg_typeof({column})::TEXT)", f"count({column})", f"({total})::TEXT"]
        row = self.query(f'SELECT count(*), {", ".join(parts)} FROM "{table}"')[0]
        facts = {"rows": int(row[0])}
        for at, name in enumerate(read.TABLES[table]):
            kind, count, total = row[1 + 3 * at: 4 + 3 * at]
            facts[name] = (self.KINDS.get(kind, kind) if kind else None, int(count), read.number(total))
        return facts

    def nps(self):
        nps = read.NPS.replace("round(", "round((").replace(", 6)", ")::NUMERIC, 6)")
        return {month: float(value) for month, value in self.query(f"SELECT to_char(created_at, 'YYYY-MM') AS month, {nps} FROM responses "
                                                                   f"WHERE {read.NPS_ROWS} GROUP BY month")}

    def create_views(self):
        script = (dialects.ROOT / dialects.FILES["postgres"]).read_text()
        # Each line that names a schema.
        script = re.sub(r"\bstudysync(_views)?\b(?=[, ;])", rf"{NAMESPACE}\1", re.sub(r"^--.*\n", "", script, flags=re.M))
        subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", POSTGRES], input=script, text=True, check=True)

    def view(self, name, columns):
        """The rows of a view, with the types of Python: DuckDB parses them."""
        return engine().execute(f"SELECT {columns} FROM postgres_query('pg', 'SELECT * FROM {NAMESPACE}_views.{name}')").fetchall()


class Spark:
    """Reads a copy of the bucket, with metadata from the catalog: no package registry in use has Spark's client for S3."""

    def __init__(self):
        self.session = spark_session()

    def facts(self, table):
        frame = self.session.table(table)
        times = [name for name, kind in frame.dtypes if kind == "timestamp_ntz"]
        for name in times:
            frame = frame.withColumn(name, frame[name].cast("timestamp"))
        return read.from_spark(table, frame)

    def nps(self):
        found = self.session.sql(f"SELECT date_format(created_at, 'yyyy-MM') AS month, {read.NPS} FROM responses WHERE {read.NPS_ROWS} "
                                 "GROUP BY month")
        return {month: float(nps) for month, nps in found.collect()}

    def create_views(self):
        for statement in dialects.statements("spark"):
            self.session.sql(statement)

    def view(self, name, columns):
        return [tuple(row) for row in self.session.sql(f"SELECT {columns} FROM {name}").collect()]


def spark_session():
    """A session of Spark with the catalog `lake`, in which addresses of the bucket are paths of the copy."""
    from snowpark_connect_deps_iceberg import __file__ as package
    [runtime] = pathlib.Path(package).parent.glob("jars/iceberg-spark-runtime-3.5_2.12-*.jar")
    catalog, view = "spark.sql.catalog.lake", "spark.hadoop.fs.viewfs"
    session = read.spark_session({
        "spark.jars": str(runtime), "spark.sql.codegen.wholeStage": "false", "spark.driver.memory": "3g", "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "rest", f"{catalog}.uri": CATALOG,
        f"{catalog}.warehouse": BUCKET, f"{catalog}.credential": f"{KEY}:{SECRET}",
        f"{catalog}.oauth2-server-uri": f"{CATALOG}/v1/oauth/tokens", f"{catalog}.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        f"{view}.overload.scheme.target.s3.impl": "org.apache.hadoop.fs.LocalFileSystem",
        f"{view}.overload.scheme.target.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        f"{view}.mounttable.{BUCKET}.link./{NAMESPACE}": f"file://{MIRROR / NAMESPACE}",
    })
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.sql(f"USE lake.{NAMESPACE}")
    return session


def copy_bucket(is_upload=False):
    """Copies the objects of the namespace to the folder that Spark reads, or makes them equal to it."""
    import pyarrow.fs
    bucket, below, local = pyarrow.fs.S3FileSystem(endpoint_override=ENDPOINT), f"{BUCKET}/{NAMESPACE}/", MIRROR / NAMESPACE
    files = (file.path for file in bucket.get_file_info(pyarrow.fs.FileSelector(below, recursive=True)) if file.type == pyarrow.fs.FileType.File)
    objects = {path.removeprefix(below) for path in files}
    copies = {str(path.relative_to(local)) for path in local.rglob("*") if path.is_file() and not path.name.startswith(".")}
    if not is_upload:
        for name in objects:
            (local / name).parent.mkdir(parents=True, exist_ok=True)
            (local / name).write_bytes(bucket.open_input_file(below + name).readall())
        return
    for name in copies - objects:
        with bucket.open_output_stream(below + name) as stream:
            stream.write((local / name).read_bytes())
    # The catalog has written metadata that the folder lacks.
    for name in objects - copies:
        if not name.endswith(".json"):
            bucket.delete_file(below + name)


# --- views ------------------------------------------------------------------------------------------------------------------------

# Webhooks of the sessions of a quarter of the answers, since response rates count them.
WEBHOOKS = """
INSERT INTO {target}.webhook_events BY NAME
SELECT kind || response_group_uid AS event_key, kind, began AS received_at, began AS occurred_at, '' AS body_hash, survey_id,
    response_group_uid, 'event ' || survey_id % 3 AS triggering_event, 'WEB' AS platform, 'NPS' AS export_question_type,
    CASE WHEN survey_id % 2 = 0 THEN '5' END AS response_text, '' AS _run_id, began AS _synced_at
FROM (
    SELECT response_group_uid, max(survey_id) AS survey_id, min(created_at) - to_minutes(5) AS began FROM file.main.responses
    GROUP BY response_group_uid HAVING min(visitor_id) % 4 = 0
), (VALUES ('study_sent'), ('study_seen'), ('answer_submitted'), ('study_submitted')) AS kinds (kind)
WHERE kind = 'study_sent' OR hash(response_group_uid, kind) % 3 > 0
"""

# Options of LIKERT questions of each kind that question_scales tells apart: the service of the tests has none.
OPTIONS = """
INSERT INTO {target}.survey_question_option_history BY NAME
SELECT survey_id, question_ordinal, place AS option_ordinal, question_id,
    CASE question_id % 5 WHEN 0 THEN place::VARCHAR WHEN 1 THEN (6 - place) || ' - Wort' WHEN 2 THEN ['Poor', 'Fair', 'Good', 'Great', 'Don''t know'][place]
    WHEN 3 THEN ['1', '2', '3', 'N/A', '5'][place] ELSE ['18-24', '25-34', '35+', 'k. A.', '?'][place] END AS label,
    '{{}}' AS option_json, valid_from, valid_to, is_current, '' AS _run_id, _synced_at
FROM file.main.survey_question_history, range(1, 6) AS places (place) WHERE question_type = 'LIKERT'
"""


def add_rows():
    connection = engine()
    connection.execute(f"ATTACH '{read.DATABASE}' AS file")
    for target in ("file.main", f"lake.{NAMESPACE}", f"pg.{NAMESPACE}"):
        connection.execute(WEBHOOKS.format(target=target))
        connection.execute(OPTIONS.format(target=target))
    connection.close()


def comparable(value):
    """A value that is equal in all engines: numbers with nine digits, and times as texts."""
    if isinstance(value, (list, tuple)):
        return tuple(map(comparable, value))
    if isinstance(value, dict):
        return tuple(map(comparable, value.values()))
    if value is None or isinstance(value, (bool, str)):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return 0 if value == 0 or (isinstance(value, float) and math.isnan(value)) else float(f"{float(value):.9g}")


def compare_views(reader, dialect, source):
    """Compares the views of a dialect with those of the DuckDB file. Returns how many differ."""
    reader.create_views()
    connection = duckdb.connect(str(read.DATABASE), read_only=True)
    wrong, total = 0, 0
    for name in dialects.names(dialect):
        described = connection.execute(f"DESCRIBE {name}").fetchall()
        columns = ", ".join(column[0] for column in described)
        texts = {column[0] for column in described if column[1] == "VARCHAR"}
        shown = columns if source == "lake" else ", ".join(
            f"replace({column[0]}, chr(0), chr(65533))" if column[0] in texts else column[0] for column in described)
        expected, found = (
            sorted(map(comparable, rows), key=repr) for rows in (connection.execute(f"SELECT {shown} FROM {name}").fetchall(), reader.view(name, columns)))
        total += len(expected)
        if expected != found:
            wrong += 1
            differing = next(((one, other) for one, other in zip(expected, found) if one != other), None)
            print(f"{dialect}: {name} has {len(found)} rows and not {len(expected)}, or other values: {differing}")
    assert total > 1000, f"next to nothing was compared: {total} rows"
    print(f"{dialect}: {len(dialects.names(dialect)) - wrong} views have what DuckDB's have, {total} rows", flush=True)
    return wrong


def maintain_with_spark(session):
    """Runs the procedures of examples/iceberg/maintain_spark.sql for the table of answers. Other files in it are kept by the catalog."""
    text = re.sub(r"^--.*\n", "", (dialects.ROOT / "examples/iceberg/maintain_spark.sql").read_text(), flags=re.M)
    for statement in text.replace("'studysync.", f"'{NAMESPACE}.").replace("2026-01-01", "2100-01-01").split(";\n"):
        if statement.strip():
            found = session.sql(statement).collect()
            print(f"Spark: {statement.split('(')[0].strip()}: {found[0].asDict() if found else 'nothing'}", flush=True)


def main():
    kept = {table["name"] for table in json.loads((read.FOLDER / "schema.json").read_text()) if table["kind"] in ("base", "child")}
    read.TABLES = {table: columns for table, columns in read.TABLES.items() if table in kept}
    if read.READERS == "prepare":
        add_rows()
        copy_bucket()
        return
    if read.READERS == "maintained":
        copy_bucket(is_upload=True)
        read.TABLES = {"responses": read.TABLES["responses"]}
        read.compare({"DuckDB after the maintenance by Spark": DuckDB}, LocalDuckDB(), "Iceberg")
        return
    if read.READERS == "current":
        import chdb
        import polars
        import pyiceberg
        read.compare({f"DuckDB {duckdb.__version__}": DuckDB, f"PyIceberg {pyiceberg.__version__}": PyIceberg, f"Polars {polars.__version__}": Polars,
                      f"ClickHouse {chdb.__version__}": ClickHouse}, LocalDuckDB(), "Iceberg")
        read.compare({"psql": PostgreSQL}, WithoutNul(), "PostgreSQL")
        wrong = compare_views(PostgreSQL(), "postgres", "pg")
    else:
        read.compare({"Spark 3.5.5 (a copy of the bucket)": Spark}, LocalDuckDB(), "Iceberg")
        wrong = compare_views(Spark(), "spark", "lake")
        maintain_with_spark(spark_session())
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
