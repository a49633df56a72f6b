//! The tables `webhook_events` and `webhook_questions`: the events that webhooks delivered, and their questions.

use std::{collections::HashSet, sync::Arc};

use arrow::{
    array::{Array as _, BooleanArray, RecordBatch, UInt64Array},
    compute::{filter_record_batch, is_not_null, kernels::zip::zip, take},
};

use super::{access::add_rows, cells::Stamp, status_changes};
use crate::{
    load::{
        EventRows, LoadError, ParseAgain,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TableChange, TimeRange, number_column, text_column},
    },
    model::{DAY_MS, EventKind},
    schema::{Origin, RECORD_COLUMN, Table},
};

const TABLE: &str = "webhook_events";
const QUESTIONS: &str = "webhook_questions";
/// How long before a delivery its event is searched among the stored events, in microseconds. An event that was first
/// delivered still earlier is stored a second time.
const DUPLICATE_LOOKBACK_US: i64 = 31 * DAY_MS * 1000;

/// Adds events, their questions, and the changes of survey status that the events report. Skips events that are stored
/// already. Returns the number of added events.
pub(in crate::load) fn add(store: &mut BufferedStore, events: &EventRows) -> Result<u64, LoadError> {
    let table = contract(TABLE)?;
    let new = new_events(store, table, &events.flat.events)?;
    if new.num_rows() == 0 {
        return Ok(0);
    }
    let stamp = Stamp { run_id: &events.run_id, at_ms: events.applied_ms };
    let rows = stamp.stamp_rows(table, &new)?;
    let mut change = TableChange::new(table);
    change.add(rows.clone());
    store.change(change)?;
    add_questions(store, &new, events.flat.questions.as_ref(), stamp)?;
    let mut kinds = text_column(&rows, "kind")?.iter().flatten();
    if kinds.any(|kind| kind == EventKind::StudyStatusChanged.name()) {
        let reports = status_changes::stored_reports(store)?;
        status_changes::update(store, &reports, None, stamp)?;
    }
    Ok(rows.num_rows() as u64)
}

/// Adds the rows of `questions` that belong to new events. `new` are the rows of the new events.
fn add_questions(
    store: &mut BufferedStore,
    new: &RecordBatch,
    questions: Option<&RecordBatch>,
    stamp: Stamp<'_>,
) -> Result<(), LoadError> {
    let Some(questions) = questions else { return Ok(()) };
    let table = contract(QUESTIONS)?;
    let records: HashSet<i64> = number_column(new, RECORD_COLUMN)?.values().iter().copied().collect();
    let of_new: BooleanArray =
        number_column(questions, RECORD_COLUMN)?.values().iter().map(|record| Some(records.contains(record))).collect();
    let rows = filter_record_batch(questions, &of_new).map_err(invalid_rows(table))?;
    add_rows(store, table, stamp.stamp_rows(table, &rows)?)
}

/// Copies all events of one store to another, and returns their number. `parse_again` parses the bodies: they give the
/// questions, and the values of columns that are NULL. Other stored values are copied unchanged.
pub(in crate::load) fn copy(
    from: &mut BufferedStore,
    to: &mut BufferedStore,
    parse_again: &ParseAgain<'_>,
) -> Result<u64, LoadError> {
    let (table, questions) = (contract(TABLE)?, contract(QUESTIONS)?);
    let mut copied = 0;
    from.read(table, &table.column_names(), &Filter::all(), &mut |stored| {
        let parsed = parse_again(&stored).map_err(invalid_rows(table))?;
        copied += stored.num_rows() as u64;
        add_rows(to, table, with_nulls_filled(table, &stored, &parsed.events)?)?;
        match &parsed.questions {
            Some(rows) => add_rows(to, questions, with_parent_stamps(questions, rows, &stored)?),
            None => Ok(()),
        }
    })?;
    Ok(copied)
}

/// Returns the stored rows, with each NULL replaced by the value of `parsed`, which has the same rows in the same
/// order.
fn with_nulls_filled(
    table: &'static Table,
    stored: &RecordBatch,
    parsed: &RecordBatch,
) -> Result<RecordBatch, LoadError> {
    let mut columns = Vec::with_capacity(stored.num_columns());
    for (field, column) in stored.schema().fields().iter().zip(stored.columns()) {
        columns.push(match parsed.column_by_name(field.name()) {
            Some(parsed_column) if column.null_count() > 0 => {
                let is_stored = is_not_null(column).map_err(invalid_rows(table))?;
                zip(&is_stored, column, parsed_column).map_err(invalid_rows(table))?
            }
            _ => Arc::clone(column),
        });
    }
    RecordBatch::try_new(stored.schema(), columns).map_err(invalid_rows(table))
}

/// Returns child rows, with the columns that the loader fills (such as `_run_id`) copied from their parent rows. In
/// `rows`, the column `_record` of a child row must be the index of its parent row in `stored`.
fn with_parent_stamps(
    child: &'static Table,
    rows: &RecordBatch,
    stored: &RecordBatch,
) -> Result<RecordBatch, LoadError> {
    let parents = UInt64Array::from_iter_values(
        number_column(rows, RECORD_COLUMN)?.values().iter().map(|record| record.unsigned_abs()),
    );
    let mut columns = Vec::with_capacity(child.columns.len());
    for column in &child.columns {
        let source = if column.origin == Origin::Load { stored } else { rows };
        let values = source.column_by_name(&column.name);
        let values = values.ok_or_else(|| LoadError::Bug(format!("rows of {} without {}", child.name, column.name)))?;
        columns.push(match column.origin {
            Origin::Load => take(values, &parents, None).map_err(invalid_rows(child))?,
            _ => Arc::clone(values),
        });
    }
    RecordBatch::try_new(child.full_schema(), columns).map_err(invalid_rows(child))
}

/// Returns the rows of events that are not stored yet. If several rows are of one event, only the first is returned.
fn new_events(store: &mut BufferedStore, table: &'static Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let Some(received) = TimeRange::over(table, std::slice::from_ref(rows))? else { return Ok(rows.slice(0, 0)) };
    let search_range = TimeRange { start_us: received.start_us.saturating_sub(DUPLICATE_LOOKBACK_US), ..received };
    let wanted = KeySet::of(vec!["event_key"], std::slice::from_ref(rows))?;
    let mut known = KeySet::new(vec!["event_key"]);
    let filter = Filter::within(Some(search_range)).with_keys(&wanted);
    store.read(table, &["event_key"], &filter, &mut |rows| known.add(&rows))?;
    let known = known.contains(rows)?;
    let mut seen = HashSet::new();
    let keys = text_column(rows, "event_key")?.iter();
    let is_new = |(key, is_known): (_, bool)| Some(seen.insert(key) && !is_known);
    let kept: BooleanArray = keys.zip(known.iter()).map(is_new).collect();
    filter_record_batch(rows, &kept).map_err(invalid_rows(table))
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::Int64Array,
        datatypes::{DataType, Field, Schema},
    };

    use super::{
        super::{
            cells::Cell,
            fixture::{Cells, memory, put, rows_of, shown},
        },
        *,
    };
    use crate::model::{FlatEvents, RunId};

    const DAY_US: i64 = DAY_MS * 1000;

    /// Events as `flatten` makes them: without the columns that are filled here.
    fn events(run_id: &str, rows: &[&Cells<'_>]) -> EventRows {
        let table = contract(TABLE).unwrap();
        let flat: Vec<&str> = table.flat_columns().map(|column| column.name.as_str()).collect();
        let rows = crate::load::store::project(&rows_of(TABLE, rows), &flat).unwrap();
        EventRows {
            flat: FlatEvents { events: numbered(rows), questions: None },
            run_id: RunId(run_id.into()),
            applied_ms: 5,
        }
    }

    /// Returns the rows with the numbers of their deliveries.
    fn numbered(rows: RecordBatch) -> RecordBatch {
        let places = Int64Array::from_iter_values(0..rows.num_rows() as i64);
        let schema = rows.schema();
        let field = Arc::new(Field::new(RECORD_COLUMN, DataType::Int64, false));
        let fields: Vec<_> = schema.fields().iter().cloned().chain([field]).collect();
        let columns = rows.columns().iter().cloned().chain([Arc::new(places) as _]).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    /// Questions with the number of their delivery, the key of their event and their text.
    fn questions(asked: &[(i64, &str, &str)]) -> RecordBatch {
        let table = contract(QUESTIONS).unwrap();
        let flat: Vec<&str> = table.flat_columns().map(|column| column.name.as_str()).collect();
        let cells: Vec<_> = asked
            .iter()
            .map(|(_, key, text)| {
                [
                    ("event_key", Cell::Text(key)),
                    ("received_at", Cell::Moment(10)),
                    ("question_ordinal", Cell::Integer(1)),
                    ("question_text", Cell::Text(text)),
                ]
            })
            .collect();
        let rows = rows_of(QUESTIONS, &cells.iter().map(|cells| cells.as_slice()).collect::<Vec<_>>());
        let rows = crate::load::store::project(&rows, &flat).unwrap();
        let numbered = numbered(rows);
        let places = Int64Array::from_iter_values(asked.iter().map(|(place, ..)| *place));
        let mut columns = numbered.columns().to_vec();
        columns.pop();
        columns.push(Arc::new(places));
        RecordBatch::try_new(numbered.schema(), columns).unwrap()
    }

    fn delivered<'a>(key: &'a str, received_us: i64, raw: &'a str) -> [(&'a str, Cell<'a>); 4] {
        [
            ("event_key", Cell::Text(key)),
            ("kind", Cell::Text("answer_submitted")),
            ("received_at", Cell::Moment(received_us)),
            ("raw", Cell::Text(raw)),
        ]
    }

    fn status<'a>(key: &'a str, survey: i64, received_us: i64, from_to: [&'a str; 2]) -> [(&'a str, Cell<'a>); 6] {
        [
            ("event_key", Cell::Text(key)),
            ("kind", Cell::Text(EventKind::StudyStatusChanged.name())),
            ("received_at", Cell::Moment(received_us)),
            ("survey_id", Cell::Integer(survey)),
            ("old_status", Cell::Text(from_to[0])),
            ("status", Cell::Text(from_to[1])),
        ]
    }

    fn stored(store: &mut BufferedStore) -> Vec<String> {
        shown(store, TABLE, &["event_key", "raw", "_run_id", "_synced_at"])
    }

    fn changes(store: &mut BufferedStore) -> Vec<String> {
        let columns = ["survey_id", "changed_at", "old_status", "new_status", "seen_by", "_run_id"];
        shown(store, "survey_status_changes", &columns)
    }

    #[test]
    fn p2_an_event_is_added_once_however_often_it_is_delivered() {
        let (_shelf, mut store) = memory();
        let first =
            events("r1", &[&delivered("a", 10, "first"), &delivered("b", 11, "b"), &delivered("a", 12, "second")]);
        assert_eq!(add(&mut store, &first).unwrap(), 2);
        let expected = ["a | first | r1 | 1970-01-01T00:00:00.005", "b | b | r1 | 1970-01-01T00:00:00.005"];
        assert_eq!(stored(&mut store), expected);
        assert_eq!(add(&mut store, &first).unwrap(), 0, "while the first rows are uncommitted");
        store.commit("test").unwrap();
        assert_eq!(add(&mut store, &first).unwrap(), 0);
        assert!(!store.has_changes());
        let next = events("r2", &[&delivered("b", 20, "again"), &delivered("c", 21, "c")]);
        assert_eq!(add(&mut store, &next).unwrap(), 1);
        assert_eq!(stored(&mut store)[2], "c | c | r2 | 1970-01-01T00:00:00.005");
        assert_eq!(add(&mut store, &events("r3", &[])).unwrap(), 0);
    }

    #[test]
    fn p2_questions_are_added_with_their_event_and_once() {
        let (_shelf, mut store) = memory();
        let mut first =
            events("r1", &[&delivered("a", 10, "first"), &delivered("a", 10, "again"), &delivered("b", 10, "b")]);
        first.flat.questions = Some(questions(&[(0, "a", "Why?"), (1, "a", "Why?"), (2, "b", "How?")]));
        assert_eq!(add(&mut store, &first).unwrap(), 2);
        assert_eq!(add(&mut store, &first).unwrap(), 0);
        let stored = shown(&mut store, QUESTIONS, &["event_key", "question_text", "_run_id"]);
        assert_eq!(stored, ["a | Why? | r1", "b | How? | r1"]);
    }

    #[test]
    fn an_event_is_known_for_31_days() {
        for (later_us, added) in [(31 * DAY_US, 0), (31 * DAY_US + 1, 1)] {
            let (_shelf, mut store) = memory();
            add(&mut store, &events("r1", &[&delivered("a", 1000, "first")])).unwrap();
            let again = events("r2", &[&delivered("a", 1000 + later_us, "second")]);
            assert_eq!(add(&mut store, &again).unwrap(), added, "{later_us}");
            assert_eq!(stored(&mut store).len() as u64, 1 + added);
        }
    }

    #[test]
    fn a_reported_change_follows_the_last_known_one() {
        let (_shelf, mut store) = memory();
        let seen: [(&str, Cell<'_>); 5] = [
            ("survey_id", Cell::Integer(1)),
            ("changed_at", Cell::Moment(1000)),
            ("new_status", Cell::Text("DRAFT")),
            ("seen_by", Cell::Text("scan")),
            ("scanned_at", Cell::Moment(1000)),
        ];
        put(&mut store, "survey_status_changes", &[&seen]);
        let delivered = events(
            "r1",
            &[
                &status("later", 1, 3000, ["LIVE", "PAUSED"]),
                &status("a", 1, 2000, ["DRAFT", "LIVE"]),
                &status("of nobody", 2, 2000, ["DRAFT", "LIVE"]),
                &status("no change", 1, 4000, ["PAUSED", "PAUSED"]),
            ],
        );
        assert_eq!(add(&mut store, &delivered).unwrap(), 4);
        let expected = [
            "1 | 1970-01-01T00:00:00.001 | NULL | DRAFT | scan | ",
            "1 | 1970-01-01T00:00:00.002 | DRAFT | LIVE | webhook | r1",
            "1 | 1970-01-01T00:00:00.003 | LIVE | PAUSED | webhook | r1",
        ];
        assert_eq!(changes(&mut store), expected);
        // The same deliveries bring no event, and so no change.
        assert_eq!(add(&mut store, &delivered).unwrap(), 0);
        assert_eq!(changes(&mut store), expected);
    }

    #[test]
    fn a_change_seen_by_a_scan_first_is_one_row_at_the_earlier_time() {
        let (_shelf, mut store) = memory();
        for (at_us, old, new) in [(1000, Cell::Null, "DRAFT"), (9000, Cell::Text("DRAFT"), "LIVE")] {
            let seen: [(&str, Cell<'_>); 6] = [
                ("survey_id", Cell::Integer(1)),
                ("changed_at", Cell::Moment(at_us)),
                ("old_status", old),
                ("new_status", Cell::Text(new)),
                ("seen_by", Cell::Text("scan")),
                ("scanned_at", Cell::Moment(at_us)),
            ];
            put(&mut store, "survey_status_changes", &[&seen]);
        }
        store.commit("test").unwrap();
        add(&mut store, &events("r1", &[&status("a", 1, 5000, ["DRAFT", "LIVE"])])).unwrap();
        add(&mut store, &events("r2", &[&status("b", 1, 5001, ["DRAFT", "LIVE"])])).unwrap();
        let expected = [
            "1 | 1970-01-01T00:00:00.001 | NULL | DRAFT | scan | ",
            "1 | 1970-01-01T00:00:00.005 | DRAFT | LIVE | both | r1",
        ];
        assert_eq!(changes(&mut store), expected);
    }

    #[test]
    fn a_report_of_another_environment_is_no_change() {
        let (_shelf, mut store) = memory();
        let seen =
            [("survey_id", Cell::Integer(1)), ("new_status", Cell::Text("DRAFT")), ("seen_by", Cell::Text("scan"))];
        put(&mut store, "survey_status_changes", &[&seen]);
        let mut delivered = status("a", 1, 2000, ["DRAFT", "LIVE"]);
        delivered[1].1 = Cell::Text(EventKind::OtherEnvironment.name());
        assert_eq!(add(&mut store, &events("r1", &[&delivered])).unwrap(), 1);
        assert_eq!(changes(&mut store).len(), 1);
    }

    #[test]
    fn every_event_is_copied_to_another_store() {
        let (_shelf, mut from) = memory();
        let (_other, mut to) = memory();
        // Each body contains a theme and a question.
        let again = |rows: &RecordBatch| {
            let cells: Vec<_> = (0..rows.num_rows() as i64)
                .map(|at| {
                    [
                        ("event_key", Cell::Text("other")),
                        ("kind", Cell::Text("other")),
                        ("received_at", Cell::Moment(at)),
                        ("body_hash", Cell::Text("other")),
                        ("theme_name", Cell::Text("from the body")),
                    ]
                })
                .collect();
            let events = rows_of(TABLE, &cells.iter().map(|cells| cells.as_slice()).collect::<Vec<_>>());
            let asked: Vec<_> = (0..rows.num_rows() as i64).map(|at| (at, "a", "Why?")).collect();
            Ok(FlatEvents { events, questions: Some(questions(&asked)) })
        };
        assert_eq!(copy(&mut from, &mut to, &again).unwrap(), 0);
        let keys: Vec<String> = (0..500).map(|number| format!("event {number:03}")).collect();
        let rows: Vec<_> = keys.iter().zip(0..).map(|(key, at)| delivered(key, at * DAY_US, "text")).collect();
        for some in rows.chunks(70) {
            put(&mut from, TABLE, &some.iter().map(|row| row.as_slice()).collect::<Vec<_>>());
        }
        assert_eq!(copy(&mut from, &mut to, &again).unwrap(), 500);
        assert_eq!(stored(&mut to), stored(&mut from));
        let columns = ["event_key", "received_at", "theme_name"];
        let (before, after) = (shown(&mut from, TABLE, &columns), shown(&mut to, TABLE, &columns));
        let filled: Vec<String> = before.iter().map(|row| row.replace("NULL", "from the body")).collect();
        assert_eq!(after, filled, "what was there stays");
        assert_eq!(shown(&mut to, QUESTIONS, &["question_text", "_run_id"]).len(), 500);
        to.commit("test").unwrap();
        assert_eq!(stored(&mut to).len(), 500);
    }
}
