"""Measures and maintains warehouses with DuckDB and other clients, in their own Python environment; see sections/catalogs.py.

    lakes.py size KIND NAME          prints files, bytes and snapshots as JSON; NAME is the folder in a bucket, or the schema
    lakes.py maintain KIND NAME SECS     what the documentation recommends every week; keeps the snapshots of so many seconds

Runs in the folder of the warehouse, with the variables of `scripts/lakes.sh run`."""

import json
import os
import pathlib
import runpy
import sys

POSTGRES, CATALOG = os.environ.get("STUDYSYNC_TEST_POSTGRES"), os.environ.get("STUDYSYNC_TEST_ICEBERG")
FILES = {"duckdb": ["warehouse.duckdb"], "parquet": ["parquet/**/*"], "ducklake": ["warehouse.ducklake", "warehouse.ducklake.files/**/*"]}
BUCKETS = {"bucket": "studysync", "ducklake-postgres": "studysync", "iceberg": "lakehouse"}
MAINTAIN = pathlib.Path(__file__).parents[2] / "examples" / "iceberg" / "maintain.py"
DUCKLAKE = [
    "ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "ducklake_merge_adjacent_files('lake')",
    "ducklake_expire_snapshots('lake', older_than => now() - INTERVAL {secs} SECOND)",
    "ducklake_cleanup_old_files('lake', older_than => now() - INTERVAL {secs} SECOND)",
]


def main(action, kind, name, secs=None):
    if action == "size":
        print(json.dumps(size(kind, name)))
    elif kind == "iceberg":
        # Nothing writes meanwhile.
        sys.argv[1:] = [iceberg_address(name), "--days", str(float(secs) / 86_400), "--unreferenced-hours", "0"]
        runpy.run_path(str(MAINTAIN), run_name="__main__")
    else:
        connection = attached(kind, name)
        for call in DUCKLAKE:
            connection.execute(f"CALL {call.format(secs=round(float(secs)))}")


def size(kind, name):
    sizes = [path.stat().st_size for pattern in FILES.get(kind, []) for path in pathlib.Path().glob(pattern) if path.is_file()]
    if kind in BUCKETS:
        from pyarrow import fs
        bucket = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"])
        found = bucket.get_file_info(fs.FileSelector(f"{BUCKETS[kind]}/{name}", recursive=True))
        sizes += [file.size for file in found if file.type == fs.FileType.File]
    snapshots = None
    if kind.startswith("ducklake"):
        snapshots = attached(kind, name).execute("SELECT count(*) FROM ducklake_snapshots('lake')").fetchone()[0]
    elif kind == "iceberg":
        catalog, namespace = runpy.run_path(str(MAINTAIN))["open_catalog"](iceberg_address(name))
        snapshots = sum(len(catalog.load_table(table).snapshots()) for table in catalog.list_tables(namespace))
    return {"files": len(sizes), "bytes": sum(sizes) + (postgres_bytes(name) if "postgres" in kind else 0), "snapshots": snapshots}


def iceberg_address(name):
    return f"{CATALOG}?warehouse=lakehouse&namespace={name}"


def connect(*extensions):
    import duckdb
    connection = duckdb.connect(config={"extension_directory": os.environ["STUDYSYNC_TEST_EXTENSIONS"], "autoinstall_known_extensions": "false"})
    for extension in extensions:
        connection.execute(f"LOAD {extension}")
    return connection


def postgres_bytes(name):
    connection = connect("postgres")
    connection.execute(f"ATTACH '{POSTGRES}' AS pg (TYPE postgres, READ_ONLY)")
    sql = f"SELECT sum(pg_total_relation_size(oid))::BIGINT FROM pg_class WHERE relkind = ''r'' AND relnamespace = ''{name}''::regnamespace"
    return connection.execute(f"SELECT * FROM postgres_query('pg', '{sql}')").fetchone()[0]


def attached(kind, name):
    """DuckDB with the DuckLake as `lake`."""
    if kind == "ducklake":
        connection, source, options = connect("ducklake"), "warehouse.ducklake", ""
    else:
        connection, source, options = connect("httpfs", "postgres", "ducklake"), f"postgres:{POSTGRES}", f"(METADATA_SCHEMA '{name}')"
        key, secret, endpoint = (os.environ[variable] for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"))
        connection.execute(f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1', URL_STYLE 'path', USE_SSL false, "
                           f"ENDPOINT '{endpoint.removeprefix('http://')}')")
    connection.execute(f"ATTACH 'ducklake:{source}' AS lake {options}")
    return connection


if __name__ == "__main__":
    main(*sys.argv[1:])
