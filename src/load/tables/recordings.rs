//! Recordings of VIDEOVOICE answers, to which rows of `response_media` link. Finds the recordings that are not fetched
//! yet, and writes the outcomes of fetches.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, Int64Array, Int64Builder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
        TimestampMicrosecondBuilder, UInt64Builder,
    },
    compute::take_record_batch,
};

use super::cells::Row;
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{
            BufferedStore, Filter, KeySet, TableChange, TimeRange, clamped_us, project, removal_columns, with_columns,
        },
    },
    model::RowStamp,
    schema::Table,
};

const MEDIA: &str = "response_media";
const RESPONSES: &str = "responses";
/// The columns from which recordings are read.
const COLUMNS: [&str; 9] = [
    "response_group_uid",
    "question_id",
    "upload_id",
    "download_url",
    "created_at",
    "recording_status",
    "recording_sha256",
    "recording_path",
    "recording_bytes",
];
/// Largest number of recordings whose rows are looked up or changed together, to limit the memory.
const ROWS_AT_ONCE: usize = 20_000;

/// A row of `response_media` with a link to a recording that is not fetched yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedRecording {
    pub response_group_uid: String,
    pub question_id: i64,
    /// The service's id of the upload; `None` if the row has none.
    pub upload_id: Option<String>,
    /// The link to the recording, which may have expired.
    pub link: String,
    /// Creation time of the response, epoch microseconds.
    pub created_us: i64,
    /// The outcome of an earlier fetch; `None` if there was no fetch.
    pub status: Option<String>,
    /// The hash of the stored recording, if its file is gone; otherwise `None`.
    pub sha256: Option<String>,
    /// True if the response is soft-deleted or vanished, so that its recording must not be fetched.
    pub is_gone: bool,
}

/// Some of the recordings that are not fetched yet: one page of the list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedRecordings {
    pub rows: Vec<WantedRecording>,
    /// The `until_us` with which [`wanted`] returns the next recordings; `None` if there are no more. Recordings with
    /// the oldest time of `rows` can be returned again.
    pub next_until_us: Option<i64>,
}

/// Recordings whose files are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRecordings {
    /// Number of recordings that the rows call stored.
    pub stored: u64,
    /// Number of these recordings whose files are gone.
    pub lost: u64,
    /// The newest of the lost recordings.
    pub rows: Vec<WantedRecording>,
}

/// The outcome of fetching a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingOutcome {
    /// The row whose recording was fetched.
    pub wanted: WantedRecording,
    /// "stored", or the reason why no recording was stored.
    pub status: String,
    /// The stored recording; `None` if it was not stored.
    pub stored: Option<StoredRecording>,
    /// The run that writes the outcome. `None` leaves the run and the time of the row as they are.
    pub stamp: Option<RowStamp>,
}

/// A recording that was fetched and stored as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecording {
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// Size of the file.
    pub bytes: u64,
    /// The media type of the file; `None` if it is unknown.
    pub media_type: Option<String>,
    /// The path of the file, relative to the folder of all recordings.
    pub path: String,
    /// When the recording was fetched, in epoch milliseconds.
    pub fetched_ms: i64,
}

/// Finds the newest recordings that are not fetched yet, of rows created at `until_us` (epoch microseconds) or before.
/// Returns at most `rows_max` recordings. If more than `rows_max` rows have the same creation time, some of them are
/// never returned.
pub(in crate::load) fn wanted(
    store: &mut BufferedStore,
    until_us: i64,
    rows_max: usize,
) -> Result<WantedRecordings, LoadError> {
    let mut wanted = Vec::new();
    store.read(contract(MEDIA)?, &COLUMNS, &Filter::all(), &mut |rows| {
        for index in 0..rows.num_rows() {
            let row = linked_row(Row { rows: &rows, index })?.filter(|row| row.sha256.is_none());
            wanted.extend(row.filter(|row| row.created_us <= until_us));
            // Older recordings are dropped from time to time, to limit the memory.
            if wanted.len() >= rows_max.saturating_mul(2) {
                keep_newest(&mut wanted, rows_max);
            }
        }
        Ok(())
    })?;
    keep_newest(&mut wanted, rows_max);
    for chunk in wanted.chunks_mut(ROWS_AT_ONCE) {
        mark_gone(store, chunk)?;
    }
    let oldest = wanted.last().map(|oldest| oldest.created_us).filter(|_| wanted.len() >= rows_max);
    let next_until_us = oldest.map(|oldest_us| oldest_us.min(until_us.saturating_sub(1)));
    Ok(WantedRecordings { rows: wanted, next_until_us })
}

/// Finds the recordings that rows call stored, and whose files are gone. `is_stored` returns true if the file with this
/// path and size is there. Returns at most `rows_max` rows, the newest.
pub(in crate::load) fn lost(
    store: &mut BufferedStore,
    is_stored: &dyn Fn(&str, u64) -> bool,
    rows_max: usize,
) -> Result<LostRecordings, LoadError> {
    let mut found = LostRecordings::default();
    store.read(contract(MEDIA)?, &COLUMNS, &Filter::all(), &mut |rows| {
        for index in 0..rows.num_rows() {
            let row = Row { rows: &rows, index };
            let Some(path) = row.text_or_null("recording_path")? else { continue };
            found.stored += 1;
            let bytes = row.integer_or_null("recording_bytes")?.and_then(|bytes| u64::try_from(bytes).ok());
            if is_stored(path, bytes.unwrap_or(0)) {
                continue;
            }
            found.lost += 1;
            found.rows.extend(linked_row(row)?);
            if found.rows.len() >= rows_max.saturating_mul(2) {
                keep_newest(&mut found.rows, rows_max);
            }
        }
        Ok(())
    })?;
    keep_newest(&mut found.rows, rows_max);
    for chunk in found.rows.chunks_mut(ROWS_AT_ONCE) {
        mark_gone(store, chunk)?;
    }
    Ok(found)
}

/// Sorts recordings by creation time, newest first, and drops all but the first `rows_max`.
fn keep_newest(wanted: &mut Vec<WantedRecording>, rows_max: usize) {
    wanted.sort_by_key(|wanted| Reverse(wanted.created_us));
    wanted.truncate(rows_max);
}

/// Returns the recording to which a row of `response_media` links; `None` if the row has no link.
fn linked_row(row: Row<'_>) -> Result<Option<WantedRecording>, LoadError> {
    let link = row.text_or_null("download_url")?.filter(|link| !link.is_empty());
    let Some(link) = link else { return Ok(None) };
    Ok(Some(WantedRecording {
        response_group_uid: row.text("response_group_uid")?.to_owned(),
        question_id: row.integer("question_id")?,
        upload_id: row.text_or_null("upload_id")?.map(str::to_owned),
        link: link.to_owned(),
        created_us: row.moment_us("created_at")?,
        status: row.text_or_null("recording_status")?.map(str::to_owned),
        sha256: row.text_or_null("recording_sha256")?.map(str::to_owned),
        is_gone: false,
    }))
}

/// Sets `is_gone` of each recording: true if its response is soft-deleted or vanished.
fn mark_gone(store: &mut BufferedStore, wanted: &mut [WantedRecording]) -> Result<(), LoadError> {
    let table = contract(RESPONSES)?;
    let columns = ["response_group_uid", "question_id", "created_at", "deleted_at", "_vanished_at"];
    let keys = keys_of(table, wanted.iter())?;
    let mut gone = HashSet::new();
    for range in TimeRange::clusters_of(table, keys.values())? {
        store.read(table, &columns, &Filter::within(range).with_keys(&keys), &mut |rows| {
            for index in 0..rows.num_rows() {
                let row = Row { rows: &rows, index };
                if row.moment_us_or_null("deleted_at")?.or(row.moment_us_or_null("_vanished_at")?).is_some() {
                    gone.insert((row.text("response_group_uid")?.to_owned(), row.integer("question_id")?));
                }
            }
            Ok(())
        })?;
    }
    for recording in wanted {
        recording.is_gone = gone.contains(&(recording.response_group_uid.clone(), recording.question_id));
    }
    Ok(())
}

/// Writes the outcomes of fetches into the rows of `response_media`, and returns the number of changed rows. An outcome
/// is skipped if its row has this outcome already, has another upload, or does not exist.
pub(in crate::load) fn write_outcomes(
    store: &mut BufferedStore,
    outcomes: &[RecordingOutcome],
) -> Result<u64, LoadError> {
    let table = contract(MEDIA)?;
    let mut outcomes: Vec<&RecordingOutcome> = outcomes.iter().collect();
    outcomes.sort_by_key(|outcome| outcome.wanted.created_us);
    let mut written = 0;
    for chunk in outcomes.chunks(ROWS_AT_ONCE) {
        let keys = keys_of(table, chunk.iter().map(|outcome| &outcome.wanted))?;
        let by_key: HashMap<(&str, i64), &RecordingOutcome> =
            chunk.iter().map(|outcome| ((key_of(&outcome.wanted)), *outcome)).collect();
        for range in TimeRange::clusters_of(table, keys.values())? {
            let mut change = TableChange::new(table);
            for rows in store.full_rows(table, &Filter::within(range).with_keys(&keys))? {
                let (rows, outcomes) = rows_to_change(table, &rows, &by_key)?;
                written += outcomes.len() as u64;
                change.remove(&project(&rows, &removal_columns(table))?)?;
                change.add(with_outcomes(table, &rows, &outcomes)?);
            }
            store.change(change)?;
        }
    }
    Ok(written)
}

/// Returns the session and the question of a recording: the key of its row in `response_media`.
fn key_of(wanted: &WantedRecording) -> (&str, i64) {
    (&wanted.response_group_uid, wanted.question_id)
}

/// Returns the keys of the rows of these recordings. `table` has one row for each answer; the keys have its
/// [`removal_columns`].
fn keys_of<'w>(table: &'static Table, wanted: impl Iterator<Item = &'w WantedRecording>) -> Result<KeySet, LoadError> {
    let mut sessions = StringBuilder::new();
    let (mut questions, mut times) = (Int64Builder::new(), TimestampMicrosecondBuilder::new());
    for recording in wanted {
        sessions.append_value(&recording.response_group_uid);
        questions.append_value(recording.question_id);
        times.append_value(recording.created_us);
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("response_group_uid", Arc::new(sessions.finish())),
        ("question_id", Arc::new(questions.finish())),
        ("created_at", Arc::new(times.finish())),
    ];
    let rows = RecordBatch::try_from_iter(columns).map_err(invalid_rows(table))?;
    KeySet::of(removal_columns(table), &[rows])
}

/// Returns the rows of `rows` that an outcome changes, and the outcome for each, in the same order. An outcome changes
/// no row that has the same status and file, or another upload.
fn rows_to_change<'o>(
    table: &'static Table,
    rows: &RecordBatch,
    by_key: &HashMap<(&str, i64), &'o RecordingOutcome>,
) -> Result<(RecordBatch, Vec<&'o RecordingOutcome>), LoadError> {
    let mut outcomes = Vec::new();
    let mut indexes = UInt64Builder::new();
    for index in 0..rows.num_rows() {
        let row = Row { rows, index };
        let outcome = by_key.get(&(row.text("response_group_uid")?, row.integer("question_id")?));
        let upload_id = row.text_or_null("upload_id")?;
        let outcome = outcome.filter(|outcome| outcome.wanted.upload_id.as_deref() == upload_id);
        let (status, sha256) = (row.text_or_null("recording_status")?, row.text_or_null("recording_sha256")?);
        let sha256_of = |outcome: &RecordingOutcome| outcome.stored.as_ref().map(|stored| stored.sha256.clone());
        let is_new = |outcome: &RecordingOutcome| {
            status != Some(&outcome.status) || sha256.map(str::to_owned) != sha256_of(outcome)
        };
        let outcome = outcome.filter(|outcome| is_new(outcome));
        indexes.extend(outcome.map(|_| Some(index as u64)));
        outcomes.extend(outcome);
    }
    let rows = take_record_batch(rows, &indexes.finish()).map_err(invalid_rows(table))?;
    Ok((rows, outcomes))
}

/// Returns `rows` with the values of their outcomes. `outcomes` has one outcome for each row, in the same order.
fn with_outcomes(
    table: &'static Table,
    rows: &RecordBatch,
    outcomes: &[&RecordingOutcome],
) -> Result<RecordBatch, LoadError> {
    let stored = || outcomes.iter().map(|outcome| outcome.stored.as_ref());
    let texts = |text: fn(&StoredRecording) -> Option<&str>| -> ArrayRef {
        Arc::new(stored().map(|stored| stored.and_then(text)).collect::<StringArray>())
    };
    let bytes = stored().map(|stored| stored.map(|stored| i64::try_from(stored.bytes).unwrap_or(i64::MAX)));
    let fetched = stored().map(|stored| stored.map(|stored| stored.fetched_ms.saturating_mul(1000)));
    let (mut run_ids, mut synced) = (StringBuilder::new(), TimestampMicrosecondBuilder::new());
    for (index, outcome) in outcomes.iter().enumerate() {
        let row = Row { rows, index };
        match &outcome.stamp {
            Some(RowStamp { run_id, at_ms }) => {
                run_ids.append_value(&run_id.0);
                synced.append_value(clamped_us(at_ms.saturating_mul(1000)));
            }
            None => {
                run_ids.append_option(row.text_or_null("_run_id")?);
                synced.append_option(row.moment_us_or_null("_synced_at")?);
            }
        }
    }
    let new: HashMap<&str, ArrayRef> = HashMap::from([
        (
            "recording_status",
            Arc::new(outcomes.iter().map(|one| Some(&one.status)).collect::<StringArray>()) as ArrayRef,
        ),
        ("recording_sha256", texts(|stored| Some(&stored.sha256))),
        ("recording_media_type", texts(|stored| stored.media_type.as_deref())),
        ("recording_path", texts(|stored| Some(&stored.path))),
        ("recording_bytes", Arc::new(bytes.collect::<Int64Array>())),
        ("recording_fetched_at", Arc::new(fetched.collect::<TimestampMicrosecondArray>())),
        ("_run_id", Arc::new(run_ids.finish())),
        ("_synced_at", Arc::new(synced.finish())),
    ]);
    let schema = rows.schema();
    // The new columns are left out here, and added below.
    let kept = schema.fields().iter().zip(rows.columns()).filter(|(field, _)| !new.contains_key(field.name().as_str()));
    let columns = kept.map(|(field, column)| (field.name().as_str(), Arc::clone(column)));
    let changed = new.iter().map(|(name, column)| (*name, Arc::clone(column)));
    let rows =
        RecordBatch::try_from_iter_with_nullable(columns.chain(changed).map(|(name, column)| (name, column, true)));
    let rows = rows.map_err(invalid_rows(table))?;
    with_columns(table, &table.full_schema(), &rows)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            cells::Cell,
            fixture::{memory, put, shown},
        },
        *,
    };
    use crate::model::RunId;

    fn filled() -> BufferedStore {
        let (_shelf, mut store) = memory();
        let media = |session: &'static str, at_us: i64, link: Cell<'static>| {
            [
                ("response_group_uid", Cell::Text(session)),
                ("question_id", Cell::Integer(7)),
                ("created_at", Cell::Moment(at_us)),
                ("upload_id", Cell::Text("u")),
                ("download_url", link),
                ("_run_id", Cell::Text("before")),
            ]
        };
        let link = Cell::Text("https://m/x");
        for row in [
            media("a", 10, link),
            media("b", 30, link),
            media("c", 30, link),
            media("d", 50, link),
            media("e", 60, Cell::Null),
        ] {
            put(&mut store, MEDIA, &[&row]);
        }
        let answer = |session: &'static str, at_us: i64, gone: &'static str| {
            [
                ("response_group_uid", Cell::Text(session)),
                ("question_id", Cell::Integer(7)),
                ("created_at", Cell::Moment(at_us)),
                (gone, Cell::Moment(99)),
            ]
        };
        put(&mut store, RESPONSES, &[&answer("a", 10, "deleted_at"), &answer("b", 30, "_vanished_at")]);
        put(&mut store, RESPONSES, &[&answer("d", 50, "updated_at")]);
        store.commit("test").unwrap();
        store
    }

    fn sessions(store: &mut BufferedStore, until_us: i64, rows_max: usize) -> Vec<String> {
        let wanted = wanted(store, until_us, rows_max).unwrap();
        wanted.rows.into_iter().map(|one| one.response_group_uid + if one.is_gone { " gone" } else { "" }).collect()
    }

    #[test]
    fn missing_recordings_are_returned_newest_first_in_parts() {
        let mut store = filled();
        assert_eq!(
            sessions(&mut store, i64::MAX, 10),
            ["d", "b gone", "c", "a gone"],
            "without a link there is nothing to fetch"
        );
        assert_eq!(sessions(&mut store, i64::MAX, 1), ["d"]);
        assert_eq!(sessions(&mut store, 49, 2), ["b gone", "c"]);
        assert_eq!(sessions(&mut store, 29, 2), ["a gone"]);
        assert_eq!(sessions(&mut store, 9, 2), [""; 0]);
        let mut next = |until_us: i64, rows_max: usize| wanted(&mut store, until_us, rows_max).unwrap().next_until_us;
        assert_eq!((next(i64::MAX, 10), next(i64::MAX, 2), next(30, 1)), (None, Some(30), Some(29)));
    }

    #[test]
    fn p2_an_outcome_is_written_once_to_its_own_row() {
        let mut store = filled();
        let all = wanted(&mut store, i64::MAX, 10).unwrap().rows;
        let outcome = |wanted: &WantedRecording, sha256: Option<&str>| RecordingOutcome {
            wanted: wanted.clone(),
            status: if sha256.is_some() { "stored" } else { "refused" }.to_owned(),
            stored: sha256.map(|sha256| StoredRecording {
                sha256: sha256.to_owned(),
                bytes: 5,
                media_type: None,
                path: "p".to_owned(),
                fetched_ms: 1,
            }),
            stamp: Some(RowStamp { run_id: RunId("now".to_owned()), at_ms: 3 }),
        };
        let other = WantedRecording { upload_id: Some("another".to_owned()), ..all[2].clone() };
        let gone = WantedRecording { response_group_uid: "nobody".to_owned(), ..all[2].clone() };
        let outcomes =
            [outcome(&all[0], Some("f")), outcome(&all[1], None), outcome(&other, Some("x")), outcome(&gone, None)];
        assert_eq!(write_outcomes(&mut store, &outcomes).unwrap(), 2);
        let columns = ["response_group_uid", "recording_status", "recording_sha256", "recording_bytes", "_run_id"];
        let rows = shown(&mut store, MEDIA, &columns);
        assert_eq!(rows.len(), 5);
        for (session, wanted) in
            [("d", ["stored", "f", "5", "now"].as_slice()), ("b", &["refused", "now"]), ("c", &["before"])]
        {
            let row = rows.iter().find(|row| row.starts_with(session)).unwrap();
            assert!(wanted.iter().all(|value| row.contains(value)), "{row}");
        }
        assert_eq!(write_outcomes(&mut store, &outcomes).unwrap(), 0, "the rows have these outcomes already");
        let mut left = sessions(&mut store, i64::MAX, 10);
        left.sort();
        assert_eq!(left, ["a gone", "b gone", "c"]);
        // Without a stamp the rows keep theirs.
        let unstamped = RecordingOutcome { stamp: None, ..outcome(&all[2], Some("c")) };
        assert_eq!(write_outcomes(&mut store, &[unstamped]).unwrap(), 1);
        assert!(shown(&mut store, MEDIA, &columns).iter().any(|row| row.contains("stored") && row.contains("before")));
        // A file that is gone, or has another size, is found by its row.
        let mut lost = |is_stored: &dyn Fn(&str, u64) -> bool| {
            let found = lost(&mut store, is_stored, 1).unwrap();
            let rows: Vec<_> = found.rows.into_iter().map(|row| (row.response_group_uid, row.sha256)).collect();
            (found.stored, found.lost, rows)
        };
        assert_eq!(lost(&|path, bytes| (path, bytes) == ("p", 5)), (2, 0, vec![]));
        assert_eq!(lost(&|_, _| false), (2, 2, vec![("d".to_owned(), Some("f".to_owned()))]));
    }
}
