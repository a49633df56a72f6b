//! The log of requests to the service, in a ring of limited size. Control calls are not logged.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum::{extract::Query, http::Uri};
use serde::{Deserialize, Serialize};

/// One request, as the log shows it. `arrived_us` and `completed_us` are microseconds of real time since the sandbox
/// started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// The number of the request, counted from 1.
    pub seq: u64,
    /// When the head of the request was read.
    pub arrived_us: u64,
    /// When the last byte of the answer was passed to the connection, or the connection broke. `None` while the request
    /// is being answered.
    pub completed_us: Option<u64>,
    /// GET, POST, ...
    pub method: String,
    /// Path, as sent.
    pub path: String,
    /// Query, decoded, in its order.
    pub query: Vec<(String, String)>,
    /// The status of the answer; 0 before the answer is known.
    pub status: u16,
    /// Rows in the answer.
    pub rows: u32,
    /// Bytes of the complete body after compression, even if a fault breaks off the body.
    pub bytes: u64,
    /// Microseconds from the arrival of the request to the end of a `Retry-After`; `None` if no `Retry-After` was in
    /// force.
    pub early_us: Option<u64>,
    /// For a request that was too early: microseconds since the `Retry-After` was sent. A small number may mean that
    /// the client had sent the request before.
    pub told_us_ago: Option<u64>,
    /// Number of concurrent requests when this request arrived, itself included.
    pub in_flight: u32,
    /// The name in `Faults` of the fault that struck the request; `None` if none did.
    pub fault: Option<String>,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<LogEntry>,
    /// `seq` of the first entry.
    first_seq: u64,
    in_flight: u32,
    in_flight_max: u32,
    /// The end of the `Retry-After` that ends last, and when this `Retry-After` was sent. Microseconds of real time.
    retry_after: Option<(u64, u64)>,
}

/// The log.
#[derive(Debug)]
pub(crate) struct RequestLog {
    ring: Mutex<Ring>,
    entries_max: usize,
}

impl RequestLog {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { ring: Mutex::new(Ring { first_seq: 1, ..Ring::default() }), entries_max: entries_max.max(1) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // A panic cannot leave the ring in an invalid state, because no change stops half-way.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a request that has arrived. Returns its number.
    pub(crate) fn arrive(&self, method: &str, target: &str, now_us: u64) -> u64 {
        let uri = target.parse::<Uri>().ok();
        let query = uri.as_ref().and_then(|uri| Query::<Vec<(String, String)>>::try_from_uri(uri).ok());
        let mut ring = self.ring();
        ring.in_flight += 1;
        ring.in_flight_max = ring.in_flight_max.max(ring.in_flight);
        if ring.entries.len() >= self.entries_max {
            ring.entries.pop_front();
            ring.first_seq += 1;
        }
        let retry_after = ring.retry_after.filter(|(until_us, _)| now_us < *until_us);
        let entry = LogEntry {
            seq: ring.first_seq + ring.entries.len() as u64,
            arrived_us: now_us,
            method: method.to_owned(),
            path: target.split('?').next().unwrap_or_default().to_owned(),
            query: query.map(|query| query.0).unwrap_or_default(),
            early_us: retry_after.map(|(until_us, _)| until_us - now_us),
            told_us_ago: retry_after.map(|(_, sent_us)| now_us.saturating_sub(sent_us)),
            in_flight: ring.in_flight,
            ..LogEntry::default()
        };
        let seq = entry.seq;
        ring.entries.push_back(entry);
        seq
    }

    /// Changes the entry of a request. Does nothing if the entry was dropped.
    fn change_entry(&self, seq: u64, change: impl FnOnce(&mut LogEntry)) {
        let mut ring = self.ring();
        let index = seq.checked_sub(ring.first_seq).and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| ring.entries.get_mut(index)) {
            change(entry);
        }
    }

    /// Records the answer of a request.
    pub(crate) fn answer(&self, seq: u64, status: u16, rows: u32, bytes: u64, fault: Option<&'static str>) {
        self.change_entry(seq, |entry| {
            (entry.status, entry.rows, entry.bytes) = (status, rows, bytes);
            entry.fault = fault.map(str::to_owned);
        });
    }

    /// Records that the answer was sent, or that its connection broke.
    pub(crate) fn complete(&self, seq: u64, now_us: u64) {
        self.change_entry(seq, |entry| entry.completed_us = Some(now_us));
        let mut ring = self.ring();
        ring.in_flight = ring.in_flight.saturating_sub(1);
    }

    /// Records a `Retry-After` that is sent now and ends at `until_us`. Does nothing if an earlier `Retry-After` ends
    /// later.
    pub(crate) fn note_retry_after(&self, until_us: u64, now_us: u64) {
        let mut ring = self.ring();
        if ring.retry_after.is_none_or(|(end_us, _)| end_us < until_us) {
            ring.retry_after = Some((until_us, now_us));
        }
    }

    /// Returns the entries from the number `seq` on, at most `entries_max`.
    pub(crate) fn since(&self, seq: u64, entries_max: usize) -> Vec<LogEntry> {
        let ring = self.ring();
        let skipped = usize::try_from(seq.saturating_sub(ring.first_seq)).unwrap_or(usize::MAX);
        ring.entries.iter().skip(skipped).take(entries_max).cloned().collect()
    }

    /// Clears the entries. Numbers of later requests continue, and the `Retry-After` stays.
    pub(crate) fn clear(&self) {
        let mut ring = self.ring();
        ring.first_seq += ring.entries.len() as u64;
        ring.entries.clear();
        ring.in_flight_max = ring.in_flight;
    }

    /// Returns three numbers: all requests so far, the requests that are being answered, and the maximum of the second
    /// number since the log was cleared.
    pub(crate) fn counts(&self) -> (u64, u32, u32) {
        let ring = self.ring();
        (ring.first_seq + ring.entries.len() as u64 - 1, ring.in_flight, ring.in_flight_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_drops_the_oldest_and_keeps_the_numbers() {
        let log = RequestLog::new(2);
        for at in 0..3 {
            log.arrive("GET", "/v1/responses?status=A%2CB&x=1", at * 10);
        }
        log.answer(1, 200, 5, 5, None);
        log.answer(3, 429, 0, 0, Some("rate_limit"));
        log.complete(3, 25);
        let entries = log.since(0, 10);
        assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(entries[1].query, [("status".into(), "A,B".into()), ("x".into(), "1".into())]);
        assert_eq!((entries[0].status, entries[0].completed_us), (0, None));
        assert_eq!((entries[1].status, entries[1].completed_us, entries[1].in_flight), (429, Some(25), 3));
        log.clear();
        assert_eq!(log.arrive("GET", "/", 40), 4);
    }

    #[test]
    fn a_request_before_the_told_time_is_early() {
        let log = RequestLog::new(9);
        log.note_retry_after(1000, 100);
        log.arrive("GET", "/", 400);
        log.arrive("GET", "/", 1000);
        let entries = log.since(0, 9);
        assert_eq!((entries[0].early_us, entries[0].told_us_ago), (Some(600), Some(300)));
        assert_eq!(entries[1].early_us, None);
    }
}
