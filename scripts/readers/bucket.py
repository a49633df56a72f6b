"""Reads a warehouse in a bucket with other programs: `bucket.py bucket FOLDER ADDRESS`.

ADDRESS is the warehouse in a bucket of the S3 server that AWS_ENDPOINT_URL names. FOLDER has `parquet`, a local warehouse which
another run filled from the same service, and `schema.json`. Each reader must find in the bucket what DuckDB finds in the folder: for
each column of a record its kind, the number of values and a sum over them, and the NPS of each month. Exits with 1 if one differs.
"""

import json
import os
import pathlib
import sys

import duckdb
import duckdb_extension_httpfs
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs

import read

BUCKET = sys.argv[3].removeprefix("s3://")
S3 = pyarrow.fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"])
NPS_ROWS, NPS = read.NPS_ROWS, read.NPS


def compared_columns():
    """The columns of records. Two runs differ in the columns and tables about the run."""
    for table in json.loads((read.FOLDER / "schema.json").read_text()):
        if table["kind"] in ("base", "child") and read.files(table["name"]):
            kept = (column for column in table["column"] if column["origin"] != "load" and column["name"] != "_row_hash")
            yield table["name"], {column["name"]: column["type"] for column in kept}


def arrow_source(table):
    return f"{BUCKET}/{table}" if read.is_partitioned(table) else f"{BUCKET}/{table}/data.parquet"


class DuckDB:
    """Reads the bucket with its extension `httpfs`."""

    def __init__(self):
        [extension] = pathlib.Path(duckdb_extension_httpfs.__file__).parent.rglob("httpfs.duckdb_extension")
        key, secret, endpoint = (os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"))
        self.connection = duckdb.connect()
        self.connection.execute(f"LOAD '{extension}'")
        self.connection.execute(f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1', URL_STYLE 'path', "
                                f"USE_SSL false, ENDPOINT '{endpoint.removeprefix('http://')}')")
        self.below = f"s3://{BUCKET}"

    def source(self, table):
        return f"read_parquet('{self.below}/{read.glob(table)}', union_by_name = true)"

    def facts(self, table):
        return read.from_duckdb_row(table, self.connection.execute(read.duckdb_sql(table, self.source(table))).fetchone())

    def nps(self):
        return dict(self.connection.execute(f"SELECT strftime(created_at AT TIME ZONE 'UTC', '%Y-%m') AS month, {NPS} "
                                            f"FROM {self.source('responses')} WHERE {NPS_ROWS} GROUP BY month").fetchall())


class LocalDuckDB(DuckDB):
    def __init__(self):
        self.connection = duckdb.connect()
        self.below = read.PARQUET


class Pandas:
    def rows(self, table):
        return pd.read_parquet(arrow_source(table), filesystem=S3, dtype_backend="pyarrow")

    def facts(self, table):
        return read.from_arrow(table, pa.Table.from_pandas(self.rows(table), preserve_index=False))

    def nps(self):
        rows = self.rows("responses").query("question_type == 'NPS' and not is_skipped and deleted_at.isna() and _vanished_at.isna()")
        number = rows.answer_number.astype("float64")
        points = (number >= 9).astype(int) - (number <= 6).astype(int)
        return (100 * points.groupby(rows.created_at.dt.strftime("%Y-%m")).mean()).round(6).to_dict()


class PyArrow(Pandas):
    def rows(self, table):
        found = pa.dataset.dataset(arrow_source(table), filesystem=S3, format="parquet", partitioning="hive").to_table()
        return found.to_pandas(types_mapper=pd.ArrowDtype)


class Polars:
    """Reads the bucket with its own client, which takes endpoint and key from the variables."""

    def rows(self, table):
        return pl.scan_parquet(f"s3://{BUCKET}/{read.glob(table)}", missing_columns="insert")

    def facts(self, table):
        return read.from_arrow(table, self.rows(table).collect().to_arrow())

    def nps(self):
        number = pl.col("answer_number")
        rows = self.rows("responses").filter(pl.col("question_type") == "NPS", ~pl.col("is_skipped"), pl.col("deleted_at").is_null(),
                                             pl.col("_vanished_at").is_null())
        points = (100 * ((number >= 9).cast(int).sum() - (number <= 6).cast(int).sum()) / pl.len()).round(6)
        return dict(rows.group_by(pl.col("created_at").dt.strftime("%Y-%m")).agg(points).collect().iter_rows())


class Spark:
    """Reads a copy of the bucket: no package registry in use has Spark's client for S3."""

    def __init__(self):
        self.mirror = read.FOLDER / "mirror"
        pyarrow.fs.copy_files(BUCKET, str(self.mirror), source_filesystem=S3)

    def rows(self, table):
        return read.spark_session().read.option("mergeSchema", "true").parquet(f"{self.mirror}/{read.glob(table)}")

    def facts(self, table):
        return read.from_spark(table, self.rows(table))

    def nps(self):
        read.spark_session().conf.set("spark.sql.session.timeZone", "UTC")
        found = self.rows("responses").where(NPS_ROWS).selectExpr("date_format(created_at, 'yyyy-MM') AS month", "answer_number")
        found.createOrReplaceTempView("nps")
        return {month: float(nps) for month, nps in read.spark_session().sql(f"SELECT month, {NPS} FROM nps GROUP BY month").collect()}


read.TABLES = dict(compared_columns())
read.compare({f"DuckDB {duckdb.__version__}": DuckDB, "pandas": Pandas, "pyarrow": PyArrow, "Polars": Polars,
              "Spark (a copy of the bucket)": Spark}, LocalDuckDB(), "the bucket")
