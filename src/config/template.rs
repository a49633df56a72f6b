//! The commented configuration file that `studysync init` writes. The file has every key with its default.

use super::defaults::{
    API_KEY_ENV, ARCHIVE_FOLDER, ASK_AGAIN_AFTER, ENVIRONMENT, EXAMPLE_URL, FIRST_SYNC_DAYS, GRACE_DAYS, IN_FLIGHT_MAX,
    LOCK_WAIT_SECS, MEMORY_LIMIT_MB, MEMORY_LIMIT_MB_MIN, PATIENCE_SECS, REFRESH_AFTER, SETTLE_SECS, STATE_PATH,
    TIMEOUT_SECS,
};

/// Returns the commented file that `init` writes.
pub fn template() -> String {
    let days = FIRST_SYNC_DAYS;
    let (mib, mib_min) = (MEMORY_LIMIT_MB, MEMORY_LIMIT_MB_MIN);
    format!(
        r#"# studysync: which data to read, how fast, and where to store it.
# Every key has a default; lines that begin with '#' show it. Paths are relative to this file; ~/ is your home.
# Environment variables win over this file: STUDYSYNC_WAREHOUSE_DUCKDB sets duckdb under [warehouse].

[service]
# The address of the service, without /v1/responses. Replace this example, which is refused.
base_url = "{EXAMPLE_URL}"
# A label of your choice for the environment of the service that the key belongs to. A warehouse refuses data of another environment.
# environment = "{ENVIRONMENT}"
# The environment variable with the key.
# api_key_env = "{API_KEY_ENV}"
# A file that contains only the key, instead of the variable.
# api_key_file = "/run/secrets/studysync-key"
# A command line for /bin/sh that prints the key, instead of the variable.
# api_key_command = "vault kv get -field=key secret/studysync"
# Time limit of one request.
# timeout_secs = {TIMEOUT_SECS}
# The form of the Authorization header: "documented" (bearer, and api-key for users), "bearer" or "api-key".
# auth = "documented"

[throttle]
# Concurrent requests. Also the number of windows that are pulled concurrently.
# Fewer are sent at a time if memory_limit_mb is too small for their pages.
# in_flight_max = {IN_FLIGHT_MAX}
# An upper limit of your own. The program learns the service's limit from its responses, so you rarely need this.
# requests_per_sec_max = 3.0
# The longest Retry-After of the service that a run waits for. A longer one stops the run early; the next run resumes.
# patience_secs = {PATIENCE_SECS}

[streams.responses]
# Whether the stream is read.
# enabled = true
# Optional parts of a response. Without with_deleted_responses, deleted and purged answers look the same.
flags = ["with_deleted_responses"]
# flags = ["with_deleted_responses", "with_urls", "with_meta", "with_custom_metadata", "with_snapshots"]
# Rows per page, at most 1000.
# page_rows = 1000
# Answers younger than this are left to the next run.
# settle_secs = {SETTLE_SECS}
# How often windows are scanned again, by the age of the answers. Only a re-scan finds edits and deletions.
# rescan = ["3d every run", "30d daily", "365d weekly", "all monthly"]
# Start of the first sync; without it, {days} days back. `studysync backfill --from` pulls older answers.
# since = "2026-01-01"

[streams.responses.drift]
# The policy for fields that the contract does not know, and for values that their column cannot store:
#   "evolve"         store the value as JSON next to the columns; columns never change, and nothing is lost
#   "freeze"         do not apply the window: the stream stops with exit code 1 until you set another policy
#   "discard_row"    store the record's text in the table rejects; exit code 3 for new rejects
#   "discard_value"  leave the value out; the archive has it
# A changed policy applies to windows that are scanned from now on. `studysync replay` applies it to all windows.
# unknown_fields = "evolve"
# type_clashes = "evolve"

[streams.surveys]
# [streams.studies] is another name of this table.
# Whether the stream is read.
# enabled = true
# Read only surveys in these states; without it, all. Stored surveys in other states stay unchanged.
# statuses = ["NEW", "IN_PROGRESS", "PAUSED", "COMPLETED", "DRAFT", "ARCHIVED"]
# [streams.surveys.drift] and [streams.themes.drift] take the same keys as above.

[streams.themes]
# Whether the stream is read.
# enabled = true

[streams.users]
# Whether users are read. Off by default: it takes one request per user whom answers name (external_user_id).
# enabled = false
# Age at which a stored user is read again.
# refresh_after = "{REFRESH_AFTER}"
# Time after which a user that the service did not know (404) is requested again.
# ask_again_after = "{ASK_AGAIN_AFTER}"

[warehouse]
# The DuckDB file. Configure one warehouse or both.
duckdb = "warehouse.duckdb"
# The folder of Parquet files.
# parquet = "warehouse-parquet"
# The size of Parquet partitions: "month" or "day".
# parquet_partition = "month"
# Memory limit of the whole program in MiB, kept within a quarter. An engine spills to disk beyond its share. At least {mib_min} per
# warehouse. More than the default is hardly faster. DuckDB exceeds it, with a warning, if thousands of records in a row have long texts.
# memory_limit_mb = {mib}
# How long a run waits for a DuckDB file that another program has locked, before it gives up with exit code 5.
# lock_wait_secs = {LOCK_WAIT_SECS}
# A read-only copy of the DuckDB file, replaced atomically at the end of each run that changed the file. Readers of the copy and runs
# never wait for each other. Only this user can read the first copy; later copies keep the mode, owner and group of the previous one.
# publish = "analytics.duckdb"
# A full-text index in the DuckDB file for search_answers. DuckDB's extension fts must be installed: nothing is downloaded. A run that
# changed answers rebuilds the index, which takes about 13 seconds for a million responses.
# full_text_search = false
# DuckDB's folder of extensions, if it is not ~/.duckdb/extensions.
# extension_directory = "/opt/duckdb/extensions"

[state]
# The checkpoint file.
# path = "{STATE_PATH}"

[archive]
# The folder of the exact pages of every scan, compressed. `studysync replay` rebuilds every table from them. "none" deletes the pages
# after each scan. A folder has the pages of one state file. For a state file with another name the default is NAME.sqlite.{ARCHIVE_FOLDER}.
# path = "studysync-state/{ARCHIVE_FOLDER}"
# Days that pages are kept; without it, for ever.
# keep_days = 400

[erase]
# The policy for sessions that the service no longer returns, for example after a purge: "keep" keeps their rows, marked with
# _vanished_at; "erase" removes rows, history and archived records after grace_days, with a receipt.
# on_vanish = "keep"
# Days between the disappearance of a session and its erasure.
# grace_days = {GRACE_DAYS}

{recordings}
{serve}
{metrics}
{notify}"#,
        recordings = super::recordings::template(),
        serve = super::serve::template(),
        metrics = super::metrics::template(),
        notify = super::notify::template()
    )
}
