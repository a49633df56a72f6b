#!/usr/bin/env python3
"""Maintains the tables of a studysync warehouse in an Iceberg catalog, with PyIceberg.

    pip install 'pyiceberg[pyarrow,pyiceberg-core]==0.12.0'
    python maintain.py 'https://catalog.example.com?warehouse=lake'            every week
    python maintain.py 'https://catalog.example.com?warehouse=lake' --erase    after `studysync erase`

The address is that of `--iceberg`, and the keys come from the same variables: STUDYSYNC_ICEBERG_CREDENTIAL or STUDYSYNC_ICEBERG_TOKEN,
STUDYSYNC_ICEBERG_OAUTH_URL, AWS_ACCESS_KEY_ID and the other variables of AWS.

For each table it
1. rewrites partitions that have many small files, or rows that are only marked as removed;
2. expires snapshots older than --days;
3. removes files that only expired snapshots need, and files of failed commits that are older than --unreferenced-hours.

With --erase no byte of a removed row is left: every partition with removed rows is rewritten, all snapshots but the current one
expire, and the metadata says nothing more about files that are gone. Time travel to earlier states ends there.

A run of studysync may write at the same time: a table that it changes is read and rewritten again. Old versions that the bucket itself
keeps are not touched.

Exit codes: 0 done; 1 failed; 3 done, but --erase has left files that a run may be about to commit (call it again later), or tags.
"""

import argparse
import datetime
import os
import random
import sys
import time
import uuid
from collections import defaultdict
from urllib.parse import parse_qs, urlsplit

from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO, _dataframe_to_data_files
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _SnapshotProducer

# Size up to which files are read into memory together and written as one.
FILE_BYTES = 128 << 20
# Number of files of a partition from which they are rewritten.
MANY_FILES = 5
CONFLICTS = 20
# The tables of studysync. Other tables of the namespace are left alone.
TABLES = {
    "erasures", "rejects", "response_choices", "response_custom_metadata", "response_history", "response_matrix_cells",
    "response_maxdiff_items", "response_media", "response_ranks", "responses", "survey_constraint_history",
    "survey_constraints", "survey_history", "survey_question_history", "survey_question_option_history",
    "survey_question_options", "survey_questions", "survey_status_changes", "surveys", "sync_runs", "sync_windows",
    "theme_history", "themes", "user_attributes", "user_events", "users", "visitor_snapshot_attributes",
    "visitor_snapshot_history", "visitor_snapshots", "webhook_events", "webhook_questions", "studysync_meta",
}


def open_catalog(address):
    """Returns the catalog and the namespace that an address of `--iceberg` names."""
    parts = urlsplit(address)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if "warehouse" not in query:
        sys.exit("error: the address names no ?warehouse=NAME")
    uri = parts._replace(query="").geturl().rstrip("/")
    oauth = os.environ.get("STUDYSYNC_ICEBERG_OAUTH_URL", f"{uri}/v1/oauth/tokens")
    settings = {
        "credential": os.environ.get("STUDYSYNC_ICEBERG_CREDENTIAL"),
        "token": os.environ.get("STUDYSYNC_ICEBERG_TOKEN"),
        "oauth2-server-uri": oauth if "STUDYSYNC_ICEBERG_CREDENTIAL" in os.environ else None,
        "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL")),
        "s3.access-key-id": os.environ.get("AWS_ACCESS_KEY_ID"),
        "s3.secret-access-key": os.environ.get("AWS_SECRET_ACCESS_KEY"),
        "s3.session-token": os.environ.get("AWS_SESSION_TOKEN"),
        "s3.region": os.environ.get("AWS_REGION", os.environ.get("AWS_DEFAULT_REGION")),
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    }
    settings = {name: value for name, value in settings.items() if value}
    return load_catalog("studysync", type="rest", uri=uri, warehouse=query["warehouse"], **settings), query.get("namespace", "studysync")


class Rewrite(_SnapshotProducer):
    """A snapshot with the same rows in other files. Its manifests name only files that are in it: those of PyIceberg's own rewrite also
    name the removed files, with their least and greatest values."""

    def __init__(self, transaction, io, kept):
        super().__init__(Operation.REPLACE, transaction, io)
        self.kept = kept

    def _refresh_for_retry(self):
        """PyIceberg would commit the files again on top of the other writer's commit, whose changes they lack."""
        raise CommitFailedException("another writer has committed")

    def _deleted_entries(self):
        return []

    def _existing_manifests(self):
        manifests, by_spec = [], defaultdict(list)
        for entry in self.kept:
            by_spec[entry.data_file.spec_id].append(entry)
        for spec_id, entries in by_spec.items():
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for entry in entries:
                    writer.add_entry(ManifestEntry.from_args(
                        status=ManifestEntryStatus.EXISTING, snapshot_id=entry.snapshot_id, sequence_number=entry.sequence_number,
                        file_sequence_number=entry.file_sequence_number, data_file=entry.data_file,
                    ))
            manifests.append(writer.to_manifest_file())
        return manifests

    def _summary(self, snapshot_properties=None):
        files = [*self._added_data_files, *(entry.data_file for entry in self.kept)]
        totals = {
            "total-data-files": len(files), "total-delete-files": 0, "total-position-deletes": 0, "total-equality-deletes": 0,
            "total-records": sum(file.record_count for file in files), "total-files-size": sum(file.file_size_in_bytes for file in files),
            "added-data-files": len(self._added_data_files), "added-records": sum(file.record_count for file in self._added_data_files),
        }
        return Summary(operation=self._operation, **{name: str(value) for name, value in totals.items()})


def rewrite(table, is_erasure):
    """Writes the files of a table anew where that is due, in one commit. Returns their number. Fails with CommitFailedException if
    another writer has committed."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return 0
    manifests = snapshot.manifests(table.io)
    entries = {
        entry.data_file.file_path: entry for manifest in manifests if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }
    has_removed_rows = any(manifest.content == ManifestContent.DELETES for manifest in manifests)
    partitions = defaultdict(list)
    for task in table.scan().plan_files():
        partitions[task.file.spec_id, task.file.partition].append(task)
    tasks = []
    for found in partitions.values():
        small = [task for task in found if task.file.file_size_in_bytes < FILE_BYTES // 2]
        marked = [task for task in found if task.delete_files]
        # The new snapshot has no lists of removed rows, so all files that have one are due.
        tasks.append(small if len(small) >= MANY_FILES and not is_erasure else [])
        tasks[-1] += [task for task in marked if task not in tasks[-1]]
    names_removed_files = any(manifest.deleted_files_count != 0 for manifest in manifests)
    if not (any(tasks) or has_removed_rows or (is_erasure and names_removed_files)):
        return 0
    written = []
    try:
        rows = 0
        for group in (group for partition in tasks for group in in_groups(partition)):
            read = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(group)
            rows += read.num_rows
            written += _dataframe_to_data_files(table.metadata, read, table.io, write_uuid=uuid.uuid4())
        replaced = {task.file.file_path for partition in tasks for task in partition}
        kept = [entry for path, entry in entries.items() if path not in replaced]
        if rows != sum(file.record_count for file in written):
            raise RuntimeError(f"{table.name()}: {rows} rows were read and others written")
        with table.transaction() as transaction:
            with Rewrite(transaction, table.io, kept) as producer:
                for file in written:
                    producer.append_data_file(file)
        return len(replaced)
    except CommitFailedException:
        # After any other error the commit may have been made.
        for file in written:
            table.io.delete(file.file_path)
        raise


def in_groups(tasks):
    """Divides files into groups that are read into memory together."""
    group, size = [], 0
    for task in sorted(tasks, key=lambda task: task.file.file_size_in_bytes):
        if group and size + task.file.file_size_in_bytes > FILE_BYTES:
            yield group
            group, size = [], 0
        group.append(task)
        size += task.file.file_size_in_bytes
    if group:
        yield group


def until_no_conflict(table, change):
    """Calls `change`, which commits, again after another writer has committed. Returns what it returns."""
    for conflict in range(CONFLICTS):
        table.refresh()
        try:
            return change()
        except CommitFailedException:
            if conflict + 1 == CONFLICTS:
                raise
            time.sleep(random.uniform(0, min(30, 0.2 * 2 ** conflict)))


def expire(table, before):
    """Expires the snapshots from before a time that no branch or tag names. Returns their number."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    before_ms = before.timestamp() * 1000
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.timestamp_ms < before_ms and snapshot.snapshot_id not in heads]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()
    return len(old)


def needed_files(table):
    """Returns the paths of the files that the snapshots of a table need, without those of the metadata itself."""
    needed, read = set(), set()
    for snapshot in table.snapshots():
        needed.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in read:
                read.add(manifest.manifest_path)
                needed.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False))
    return needed | read


def remove_files(table, needed_before, older_than):
    """Removes the files that only expired snapshots needed, and other unreferenced files from before a time. Returns the numbers of
    removed files and of unreferenced files that are younger."""
    metadata = table.metadata
    needed = needed_files(table) | {table.metadata_location} | {entry.metadata_file for entry in metadata.metadata_log}
    needed |= {statistics.statistics_path for statistics in [*metadata.statistics, *getattr(metadata, "partition_statistics", [])]}
    scheme, authority, path = PyArrowFileIO.parse_location(table.location())
    bucket = table.io.fs_by_scheme(scheme, authority)
    needed, needed_before = ({PyArrowFileIO.parse_location(file)[2] for file in files} for files in (needed, needed_before))
    removed, young = 0, 0
    for file in bucket.get_file_info(FileSelector(path, recursive=True, allow_not_found=True)):
        if file.type != FileType.File or file.path in needed:
            continue
        if file.path in needed_before or file.mtime < older_than:
            bucket.delete_file(file.path)
            removed += 1
        else:
            young += 1
    return removed, young


def maintain(table, arguments):
    """Maintains one table. Returns the number of unreferenced files, and of branches and tags, that may keep old rows."""
    now = datetime.datetime.now(datetime.timezone.utc)
    others = [name for name in table.metadata.refs if name != "main"]
    if arguments.erase and others:
        print(f"{table.name()[-1]}: remove its branches and tags, which keep old rows: {', '.join(others)}", flush=True)
    rewritten = until_no_conflict(table, lambda: rewrite(table, arguments.erase))
    table.refresh()
    needed_before = needed_files(table)
    before = now + datetime.timedelta(days=1) if arguments.erase else now - datetime.timedelta(days=arguments.days)
    expired = until_no_conflict(table, lambda: expire(table, before))
    table.refresh()
    removed, young = remove_files(table, needed_before, now - datetime.timedelta(hours=arguments.unreferenced_hours))
    if rewritten or expired or removed or young:
        left = f", {young} unreferenced files left" if young else ""
        print(f"{table.name()[-1]}: {rewritten} files rewritten, {expired} snapshots expired, {removed} files removed{left}", flush=True)
    return young + (len(others) if arguments.erase else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", metavar="ADDRESS", help="the address of --iceberg: URL?warehouse=NAME[&namespace=NAME]")
    parser.add_argument("--days", type=float, default=7, help="keep snapshots of so many days (default: %(default)s)")
    parser.add_argument("--erase", action="store_true", help="leave no byte of removed rows; keeps only the current snapshots")
    parser.add_argument("--unreferenced-hours", type=float, default=24,
                        help="remove files that no snapshot names after so long, because a run may be about to commit younger ones "
                             "(default: %(default)s; 0 if no run is writing)")
    arguments = parser.parse_args()
    catalog, namespace = open_catalog(arguments.address)
    found = sorted(catalog.list_tables(namespace))
    others = [name[-1] for name in found if name[-1] not in TABLES]
    if others:
        print(f"left alone, not tables of studysync: {', '.join(others)}", flush=True)
    left = sum(maintain(catalog.load_table(name), arguments) for name in found if name[-1] in TABLES)
    if arguments.erase and left:
        print(f"old rows may be left, see above. Files that no snapshot names are removed after {arguments.unreferenced_hours:g} hours: "
              "call this again then.")
        sys.exit(3)


if __name__ == "__main__":
    main()
