"""Erases a person from a warehouse in an Iceberg catalog, and then their bytes: `lakes_erased.py PROGRAM FOLDER ADDRESS`.

FOLDER has `studysync.toml` with the warehouses, of which ADDRESS is the one in Iceberg. After `examples/iceberg/maintain.py --erase`, which
the receipt names, no object of the bucket may have an id of the person, and the tables must have the rows that they had before. Another
writer commits while a table is rewritten.
"""

import importlib.util
import io
import os
import subprocess
import sys

PROGRAM, FOLDER, ADDRESS = sys.argv[1:]
sys.argv[1:] = ["current", FOLDER]

import duckdb
import fastavro
import pyarrow.fs
import pyarrow.parquet

import dialects
import lakes
import read

MAINTAIN = dialects.ROOT / "examples/iceberg/maintain.py"


def studysync(*arguments):
    done = subprocess.run([PROGRAM, "--config", f"{FOLDER}/studysync.toml", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def maintain(*arguments):
    done = subprocess.run([sys.executable, MAINTAIN, ADDRESS, *arguments], text=True)
    assert done.returncode == 0, done.returncode


def values(node):
    """All values in a record of Avro, as bytes."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for value in node:
            yield from values(value)
    elif node is not None:
        yield node if isinstance(node, bytes) else str(node).encode()


def content(name, body):
    """All texts in an object of the bucket, as bytes: also the least and greatest values that metadata has."""
    found = [body]
    if name.endswith(".parquet"):
        columns = pyarrow.parquet.read_table(io.BytesIO(body)).columns
        found += (value for column in columns if pyarrow.types.is_string(column.type) for value in values(column.unique().to_pylist()))
    elif name.endswith(".avro"):
        found += values(list(fastavro.reader(io.BytesIO(body))))
    return b"\n".join(found)


def objects_with(ids):
    """The objects of the namespace that have one of the ids. Metadata has the first 16 characters of texts."""
    bucket = pyarrow.fs.S3FileSystem(endpoint_override=lakes.ENDPOINT)
    wanted = {id.encode() for id in ids} | {id[:16].encode() for id in ids}
    found, searched = [], 0
    for file in bucket.get_file_info(pyarrow.fs.FileSelector(f"{lakes.BUCKET}/{lakes.NAMESPACE}", recursive=True)):
        if file.type == pyarrow.fs.FileType.File:
            searched += 1
            text = content(file.path, bucket.open_input_file(file.path).readall())
            if any(id in text for id in wanted):
                found.append(file.path)
    assert searched > 100, searched
    return found


def rows():
    """The number of rows of each table."""
    connection = lakes.engine()
    return {table: connection.execute(f"SELECT count(*) FROM lake.{lakes.NAMESPACE}.{table}").fetchone()[0] for table in read.TABLES}


def with_another_commit():
    """Rewrites the table of answers while another writer commits, in this process. The rewrite must take the commit's rows."""
    spec = importlib.util.spec_from_file_location("maintain", MAINTAIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    commits, write = [], module._dataframe_to_data_files

    def commit_first(*arguments, **named):
        if not commits:
            commits.append(lakes.engine().execute(f"DELETE FROM lake.{lakes.NAMESPACE}.responses WHERE question_id % 50 = 1").fetchone()[0])
        return write(*arguments, **named)

    module._dataframe_to_data_files = commit_first
    catalog, namespace = module.open_catalog(ADDRESS)
    table = catalog.load_table((namespace, "responses"))
    rewritten = module.until_no_conflict(table, lambda: module.rewrite(table, True))
    assert commits[0] > 0 and rewritten > 0, (commits, rewritten)
    return commits[0]


def main():
    file = duckdb.connect(str(read.DATABASE), read_only=True)
    visitor, *ids = file.execute("SELECT max(visitor_id)::VARCHAR, any_value(visitor_uuid), unnest(list(DISTINCT response_group_uid)) FROM responses "
                                 "WHERE deleted_at IS NULL GROUP BY visitor_id HAVING count(*) > 3 ORDER BY visitor_id DESC LIMIT 1").fetchone()
    file.close()
    code, output = studysync("erase", "--visitor-id", visitor, "--local-only", "--yes", "--archive", "none")
    assert code == 3 and "maintain.py --erase" in output, (code, output)
    before = rows()
    assert objects_with(ids), "nothing is left to remove: the test proves nothing"
    removed = with_another_commit()
    before["responses"] -= removed
    assert rows() == before, "a commit was lost in a rewrite"
    maintain()
    assert rows() == before, "maintenance has changed rows"
    maintain("--erase", "--unreferenced-hours", "0")
    assert rows() == before, "maintenance has changed rows"
    found = objects_with(ids)
    assert not found, f"objects still have ids of the erased person: {found}"
    print(f"no object of the bucket has an id of the erased person; {sum(before.values())} rows are as before")


main()
