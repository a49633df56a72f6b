//! The control operations, for programs that run the sandbox in their own process.
//! `control_http` offers the same over HTTP.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    faults::Faults,
    request_log::LogEntry,
    service::{Service, UpsertedUser},
    world::{ChangeRequest, ChangeSummary, Flags, PlantError, Record, RowKey, Timeline, World},
};

/// Rows of the truth that are rendered at once; between them the service goes on answering.
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

/// What the sandbox holds and has done.
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
    /// Purges that wait for their time.
    pub pending_purges: usize,
    /// Requests so far.
    pub requests: u64,
    /// Requests under way.
    pub in_flight: u32,
    /// The most requests at once since the log was cleared.
    pub in_flight_max: u32,
}

/// The control operations; clones act on the same sandbox.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) service: Arc<Service>,
}

/// Where a listing of the truth stands.
pub(crate) type TruthKey = (i64, u32);

impl Control {
    /// The service's time, epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.service.clock.now_ms()
    }

    /// Moves the service's clock forward; returns its time.
    pub fn advance_clock(&self, by_ms: u64) -> i64 {
        let now_ms = self.service.clock.advance(by_ms);
        self.service.run_due_purges();
        now_ms
    }

    /// Changes data, and says what was changed.
    pub fn apply_changes(&self, request: &ChangeRequest) -> ChangeSummary {
        self.service.run_due_purges();
        let now_ms = self.now_ms();
        self.service.world_mut().apply(request, now_ms)
    }

    /// How the service answers at present; `count` and `skip` of a schedule are what is left of them.
    pub fn faults(&self) -> Faults {
        Faults::clone(&self.service.faults())
    }

    /// Changes how the service answers from the next request on. The error says what is wrong with the settings.
    pub fn set_faults(&self, faults: Faults) -> Result<(), String> {
        faults.validate()?;
        self.service.set_faults(faults);
        Ok(())
    }

    /// Changes some of the faults: a JSON merge patch.
    pub fn merge_faults(&self, patch: Value) -> Result<Faults, String> {
        let faults = self.faults().merged(patch).map_err(|error| error.to_string())?;
        self.set_faults(faults.clone())?;
        Ok(faults)
    }

    /// The requests from a number on.
    pub fn log_since(&self, seq: u64) -> Vec<LogEntry> {
        self.service.log.since(seq, usize::MAX)
    }

    /// Forgets the requests; their numbers go on.
    pub fn clear_log(&self) {
        self.service.log.clear();
    }

    /// Hands over each record that the service holds, in order of creation,
    /// with all optional parts and the soft-deleted ones.
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

    /// A part of the truth as NDJSON, and where the next one begins.
    pub(crate) fn truth_part(&self, list: ListName, after: Option<TruthKey>) -> (Vec<u8>, Option<TruthKey>) {
        self.service.run_due_purges();
        let world: &World = &self.service.world();
        match list {
            ListName::Responses => part(&world.responses, after, |out, row| world.write_response(out, row, Flags::ALL)),
            ListName::Surveys => part(&world.surveys, after, |out, row| world.write_survey(out, row)),
            ListName::Themes => part(&world.themes, after, |out, row| world.write_theme(out, row)),
        }
    }

    /// Adds or replaces a record given as exact JSON text; it is listed byte for byte, whatever flags are asked for.
    /// `created_ms` is its place in time where its `createdAt` cannot be read.
    pub fn plant(&self, list: ListName, record: &str, created_ms: Option<i64>) -> Result<(), String> {
        let planted: Result<(), PlantError> = match list {
            ListName::Responses => self.service.world_mut().plant_response(record, created_ms).map(|_: RowKey| ()),
            ListName::Surveys => self.service.world_mut().plant_survey(record, created_ms),
            ListName::Themes => self.service.world_mut().plant_theme(record, created_ms).map(|_: RowKey| ()),
        };
        planted.map_err(|error| error.to_string())
    }

    /// Removes a response and the themes on it; returns how many rows that were.
    pub fn remove_row(&self, key: &RowKey) -> usize {
        self.service.world_mut().remove_row(&key.group, &key.question)
    }

    /// Upserts a user as `POST /v2/users` does, without a request; returns the status of the answer.
    pub fn upsert_user(&self, body: &str) -> u16 {
        self.service.upsert_directly(body.as_bytes())
    }

    /// What arrived of each upserted user, in the order of their ids.
    pub fn upserted_users(&self) -> Vec<UpsertedUser> {
        self.service.upserted_users()
    }

    /// What the sandbox holds and has done.
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
        // A planted record may be written over several lines; between tokens a space is as good.
        let line = lines.iter_mut().skip(begin);
        line.filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        lines.push(b'\n');
        last = Some((row.created_ms(), row.serial()));
    }
    (lines, last)
}
