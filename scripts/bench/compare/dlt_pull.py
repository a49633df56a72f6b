"""The work of a backfill with dlt, in the fast way that its documentation describes: windows pulled in parallel, pages handed on as
Arrow tables, Parquet as the loader's format. It keeps no archive and no children, and proves nothing.

    dlt_pull.py append|merge duckdb|parquet ADDRESS FROM_MS TO_MS FOLDER [FLAG...]"""

import json
import os
import pathlib
import sys
import time

KEY = "bench"
CONNECTIONS = 4
WINDOWS = CONNECTIONS * 8
PAGE_ROWS = 1000

TEXTS = ["createdAt", "updatedAt", "deletedAt", "externalUserId", "partnerAnonymousId", "questionText", "questionType",
         "responseGroupUid", "visitorUuid", "url"]
NUMBERS = ["questionId", "surveyId", "visitorId"]
JSONS = ["response", "selectedIndexes", "meta", "customMetadata", "visitorSnapshot"]


def main(disposition, destination, address, from_ms, to_ms, folder, *flags):
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update({
        "RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR", "EXTRACT__WORKERS": str(CONNECTIONS),
        "NORMALIZE__WORKERS": "1", "LOAD__WORKERS": "4", "DLT_DATA_DIR": str(folder / "dlt"),
    })
    import dlt
    import orjson
    import pyarrow
    import requests

    begun = time.perf_counter()
    schema = pyarrow.schema([(name, pyarrow.string()) for name in TEXTS] + [(name, pyarrow.int64()) for name in NUMBERS]
                            + [(name, pyarrow.string()) for name in JSONS])

    def arrow_of(records):
        # A primary key may not be NULL.
        records = [record for record in records if record.get("questionId") is not None]
        for record in records:
            for name in JSONS:
                if name in record:
                    record[name] = orjson.dumps(record[name]).decode()
        return pyarrow.Table.from_pylist(records, schema=schema)

    @dlt.resource
    def windows():
        first, last = int(from_ms), int(to_ms)
        edges = [first + (last - first) * at // WINDOWS for at in range(WINDOWS + 1)]
        yield [(edges[at], edges[at + 1] - 1) for at in range(WINDOWS)]

    @dlt.transformer(name="responses", write_disposition=disposition, parallelized=True,
                     primary_key=("responseGroupUid", "questionId") if disposition == "merge" else None)
    def responses(pieces):
        for start, end in pieces:
            yield pull(start, end)

    @dlt.defer
    def pull(start, end):
        session, token, tables = requests.Session(), None, []
        while True:
            query = {"start": start, "end": end, "limit": PAGE_ROWS, **{flag: "true" for flag in flags}, **({"cursor": token} if token else {})}
            reply = session.get(f"{address}/v1/responses", params=query, headers={"Authorization": f"Bearer {KEY}"})
            reply.raise_for_status()
            page = orjson.loads(reply.content)
            tables.append(arrow_of(page["data"]))
            token = page["cursor"]
            if not token:
                return pyarrow.concat_tables(tables)

    into = dlt.destinations.duckdb(str(folder / "dlt.duckdb")) if destination == "duckdb" else dlt.destinations.filesystem(str(folder / "lake"))
    pipeline = dlt.pipeline("bench", destination=into, dataset_name="bench")
    pipeline.run(windows | responses, loader_file_format="parquet")
    secs = time.perf_counter() - begun
    rows = sum(count for name, count in pipeline.last_trace.last_normalize_info.row_counts.items() if name == "responses")
    print(json.dumps({"secs": secs, "rows": rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
