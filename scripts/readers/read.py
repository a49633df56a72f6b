"""Reads a warehouse with the readers that people have, and holds what each finds against the first: `read.py READERS FOLDER`.

READERS is `current` or `previous`; FOLDER holds `warehouse.duckdb`, `parquet` and `schema.json`, the dictionary of the program
that wrote them. Of each column every reader tells its kind, how many values it has, and a sum over them. Exits with 1 if any two
differ.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys

import duckdb

READERS, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
DATABASE, PARQUET = FOLDER / "warehouse.duckdb", FOLDER / "parquet"
TABLES = {
    table["name"]: {column["name"]: column["type"] for column in table["column"]}
    for table in json.loads((FOLDER / "schema.json").read_text())
    if table["kind"] not in ("view", "macro")
}
# A zone far from UTC, in which a day begins at another time. No result may depend on the zone.
ZONE = "America/St_Johns"
# The type of a contract's column in each reader. JSON is also text.
KINDS = {
    "text": "text", "json": "text", "bigint": "bigint", "double": "double", "boolean": "boolean",
    "timestamp": "timestamp", "bigint_list": "bigint_list",
}

# The NPS of each month, in the SQL of all engines.
NPS_ROWS = "question_type = 'NPS' AND NOT is_skipped AND deleted_at IS NULL AND _vanished_at IS NULL"
NPS = "round(100.0 * (sum(CASE WHEN answer_number >= 9 THEN 1 ELSE 0 END) - sum(CASE WHEN answer_number <= 6 THEN 1 ELSE 0 END)) / count(*), 6)"


def files(table):
    """The files of a table; none if nothing was ever written to it."""
    return sorted(str(path) for path in (PARQUET / table).rglob("data.parquet"))


def is_partitioned(table):
    return not (PARQUET / table / "data.parquet").exists()


def glob(table):
    """The files of a table below the warehouse, as a pattern."""
    return f"{table}/*/data.parquet" if is_partitioned(table) else f"{table}/data.parquet"


# --- DuckDB: computes the sums itself -------------------------------------------------------------

def sum_of(kind, name):
    column = f'"{name}"'
    return {
        "text": f"sum(strlen({column}))",
        "bigint": f"sum({column}::HUGEINT)",
        "double": f"sum(round({column}, 6))",
        "boolean": f"count(*) FILTER ({column})",
        "timestamp": f"sum(epoch_us({column})::HUGEINT)",
        "bigint_list": f"sum(len({column})) + 7 * sum(list_sum({column}))",
    }[kind]


def duckdb_sql(table, source):
    """One row: for each column its type, the number of values and their sum, as text."""
    parts = []
    for name, kind in TABLES[table].items():
        total = sum_of(KINDS[kind], name)
        parts += [f'first(typeof("{name}"))', f'count("{name}")::VARCHAR', f"({total})::VARCHAR"]
    return f"SELECT count(*)::VARCHAR, {', '.join(parts)} FROM {source}"


DUCKDB_KINDS = {
    "VARCHAR": "text", "BIGINT": "bigint", "DOUBLE": "double", "BOOLEAN": "boolean", "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamp", "BIGINT[]": "bigint_list",
}


def from_duckdb_row(table, row):
    facts = {"rows": int(row[0])}
    for at, name in enumerate(TABLES[table]):
        kind, count, total = row[1 + 3 * at: 4 + 3 * at]
        # An empty table has no value that has a type.
        facts[name] = (DUCKDB_KINDS.get(kind, kind) if kind else None, int(count), number(total))
    return facts


def number(text):
    if text is None or text == "":
        return 0
    return int(text) if "." not in str(text) and "e" not in str(text) else round(float(text), 3)


def parquet_source(table):
    hive = ", hive_partitioning = true" if is_partitioned(table) else ""
    return f"read_parquet({files(table)!r}{hive}, union_by_name = true)"


def duckdb_file(table):
    connection = duckdb.connect(str(DATABASE), read_only=True)
    connection.execute(f"SET TimeZone = '{ZONE}'")
    return from_duckdb_row(table, connection.execute(duckdb_sql(table, f'"{table}"')).fetchone())


def duckdb_parquet(table):
    connection = duckdb.connect()
    connection.execute(f"SET TimeZone = '{ZONE}'")
    return from_duckdb_row(table, connection.execute(duckdb_sql(table, parquet_source(table))).fetchone())


def duckdb_command_line(table):
    program = pathlib.Path(sys.executable).with_name("duckdb")
    arguments = [program, "-readonly", "-csv", "-noheader", "-nullvalue", "", DATABASE, duckdb_sql(table, f'"{table}"')]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env={**os.environ, "TZ": ZONE})
    return from_duckdb_row(table, next(csv.reader([done.stdout.strip()])))


# --- readers that return Arrow tables: pyarrow computes the sums ----------------------------------

def arrow_kind(column_type):
    import pyarrow.types as types
    if types.is_string(column_type) or types.is_large_string(column_type) or types.is_string_view(column_type):
        return "text"
    if types.is_timestamp(column_type):
        return "timestamp" if column_type.tz in ("UTC", "+00:00") else f"timestamp without a zone ({column_type})"
    if types.is_list(column_type) or types.is_large_list(column_type) or types.is_list_view(column_type):
        return "bigint_list" if types.is_int64(column_type.value_type) else str(column_type)
    return {"int64": "bigint", "double": "double", "bool": "boolean"}.get(str(column_type), str(column_type))


def from_arrow(table, found):
    import pyarrow as pa
    import pyarrow.compute as pc
    facts = {"rows": found.num_rows}
    for name in TABLES[table]:
        column = found.column(name)
        kind = arrow_kind(column.type)
        # DataFusion returns string views, for which pyarrow has no kernels.
        values = (column.cast(pa.large_string()) if kind == "text" else column).drop_null()
        if kind == "text":
            total = pc.sum(pc.binary_length(values)).as_py()
        elif kind == "timestamp":
            total = sum(values.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist())
        elif kind == "bigint":
            total = sum(values.to_pylist())
        elif kind == "double":
            total = pc.sum(pc.round(values, 6)).as_py()
        elif kind == "boolean":
            total = pc.sum(values).as_py()
        elif kind == "bigint_list":
            lists = values.to_pylist()
            total = sum(map(len, lists)) + 7 * sum(sum(value or 0 for value in one) for one in lists)
        else:
            total = None
        facts[name] = (kind, len(values), round(total, 3) if isinstance(total, float) else total or 0)
    return facts


def pyarrow_dataset(table):
    import pyarrow.dataset
    source = str(PARQUET / table) if is_partitioned(table) else files(table)[0]
    return from_arrow(table, pyarrow.dataset.dataset(source, partitioning="hive").to_table())


def pandas(table):
    import pandas as pd
    import pyarrow as pa
    source = PARQUET / table if is_partitioned(table) else files(table)[0]
    # The usual way to read: it must work, and the times must be in UTC.
    plain = pd.read_parquet(source)
    for name, kind in TABLES[table].items():
        if kind == "timestamp" and plain[name].notna().any():
            assert str(plain[name].dtype.tz) in ("UTC", "+00:00"), f"{table}.{name} is {plain[name].dtype} to pandas"
    exact = pd.read_parquet(source, dtype_backend="pyarrow")
    return from_arrow(table, pa.Table.from_pandas(exact, preserve_index=False))


def polars(table):
    import polars as pl
    return from_arrow(table, pl.scan_parquet(files(table), hive_partitioning=is_partitioned(table)).collect().to_arrow())


def datafusion(table):
    import datafusion as df
    import pyarrow as pa
    context = df.SessionContext()
    # The folders are named column=day.
    names = {folder.name.split("=")[0] for folder in (PARQUET / table).iterdir()} if is_partitioned(table) else ()
    partitions = [(name, pa.string()) for name in names]
    source = str(PARQUET / table) + "/" if is_partitioned(table) else files(table)[0]
    context.register_parquet(table, source, table_partition_cols=partitions)
    return from_arrow(table, context.sql(f'SELECT * FROM "{table}"').to_arrow_table())


# --- Spark: computes the sums itself --------------------------------------------------------------

SPARK = None


def spark_session(settings={}):
    """The session, which is started with the settings."""
    global SPARK
    if SPARK is None:
        from pyspark.sql import SparkSession
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.session.timeZone", ZONE).config("spark.driver.bindAddress", "127.0.0.1")
        for name, value in settings.items():
            builder = builder.config(name, value)
        SPARK = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1").getOrCreate()
        SPARK.sparkContext.setLogLevel("ERROR")
    return SPARK


def spark(table):
    # `_run_id` and similar names are columns, not hidden files: only file names with this prefix
    # are ignored.
    return from_spark(table, spark_session().read.parquet(str(PARQUET / table) if is_partitioned(table) else files(table)[0]))


def from_spark(table, frame):
    kinds = {"string": "text", "bigint": "bigint", "double": "double", "boolean": "boolean", "timestamp": "timestamp",
             "array<bigint>": "bigint_list"}
    found = dict(frame.dtypes)
    parts = []
    for name, kind in TABLES[table].items():
        column = f"`{name}`"
        total = {
            "text": f"sum(octet_length({column}))",
            "bigint": f"sum(cast({column} AS DECIMAL(38, 0)))",
            "double": f"sum(round({column}, 6))",
            "boolean": f"count_if({column})",
            "timestamp": f"sum(cast(unix_micros({column}) AS DECIMAL(38, 0)))",
            "bigint_list": f"sum(size({column})) FILTER (WHERE {column} IS NOT NULL) "
                           f"+ 7 * sum(aggregate({column}, 0L, (sum, one) -> sum + coalesce(one, 0L)))",
        }[KINDS[kind]]
        parts += [f"count({column})", f"cast({total} AS STRING)"]
    row = frame.selectExpr("count(*)", *parts).collect()[0]
    facts = {"rows": row[0]}
    for at, name in enumerate(TABLES[table]):
        facts[name] = (kinds.get(found[name], found[name]), row[1 + 2 * at], number(row[2 + 2 * at]))
    return facts


# --- the comparison --------------------------------------------------------------------------------------------------------------

DUCKDB = {
    f"DuckDB {duckdb.__version__} on its file": (duckdb_file, False),
    f"DuckDB {duckdb.__version__} on Parquet": (duckdb_parquet, True),
    "the duckdb command line": (duckdb_command_line, False),
}
OTHERS = {
    "pyarrow": (pyarrow_dataset, True), "pandas": (pandas, True), "Polars": (polars, True), "DataFusion": (datafusion, True),
    "Spark": (spark, True),
}


def differences(table, reader, expected, found):
    if expected["rows"] != found["rows"]:
        yield f"{table}: {found['rows']} rows and not {expected['rows']}"
    for name, kind in TABLES[table].items():
        found_kind, count, total = found[name]
        _, expected_count, expected_total = expected[name]
        if found_kind not in (None, KINDS[kind]):
            yield f"{table}.{name} is {found_kind} and not {KINDS[kind]}"
        if count != expected_count:
            yield f"{table}.{name} has {count} values and not {expected_count}"
        elif abs(total - expected_total) > 1e-9 * abs(expected_total) if kind == "double" else total != expected_total:
            yield f"{table}.{name} sums up to {total} and not to {expected_total}"


def compare(readers, expected, where):
    """Exits with 1 if a reader finds something else than `expected`, a reader itself."""
    expected_facts, expected_nps = {table: expected.facts(table) for table in TABLES}, expected.nps()
    problems = []
    for name, reader in readers.items():
        reader = reader()
        for table in TABLES:
            problems += [f"{name}: {text}" for text in differences(table, name, expected_facts[table], reader.facts(table))]
        found = reader.nps()
        if found.keys() != expected_nps.keys() or any(abs(found[month] - nps) > 1e-6 for month, nps in expected_nps.items()):
            problems.append(f"{name}: NPS {found} and not {expected_nps}")
        print(f"{name}: {sum(map(len, TABLES.values()))} columns and the NPS of {len(found)} months read from {where}", flush=True)
    rows = sum(facts["rows"] for facts in expected_facts.values())
    assert rows > 10_000 and len(expected_nps) > 2, f"next to nothing was compared: {rows} rows, {expected_nps}"
    print("\n".join(problems[:40]))
    if problems:
        sys.exit(1)


def main():
    told = FOLDER / "facts.json"
    if READERS == "current":
        expected = {table: duckdb_file(table) for table in TABLES}
        told.write_text(json.dumps(expected))
    expected = json.loads(told.read_text())
    problems, compared = [], 0
    for reader, (read, needs_files) in {**DUCKDB, **(OTHERS if READERS == "current" else {})}.items():
        columns = 0
        for table in TABLES:
            if needs_files and not files(table):
                if expected[table]["rows"]:
                    problems.append(f"{reader}: {table} has no file")
                continue
            problems += [f"{reader}: {text}" for text in differences(table, reader, expected[table], read(table))]
            columns += len(TABLES[table])
        compared += columns
        print(f"{reader}: {columns} columns read", flush=True)
    rows = sum(facts["rows"] for facts in expected.values())
    assert rows > 10_000 and compared > 700, f"next to nothing was compared: {rows} rows, {compared} columns"
    print("\n".join(problems[:40]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
