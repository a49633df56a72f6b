"""What the program is held against. Each is a process of its own, so that its memory and its CPU time can be told; times are printed
as JSON and leave out the start of Python.

    floors.py download ADDRESS FROM_MS TO_MS FOLDER [FLAG...]
    floors.py read_json FOLDER OUT THREADS          a table in a DuckDB file
    floors.py read_json_parquet FOLDER OUT THREADS  the same, and COPY to Parquet
    floors.py rewrite FILE OUT THREADS              all tables of a DuckDB file into a new one, by DuckDB itself
    floors.py script ADDRESS FROM_MS TO_MS FOLDER OUT THREADS [FLAG...]
"""

import concurrent.futures
import http.client
import json
import pathlib
import sys
import time

KEY = "bench"
CONNECTIONS = 4
PAGE_ROWS = 1000

# The columns of `responses` with the types of the contract: the answer stays JSON, as in our table.
RECORD = {
    "createdAt": "TIMESTAMP", "updatedAt": "TIMESTAMP", "deletedAt": "TIMESTAMP", "externalUserId": "VARCHAR",
    "partnerAnonymousId": "VARCHAR", "questionId": "BIGINT", "questionText": "VARCHAR", "questionType": "VARCHAR",
    "response": "JSON", "responseGroupUid": "VARCHAR", "selectedIndexes": "JSON", "surveyId": "BIGINT", "visitorId": "BIGINT",
    "visitorUuid": "VARCHAR", "url": "VARCHAR",
    "meta": "STRUCT(browser VARCHAR, os VARCHAR, language VARCHAR, href VARCHAR, userAgent VARCHAR, "
            "client STRUCT(width BIGINT, height BIGINT), screen STRUCT(width BIGINT, height BIGINT))",
    "customMetadata": "JSON", "visitorSnapshot": "JSON",
}


def download(address, from_ms, to_ms, folder, flags, connections=CONNECTIONS):
    """The pages of the range, over a few connections; each takes the next of some windows of equal length."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    host = address.removeprefix("http://")
    windows = connections * 8
    edges = [from_ms + (to_ms - from_ms) * at // windows for at in range(windows + 1)]
    extra = "".join(f"&{flag}=true" for flag in flags)

    def pull(at):
        connection = http.client.HTTPConnection(host)
        # The service includes both ends of the range.
        token, page = "", 0
        while token is not None:
            query = f"start={edges[at]}&end={edges[at + 1] - 1}&limit={PAGE_ROWS}{extra}" + (f"&cursor={token}" if token else "")
            connection.request("GET", f"/v1/responses?{query}", headers={"Authorization": f"Bearer {KEY}"})
            body = connection.getresponse().read()
            (folder / f"{at:03}-{page:06}.json").write_bytes(body)
            # The token is at the end of the page. Reading the complete page would be parsing.
            token = json.loads(b"{" + body[body.rindex(b'"cursor":'):])["cursor"]
            page += 1

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        list(pool.map(pull, range(windows)))


META = ["browser", "os", "language", "href", "userAgent", "client.width", "client.height", "screen.width", "screen.height"]


def typed_read(folder):
    record = ", ".join(f'"{name}" {kind}' for name, kind in RECORD.items())
    columns = [f'r."{name}"' for name in RECORD if name != "meta"] + [f'r.meta.{name} AS "meta_{name}"' for name in META]
    return (f"SELECT {', '.join(columns)} FROM (SELECT unnest(data) AS r FROM "
            f"read_json('{folder}/*.json', columns = {{'data': 'STRUCT({record})[]'}}, format = 'newline_delimited', "
            f"maximum_object_size = 67108864))")


# The storage version of our file. Writing it is faster than writing DuckDB's default, for DuckDB
# too.
STORAGE_VERSION = "v1.4.0"


def connect(path, threads):
    import duckdb
    return duckdb.connect(path, config={"threads": threads, "storage_compatibility_version": STORAGE_VERSION})


def read_json(folder, out, threads):
    with connect(out, threads) as connection:
        connection.execute(f"CREATE TABLE responses AS {typed_read(folder)}")
        return connection.execute("SELECT count(*) FROM responses").fetchone()[0]


def read_json_parquet(folder, out, threads):
    with connect(":memory:", threads) as connection:
        connection.execute(f"COPY ({typed_read(folder)}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
        return connection.execute(f"SELECT count(*) FROM '{out}'").fetchone()[0]


def rewrite(file, out, threads):
    pathlib.Path(out).unlink(missing_ok=True)
    with connect(":memory:", threads) as connection:
        connection.execute(f"ATTACH '{file}' AS held (READ_ONLY); ATTACH '{out}' AS anew; COPY FROM DATABASE held TO anew; DETACH anew")


def main(kind, *arguments):
    import duckdb  # noqa: F401  its start is not counted
    begun, cpu_begun = time.perf_counter(), time.process_time()
    rows = None
    if kind == "download":
        address, from_ms, to_ms, folder, *flags = arguments
        download(address, int(from_ms), int(to_ms), folder, flags)
    elif kind == "read_json":
        rows = read_json(*arguments)
    elif kind == "read_json_parquet":
        rows = read_json_parquet(*arguments)
    elif kind == "rewrite":
        rewrite(*arguments)
    elif kind == "script":
        address, from_ms, to_ms, folder, out, threads, *flags = arguments
        download(address, int(from_ms), int(to_ms), folder, flags, connections=1)
        rows = read_json(folder, out, threads)
    print(json.dumps({"secs": time.perf_counter() - begun, "cpu_secs": time.process_time() - cpu_begun, "rows": rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
