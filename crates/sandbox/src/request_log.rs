//! Every request that the service saw, in a bounded ring. Control calls are not in it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{extract::Query, http::Uri};
use serde::{Deserialize, Serialize};

/// One request, as the log shows it. Times are real microseconds since the sandbox started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Counts the requests, from 1.
    pub seq: u64,
    /// When the request's head had been read.
    pub arrived_us: u64,
    /// When the last byte of the answer was handed to the connection, or it broke; `None` while under way.
    pub completed_us: Option<u64>,
    /// GET, POST, ...
    pub method: String,
    /// Path, as sent.
    pub path: String,
    /// Query, decoded, in its order.
    pub query: Vec<(String, String)>,
    /// The status answered; 0 until it is.
    pub status: u16,
    /// Rows in the answer.
    pub rows: u32,
    /// Bytes of the whole body as sent (compressed, if it was); of a broken body, what would have been sent.
    pub bytes: u64,
    /// How much too early it came after a `Retry-After` told to wait; `None` when it was not.
    pub early_us: Option<u64>,
    /// Then: how long ago the wait had been told. A small number may be a request that was on its way already.
    pub told_us_ago: Option<u64>,
    /// Requests under way when it arrived, with it.
    pub in_flight: u32,
    /// The fault that struck, by its name in `Faults`.
    pub fault: Option<String>,
}

/// An entry as it is kept.
#[derive(Debug)]
struct Entry {
    arrived_us: u64,
    completed_us: u64,
    bytes: u64,
    early_us: u64,
    told_us_ago: u64,
    target: Box<str>,
    method: Box<str>,
    rows: u32,
    in_flight: u32,
    status: u16,
    fault: Option<&'static str>,
}

const UNDER_WAY: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Entry>,
    /// `seq` of the first entry.
    first_seq: u64,
    in_flight: u32,
    in_flight_max: u32,
    /// Until when (real time) clients were told to wait, and when that was told.
    told: Option<(u64, u64)>,
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
        // Each change leaves the ring whole, so a panicking holder did no harm.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has arrived; returns its number.
    pub(crate) fn arrive(&self, method: &str, target: &str, now_us: u64) -> u64 {
        let mut ring = self.ring();
        ring.in_flight += 1;
        ring.in_flight_max = ring.in_flight_max.max(ring.in_flight);
        let (early_us, told_us_ago) = match ring.told {
            Some((until_us, told_us)) if now_us < until_us => (until_us - now_us, now_us.saturating_sub(told_us)),
            _ => (0, 0),
        };
        let entry = Entry {
            arrived_us: now_us,
            completed_us: UNDER_WAY,
            bytes: 0,
            early_us,
            told_us_ago,
            target: target.into(),
            method: method.into(),
            rows: 0,
            in_flight: ring.in_flight,
            status: 0,
            fault: None,
        };
        if ring.entries.len() >= self.entries_max {
            ring.entries.pop_front();
            ring.first_seq += 1;
        }
        ring.entries.push_back(entry);
        ring.first_seq + ring.entries.len() as u64 - 1
    }

    fn with(&self, seq: u64, change: impl FnOnce(&mut Entry)) {
        let mut ring = self.ring();
        let at = seq.checked_sub(ring.first_seq).and_then(|at| usize::try_from(at).ok());
        // Dropped entries are not found.
        if let Some(entry) = at.and_then(|at| ring.entries.get_mut(at)) {
            change(entry);
        }
    }

    /// The answer is known.
    pub(crate) fn answer(&self, seq: u64, status: u16, rows: u32, bytes: u64, fault: Option<&'static str>) {
        self.with(seq, |entry| {
            (entry.status, entry.rows, entry.bytes, entry.fault) = (status, rows, bytes, fault);
        });
    }

    /// The answer was sent, or its connection broke.
    pub(crate) fn complete(&self, seq: u64, now_us: u64) {
        self.with(seq, |entry| entry.completed_us = now_us);
        let mut ring = self.ring();
        ring.in_flight = ring.in_flight.saturating_sub(1);
    }

    /// Clients were told to wait until a moment of real time.
    pub(crate) fn told_to_wait(&self, until_us: u64, now_us: u64) {
        let mut ring = self.ring();
        if ring.told.is_none_or(|(held_us, _)| held_us < until_us) {
            ring.told = Some((until_us, now_us));
        }
    }

    /// The entries from a number on, at most so many.
    pub(crate) fn since(&self, seq: u64, entries_max: usize) -> Vec<LogEntry> {
        let ring = self.ring();
        let skipped = usize::try_from(seq.saturating_sub(ring.first_seq)).unwrap_or(usize::MAX);
        (ring.entries.iter().enumerate().skip(skipped).take(entries_max))
            .map(|(at, entry)| entry.shown(ring.first_seq + at as u64))
            .collect()
    }

    /// Forgets the entries; numbers go on, and so does a wait that was told.
    pub(crate) fn clear(&self) {
        let mut ring = self.ring();
        ring.first_seq += ring.entries.len() as u64;
        ring.entries.clear();
        ring.in_flight_max = ring.in_flight;
    }

    /// Requests so far, requests under way, and the most at once since the log was cleared.
    pub(crate) fn counts(&self) -> (u64, u32, u32) {
        let ring = self.ring();
        (ring.first_seq + ring.entries.len() as u64 - 1, ring.in_flight, ring.in_flight_max)
    }
}

impl Entry {
    fn shown(&self, seq: u64) -> LogEntry {
        let uri = self.target.parse::<Uri>().ok();
        let query = uri.as_ref().and_then(|uri| Query::<Vec<(String, String)>>::try_from_uri(uri).ok());
        let path = self.target.split('?').next().unwrap_or_default();
        LogEntry {
            seq,
            arrived_us: self.arrived_us,
            completed_us: (self.completed_us != UNDER_WAY).then_some(self.completed_us),
            method: self.method.to_string(),
            path: path.to_owned(),
            query: query.map(|query| query.0).unwrap_or_default(),
            status: self.status,
            rows: self.rows,
            bytes: self.bytes,
            early_us: (self.early_us > 0).then_some(self.early_us),
            told_us_ago: (self.early_us > 0).then_some(self.told_us_ago),
            in_flight: self.in_flight,
            fault: self.fault.map(str::to_owned),
        }
    }
}

/// A request under way: dropping it completes its entry, however the answer ended.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) service: Arc<super::service::Service>,
    pub(crate) seq: u64,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.service.log.complete(self.seq, self.service.clock.elapsed_us());
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
        log.told_to_wait(1000, 100);
        log.arrive("GET", "/", 400);
        log.arrive("GET", "/", 1000);
        let entries = log.since(0, 9);
        assert_eq!((entries[0].early_us, entries[0].told_us_ago), (Some(600), Some(300)));
        assert_eq!(entries[1].early_us, None);
    }
}
