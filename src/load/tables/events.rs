//! `webhook_events`: what webhooks delivered.

use std::collections::HashSet;

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};

use super::{access::copy_rows, cells::Stamp, status_changes};
use crate::{
    load::{
        EventRows, LoadError,
        contract::contract,
        error::unfit,
        store::{BufferedStore, Filter, KeySet, TableChange, TimeBounds, text_column},
    },
    model::DAY_MS,
    schema::Table,
};

const TABLE: &str = "webhook_events";
/// An event that was delivered so long before is not looked for: it is stored once more.
const KNOWN_FOR_US: i64 = 31 * DAY_MS * 1000;

/// Adds events, and the changes of survey status that they report. An event that the store has already is left out: the same
/// deliveries can be added any number of times. Returns the events added.
pub(in crate::load) fn add(store: &mut BufferedStore, events: &EventRows) -> Result<u64, LoadError> {
    let table = contract(TABLE)?;
    let new = new_events(store, table, &events.rows)?;
    if new.num_rows() == 0 {
        return Ok(0);
    }
    let stamp = Stamp { run_id: &events.run_id, at_ms: events.applied_ms };
    let rows = stamp.on(table, &new)?;
    let mut change = TableChange::new(table);
    change.add(rows.clone());
    store.change(change)?;
    status_changes::add(store, &rows, stamp)?;
    Ok(rows.num_rows() as u64)
}

/// Adds all events of one store to another, and returns how many there are.
pub(in crate::load) fn copy(from: &mut BufferedStore, to: &mut BufferedStore) -> Result<u64, LoadError> {
    copy_rows(from, to, contract(TABLE)?, &Filter::all())
}

/// The first row of each event that the store does not have.
fn new_events(store: &mut BufferedStore, table: &'static Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let Some(received) = TimeBounds::over(table, std::slice::from_ref(rows))? else { return Ok(rows.slice(0, 0)) };
    let looked_at = TimeBounds { start_us: received.start_us.saturating_sub(KNOWN_FOR_US), ..received };
    let wanted = KeySet::of(vec!["event_key"], std::slice::from_ref(rows))?;
    let mut known = KeySet::new(vec!["event_key"]);
    let filter = Filter::within(Some(looked_at)).with_keys(&wanted);
    store.read(table, &["event_key"], &filter, &mut |rows| known.add(&rows))?;
    let known = known.contains(rows)?;
    let mut seen = HashSet::new();
    let keys = text_column(rows, "event_key")?.iter();
    let is_new = |(key, is_known): (_, bool)| Some(seen.insert(key) && !is_known);
    let kept: BooleanArray = keys.zip(known.iter()).map(is_new).collect();
    filter_record_batch(rows, &kept).map_err(unfit(table))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            cells::Cell,
            fixture::{Cells, memory, put, rows_of, shown},
        },
        *,
    };
    use crate::model::{EventKind, RunId};

    const DAY_US: i64 = DAY_MS * 1000;

    /// Events as `flatten` makes them: without the columns that are filled here.
    fn events(run_id: &str, rows: &[&Cells<'_>]) -> EventRows {
        let table = contract(TABLE).unwrap();
        let flat: Vec<&str> = table.flat_columns().map(|column| column.name.as_str()).collect();
        let rows = crate::load::store::project(&rows_of(TABLE, rows), &flat).unwrap();
        EventRows { rows, run_id: RunId(run_id.into()), applied_ms: 5 }
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
        assert_eq!(add(&mut store, &first).unwrap(), 0, "while the first rows wait for a commit");
        store.commit("test").unwrap();
        assert_eq!(add(&mut store, &first).unwrap(), 0);
        assert!(!store.has_changes());
        let next = events("r2", &[&delivered("b", 20, "again"), &delivered("c", 21, "c")]);
        assert_eq!(add(&mut store, &next).unwrap(), 1);
        assert_eq!(stored(&mut store)[2], "c | c | r2 | 1970-01-01T00:00:00.005");
        assert_eq!(add(&mut store, &events("r3", &[])).unwrap(), 0);
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
    fn a_change_that_a_webhook_reports_follows_the_last_known_one() {
        let (_shelf, mut store) = memory();
        let seen: [(&str, Cell<'_>); 4] = [
            ("survey_id", Cell::Integer(1)),
            ("changed_at", Cell::Moment(1000)),
            ("new_status", Cell::Text("DRAFT")),
            ("seen_by", Cell::Text("scan")),
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
            let seen: [(&str, Cell<'_>); 5] = [
                ("survey_id", Cell::Integer(1)),
                ("changed_at", Cell::Moment(at_us)),
                ("old_status", old),
                ("new_status", Cell::Text(new)),
                ("seen_by", Cell::Text("scan")),
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
    fn what_another_environment_reports_is_no_change() {
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
        assert_eq!(copy(&mut from, &mut to).unwrap(), 0);
        let keys: Vec<String> = (0..500).map(|number| format!("event {number:03}")).collect();
        let rows: Vec<_> = keys.iter().zip(0..).map(|(key, at)| delivered(key, at * DAY_US, "text")).collect();
        for some in rows.chunks(70) {
            put(&mut from, TABLE, &some.iter().map(|row| row.as_slice()).collect::<Vec<_>>());
        }
        assert_eq!(copy(&mut from, &mut to).unwrap(), 500);
        assert_eq!(stored(&mut to), stored(&mut from));
        to.commit("test").unwrap();
        assert_eq!(stored(&mut to).len(), 500);
    }
}
