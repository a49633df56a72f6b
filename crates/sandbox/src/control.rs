//! The control operations, for programs that run the sandbox in their own process. `control_http` offers these
//! operations over HTTP.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    faults::Faults,
    request_log::LogEntry,
    service::{Service, UpsertedUser},
    world::{ChangeRequest, ChangeSummary, Flags, PlantError, Record, RowKey, Timeline, World},
};

/// Maximum records that one call of [`Control::truth_part`] renders. Between two calls the service can answer requests.
const TRUTH_ROWS: usize = 1000;

/// A list of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListName {
    /// Responses.
    #[default]
    Responses,
    /// Surveys.
    Surveys,
    /// Themes.
    Themes,
}

/// The counts of records, requests and pending purges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The service's clock, epoch milliseconds.
    pub now_ms: i64,
    /// Responses, soft-deleted ones included.
    pub responses: usize,
    /// Soft-deleted responses.
    pub deleted_responses: usize,
    /// Surveys.
    pub surveys: usize,
    /// Themes.
    pub themes: usize,
    /// Visitors.
    pub visitors: usize,
    /// Purges whose delay has not passed.
    pub pending_purges: usize,
    /// Requests so far.
    pub requests: u64,
    /// Requests that are being answered.
    pub in_flight: u32,
    /// The largest number of concurrent requests since the log was cleared.
    pub in_flight_max: u32,
}

/// The control operations; clones act on the same sandbox.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) service: Arc<Service>,
}

/// The position after which [`Control::truth_part`] continues: creation time and serial of the last rendered record.
pub(crate) type TruthKey = (i64, u32);

impl Control {
    /// Returns the service's time, epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.service.clock.now_ms()
    }

    /// Moves the service's clock forward, and carries out the purges that are due. Returns the service's time.
    pub fn advance_clock(&self, by_ms: u64) -> i64 {
        let now_ms = self.service.clock.advance(by_ms);
        self.service.run_due_purges();
        now_ms
    }

    /// Changes the data as requested. Returns the changes that were made, which may be fewer than requested.
    pub fn apply_changes(&self, request: &ChangeRequest) -> ChangeSummary {
        self.service.run_due_purges();
        let now_ms = self.now_ms();
        self.service.world_mut().apply(request, now_ms)
    }

    /// Returns the current faults. `count` and `skip` of a schedule are the numbers that remain.
    pub fn faults(&self) -> Faults {
        Faults::clone(&self.service.faults())
    }

    /// Replaces the faults, from the next request on. The error says which value is invalid.
    pub fn set_faults(&self, faults: Faults) -> Result<(), String> {
        faults.validate()?;
        self.service.set_faults(faults);
        Ok(())
    }

    /// Accepts this key instead of the current one, from the next request on.
    pub fn set_api_key(&self, key: &str) {
        self.service.set_api_key(key);
    }

    /// Changes some of the faults by a JSON merge patch, and returns all faults. Fails if the patch or the result is
    /// invalid.
    pub fn merge_faults(&self, patch: Value) -> Result<Faults, String> {
        let faults = self.faults().merged(patch).map_err(|error| error.to_string())?;
        self.set_faults(faults.clone())?;
        Ok(faults)
    }

    /// Returns the logged requests whose number is `seq` or higher.
    pub fn log_since(&self, seq: u64) -> Vec<LogEntry> {
        self.service.log.since(seq, usize::MAX)
    }

    /// Clears the log. Numbers of later requests continue.
    pub fn clear_log(&self) {
        self.service.log.clear();
    }

    /// Calls `each` for each record of a list, in order of creation. Soft-deleted records and all optional members are
    /// included.
    pub fn truth(&self, list: ListName, mut each: impl FnMut(&str)) {
        let mut key = None;
        loop {
            let (lines, next) = self.truth_part(list, key);
            String::from_utf8_lossy(&lines).lines().for_each(&mut each);
            if next.is_none() {
                return;
            }
            key = next;
        }
    }

    /// Returns the next [`TRUTH_ROWS`] records of a list as NDJSON, with all optional members, and the position of the
    /// last one. `after` is the position of the last record that the caller has; `None` begins at the first record. The
    /// returned position is `None` if there are no more records.
    pub(crate) fn truth_part(&self, list: ListName, after: Option<TruthKey>) -> (Vec<u8>, Option<TruthKey>) {
        self.service.run_due_purges();
        let world: &World = &self.service.world();
        match list {
            ListName::Responses => part(&world.responses, after, |out, row| world.write_response(out, row, Flags::ALL)),
            ListName::Surveys => part(&world.surveys, after, |out, row| world.write_survey(out, row)),
            ListName::Themes => part(&world.themes, after, |out, row| world.write_theme(out, row)),
        }
    }

    /// Adds or replaces a record given as exact JSON text. The service lists exactly this text, whatever flags a
    /// request has. `created_ms` is the creation time in the list; by default the record's `createdAt`.
    pub fn plant(&self, list: ListName, record: &str, created_ms: Option<i64>) -> Result<(), String> {
        let planted: Result<(), PlantError> = match list {
            ListName::Responses => self.service.world_mut().plant_response(record, created_ms).map(|_: RowKey| ()),
            ListName::Surveys => self.service.world_mut().plant_survey(record, created_ms),
            ListName::Themes => self.service.world_mut().plant_theme(record, created_ms).map(|_: RowKey| ()),
        };
        planted.map_err(|error| error.to_string())
    }

    /// Removes a response and its themes. Returns the number of removed rows.
    pub fn remove_row(&self, key: &RowKey) -> usize {
        self.service.world_mut().remove_row(&key.group, &key.question)
    }

    /// Upserts a user as `POST /v2/users` does, but without a log entry, authorization or rate limit. Returns the
    /// status of the answer.
    pub fn upsert_user(&self, body: &str) -> u16 {
        self.service.upsert_directly(body.as_bytes())
    }

    /// Returns the upserted users, in the order of their ids.
    pub fn upserted_users(&self) -> Vec<UpsertedUser> {
        self.service.upserted_users()
    }

    /// Returns the counts of records, requests and pending purges.
    pub fn stats(&self) -> Stats {
        self.service.run_due_purges();
        let (requests, in_flight, in_flight_max) = self.service.log.counts();
        let world = self.service.world();
        Stats {
            now_ms: self.now_ms(),
            responses: world.responses.len(),
            deleted_responses: world.deleted_responses(),
            surveys: world.surveys.len(),
            themes: world.themes.len(),
            visitors: world.visitors().count(),
            pending_purges: self.service.pending_purges(),
            requests,
            in_flight,
            in_flight_max,
        }
    }
}

/// Renders at most [`TRUTH_ROWS`] rows after a position; `None` starts at the first row. Returns the lines, and the
/// position of the last rendered row; `None` if no row is after the position.
fn part<R: Record>(
    rows: &Timeline<R>,
    after: Option<TruthKey>,
    write: impl Fn(&mut Vec<u8>, &R),
) -> (Vec<u8>, Option<TruthKey>) {
    let first = after.map_or(0, |key| rows.after(key));
    let mut lines = Vec::new();
    let mut last = None;
    for row in rows.iter().skip(first).take(TRUTH_ROWS) {
        let begin = lines.len();
        write(&mut lines, row);
        // A planted record may have line breaks between tokens, which NDJSON does not allow. A space means the same
        // there.
        let line = lines.iter_mut().skip(begin);
        line.filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        lines.push(b'\n');
        last = Some((row.created_ms(), row.serial()));
    }
    (lines, last)
}
