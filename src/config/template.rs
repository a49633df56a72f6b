//! The commented configuration that `studysync init` writes: every key with its default. A test reads it back.

use super::resolve::{
    API_KEY_ENV, ARCHIVE_FOLDER, ASK_AGAIN_AFTER, ENVIRONMENT, EXAMPLE_URL, FIRST_SYNC_DAYS, GRACE_DAYS, IN_FLIGHT_MAX,
    LOCK_WAIT_SECS, MEMORY_LIMIT_MB, MEMORY_LIMIT_MB_MIN, PATIENCE_SECS, REFRESH_AFTER, SETTLE_SECS, STATE_PATH,
    TIMEOUT_SECS,
};

/// The commented file that `init` writes.
pub fn template() -> String {
    let days = FIRST_SYNC_DAYS;
    let (mib, mib_min) = (MEMORY_LIMIT_MB, MEMORY_LIMIT_MB_MIN);
    format!(
        r#"# studysync: what to read, how politely, and where to put it.
# Every key has a default; lines that begin with '#' show it. Paths are relative to this file; ~/ is your home.
# An environment variable sets a key as well, and wins over this file: STUDYSYNC_WAREHOUSE_DUCKDB sets duckdb under [warehouse].

[service]
# The address of the service: what stands before /v1/responses. This one is an example and is refused: put yours in its place.
base_url = "{EXAMPLE_URL}"
# A label of your own. A key belongs to one environment of the service; a warehouse filled from one refuses another.
# environment = "{ENVIRONMENT}"
# The environment variable that holds the key.
# api_key_env = "{API_KEY_ENV}"
# A file that holds the key and nothing else, in place of the variable.
# api_key_file = "/run/secrets/studysync-key"
# A command that prints the key, run by /bin/sh, in place of the variable.
# api_key_command = "vault kv get -field=key secret/studysync"
# How long one request may take.
# timeout_secs = {TIMEOUT_SECS}
# How the key is sent: "documented" (bearer, and api-key for users), "bearer" or "api-key".
# auth = "documented"

[throttle]
# Requests under way at once; also the windows that are pulled at once.
# in_flight_max = {IN_FLIGHT_MAX}
# A cap of your own. The service's limit is learned from its answers, so this is rarely needed.
# requests_per_sec_max = 3.0
# The longest wait that is sat out when the service says to come back later. A longer one ends the run; the next goes on.
# patience_secs = {PATIENCE_SECS}

[streams.responses]
# Whether the stream is read.
# enabled = true
# Optional parts of a response. Without with_deleted_responses a deleted answer cannot be told from a purged one.
flags = ["with_deleted_responses"]
# flags = ["with_deleted_responses", "with_urls", "with_meta", "with_custom_metadata", "with_snapshots"]
# Rows of a page that a run asks for, at most 1000.
# page_rows = 1000
# Answers younger than this are left for the next run.
# settle_secs = {SETTLE_SECS}
# Edits and deletions show only to those who look again: how often, by the age of the answers.
# rescan = ["3d every run", "30d daily", "365d weekly", "all monthly"]
# Where the first sync begins; without it, {days} days back. Older answers come with `studysync backfill --from`.
# since = "2026-01-01"

[streams.responses.drift]
# What becomes of fields that the contract does not know, and of values that their column cannot take:
#   "evolve"         kept, as JSON beside the columns; columns never change, and nothing is lost
#   "freeze"         the window is not applied and the stream stands still, with exit code 1, until this says something else
#   "discard_row"    the record goes to the table rejects, with its text; exit code 3 for new ones
#   "discard_value"  the value is left out; the archive has it
# Another mode counts from the next look at a window on, and at once for all of them after `studysync replay`.
# unknown_fields = "evolve"
# type_clashes = "evolve"

[streams.surveys]
# May be called [streams.studies].
# Whether the stream is read.
# enabled = true
# The states of surveys that are read; without it, all of them. Surveys in other states stay as they were stored.
# statuses = ["NEW", "IN_PROGRESS", "PAUSED", "COMPLETED", "DRAFT", "ARCHIVED"]
# As above, under [streams.surveys.drift] and [streams.themes.drift].

[streams.themes]
# Whether the stream is read.
# enabled = true

[streams.users]
# Off: people are asked for one by one, a request each. Asked for is who is named in answers (external_user_id) and new, or was
# asked for longer ago than this; and whom the service did not know (404) after the other.
# enabled = false
# refresh_after = "{REFRESH_AFTER}"
# ask_again_after = "{ASK_AGAIN_AFTER}"

[warehouse]
# The DuckDB file. One warehouse or both.
duckdb = "warehouse.duckdb"
# The folder of Parquet files.
# parquet = "warehouse-parquet"
# Parquet is cut by "month" or by "day".
# parquet_partition = "month"
# Memory of the whole program, within a quarter; an engine that has more than its share spills to disk. At least {mib_min} for each
# warehouse. More than this is hardly faster.
# memory_limit_mb = {mib}
# An analyst's session keeps a DuckDB file locked: how long a run waits for it, before it gives up with exit code 5.
# lock_wait_secs = {LOCK_WAIT_SECS}
# A read-only copy of the DuckDB file, replaced in one step at the end of each run that changed it: who reads it never waits for a
# run, and keeps none waiting. The first copy is for this user alone; later copies keep the mode, owner and group of the one before.
# publish = "analytics.duckdb"
# An index of words in the DuckDB file for search_answers, by DuckDB's extension fts, which must be installed: nothing is downloaded.
# A run that changed answers makes the whole index again, which takes about 13 seconds for a million responses.
# full_text_search = false
# Where DuckDB keeps its extensions, if not in ~/.duckdb/extensions.
# extension_directory = "/opt/duckdb/extensions"

[state]
# The file of the checkpoints.
# path = "{STATE_PATH}"

[archive]
# The exact pages of every scan, compressed: every table can be built again from them. "none" keeps nothing beyond the scan.
# One folder holds the pages of one state file. Beside a state file of another name the default is NAME.sqlite.{ARCHIVE_FOLDER}.
# path = "studysync-state/{ARCHIVE_FOLDER}"
# How long they stay; without it, for ever.
# keep_days = 400

[erase]
# What becomes of sessions that the service no longer returns, as after a purge that somebody asked for there: "keep" leaves their
# rows, marked with _vanished_at; "erase" removes rows, history and archived records after some days, with a receipt.
# on_vanish = "keep"
# After how many days.
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
