//! The table `erasures`: a receipt of each erasure. A receipt does not name the erased person.

use super::{
    access::{records_in, upsert_records},
    cells::{Cell, Row},
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        store::{BufferedStore, Filter},
    },
    model::RunId,
};

const TABLE: &str = "erasures";

/// A row of `erasures`. Times are epoch milliseconds. `purge_requests`, `removed` and `searched` are JSON texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasureRecord {
    pub erasure_id: String,
    pub kind: String,
    pub requested_ms: i64,
    pub finished_ms: i64,
    /// Number of identifiers that the request for erasure named.
    pub people: i64,
    /// Number of identifiers that the erasure searched for: the named ones, and identifiers linked to them.
    pub identifiers: i64,
    /// Number of identifiers that were found but not searched for, because other people have them too.
    pub not_followed: i64,
    pub purge_requests: String,
    /// The delay before the purge that the request named to the service; `None` means the service's own delay.
    pub delay_seconds: Option<i64>,
    /// Time by the service's clock from which scans, replays and webhooks leave the people out.
    pub suppressed_from_ms: Option<i64>,
    pub removed: String,
    pub searched: String,
    /// Number of rows and records of other people that mention an identifier and were left unchanged.
    pub mentions: i64,
    /// Number of rows and records of other people in which an identifier was replaced.
    pub redacted: i64,
    pub outcome: String,
    /// When a check after the delay showed that the service had purged the people; `None` until that check.
    pub service_checked_ms: Option<i64>,
    /// Number of user ids that this check requested from the service, which knew none of them; `None` until the check.
    pub service_users_checked: Option<i64>,
    /// When `erase --end` ended the suppression of all people of the erasure; `None` if it did not.
    pub suppression_ended_ms: Option<i64>,
    pub run_id: RunId,
}

impl ErasureRecord {
    /// Returns true if the people are kept out of scans, replays and webhooks, until a run finds that the service has
    /// purged them, or `erase --end` ends that.
    pub fn is_suppressed(&self) -> bool {
        self.suppressed_from_ms.is_some() && self.service_checked_ms.is_none() && self.suppression_ended_ms.is_none()
    }
}

/// Adds receipts, and removes earlier receipts of the same erasures. If several records are of one erasure, the last is
/// used.
pub(in crate::load) fn record(store: &mut BufferedStore, records: &[ErasureRecord]) -> Result<(), LoadError> {
    upsert_records(store, contract(TABLE)?, records, |record| &record.erasure_id, cell)
}

/// Returns all receipts, in no particular order.
pub(in crate::load) fn all(store: &mut BufferedStore) -> Result<Vec<ErasureRecord>, LoadError> {
    records_in(store, contract(TABLE)?, &Filter::all(), receipt)
}

/// Returns the value of a column of `erasures` for a receipt; NULL for an unknown column.
fn cell<'a>(column: &str, record: &'a ErasureRecord) -> Cell<'a> {
    match column {
        "erasure_id" => Cell::Text(&record.erasure_id),
        "kind" => Cell::Text(&record.kind),
        "requested_at" => Cell::at_ms(record.requested_ms),
        "finished_at" | "_synced_at" => Cell::at_ms(record.finished_ms),
        "people" => Cell::Integer(record.people),
        "identifiers" => Cell::Integer(record.identifiers),
        "not_followed" => Cell::Integer(record.not_followed),
        "purge_requests" => Cell::Text(&record.purge_requests),
        "delay_seconds" => Cell::integer_or_null(record.delay_seconds),
        "suppressed_from" => record.suppressed_from_ms.map_or(Cell::Null, Cell::at_ms),
        "removed" => Cell::Text(&record.removed),
        "searched" => Cell::Text(&record.searched),
        "mentions" => Cell::Integer(record.mentions),
        "redacted" => Cell::Integer(record.redacted),
        "outcome" => Cell::Text(&record.outcome),
        "service_checked_at" => record.service_checked_ms.map_or(Cell::Null, Cell::at_ms),
        "service_users_checked" => Cell::integer_or_null(record.service_users_checked),
        "suppression_ended_at" => record.suppression_ended_ms.map_or(Cell::Null, Cell::at_ms),
        "_run_id" => Cell::Text(&record.run_id.0),
        _ => Cell::Null,
    }
}

/// Reads a row of `erasures`.
fn receipt(row: Row<'_>) -> Result<ErasureRecord, LoadError> {
    Ok(ErasureRecord {
        erasure_id: row.text("erasure_id")?.to_owned(),
        kind: row.text("kind")?.to_owned(),
        requested_ms: row.moment_ms("requested_at")?,
        finished_ms: row.moment_ms("finished_at")?,
        people: row.integer("people")?,
        identifiers: row.integer("identifiers")?,
        not_followed: row.integer("not_followed")?,
        purge_requests: row.text("purge_requests")?.to_owned(),
        delay_seconds: row.integer_or_null("delay_seconds")?,
        suppressed_from_ms: row.moment_ms_or_null("suppressed_from")?,
        removed: row.text("removed")?.to_owned(),
        searched: row.text("searched")?.to_owned(),
        mentions: row.integer("mentions")?,
        redacted: row.integer("redacted")?,
        outcome: row.text("outcome")?.to_owned(),
        service_checked_ms: row.moment_ms_or_null("service_checked_at")?,
        service_users_checked: row.integer_or_null("service_users_checked")?,
        suppression_ended_ms: row.moment_ms_or_null("suppression_ended_at")?,
        run_id: RunId(row.text("_run_id")?.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::memory, *};

    fn record_of(id: &str, outcome: &str) -> ErasureRecord {
        ErasureRecord {
            erasure_id: id.into(),
            kind: "erase".into(),
            requested_ms: 1,
            finished_ms: 2,
            people: 3,
            identifiers: 4,
            not_followed: 5,
            purge_requests: "[]".into(),
            delay_seconds: Some(6),
            suppressed_from_ms: Some(7),
            removed: "{}".into(),
            searched: "{\"a\":1}".into(),
            mentions: 8,
            redacted: 9,
            outcome: outcome.into(),
            service_checked_ms: None,
            service_users_checked: None,
            suppression_ended_ms: None,
            run_id: RunId("run".into()),
        }
    }

    #[test]
    fn p9_a_receipt_replaces_an_earlier_one() {
        let (_shelf, mut store) = memory();
        record(&mut store, &[record_of("a", "resumable")]).unwrap();
        store.commit("test").unwrap();
        let bare = ErasureRecord { delay_seconds: None, suppressed_from_ms: None, ..record_of("b", "done") };
        record(&mut store, &[record_of("a", "failed"), record_of("a", "done"), bare.clone()]).unwrap();
        let mut found = all(&mut store).unwrap();
        found.sort_by(|left, right| left.erasure_id.cmp(&right.erasure_id));
        assert_eq!(found, [record_of("a", "done"), bare]);
    }
}
