//! The table `erasures`: a receipt of each erasure. A receipt does not name the erased person.

use super::{
    access::{record_columns, records_in, upsert_records},
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
    records_in(store, contract(TABLE)?, &Filter::all(), read_record)
}

record_columns!(ErasureRecord {
    erasure_id: text "erasure_id",
    kind: text "kind",
    requested_ms: moment_ms "requested_at",
    finished_ms: moment_ms "finished_at" and "_synced_at",
    people: integer "people",
    identifiers: integer "identifiers",
    not_followed: integer "not_followed",
    purge_requests: text "purge_requests",
    delay_seconds: integer_or_null "delay_seconds",
    suppressed_from_ms: moment_ms_or_null "suppressed_from",
    removed: text "removed",
    searched: text "searched",
    mentions: integer "mentions",
    redacted: integer "redacted",
    outcome: text "outcome",
    service_checked_ms: moment_ms_or_null "service_checked_at",
    service_users_checked: integer_or_null "service_users_checked",
    suppression_ended_ms: moment_ms_or_null "suppression_ended_at",
    run_id: run_id "_run_id",
});

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
