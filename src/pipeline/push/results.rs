//! The results file of a push: a CSV with one line for each row and its outcome, in the order in which the outcomes
//! became known.
//!
//! The file is written under a temporary name, and renamed to its path when the push ends. A complete push replaces the
//! file of an earlier push. A push that ends early first renames the earlier file to the first free name `<path>.1`,
//! `<path>.2` and so on; without any outcome, it leaves the earlier file at its path. Without any row, it writes no
//! file. A killed push leaves its temporary file, which the next push renames to a free name.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    files::{self, Access, Output},
    pipeline::error::PipelineError,
    state::{PushAnswer, PushRecord},
};

/// The columns of the file.
pub(super) const HEADER: [&str; 8] =
    ["row", "userId", "fate", "this_push", "status", "unknown_sends", "events", "reason"];
/// Suffix of the temporary name.
pub(super) const TEMPORARY: &str = ".part";

/// The outcome of a row: the column `fate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOutcome {
    /// The service accepted the row, now or in an earlier push.
    Accepted,
    /// The service refused the row, now or in an earlier push.
    Refused,
    /// The row was sent, and no answer says whether the service accepted it.
    Unknown,
    NotSent,
    /// The row is invalid, or about an erased person.
    SetAside,
    /// Dry run: a push would send the row.
    WouldSend,
}

/// What this push did with a row: the column `this_push`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThisPush {
    Sent,
    /// Sent, after an earlier request with this row that has no known outcome.
    SentAgain,
    Nothing,
}

/// A line of the results file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowResult<'a> {
    /// The number of the row in the input, from 1.
    pub row: u64,
    /// `None` if the row has no valid user id.
    pub user_id: Option<&'a str>,
    pub outcome: RowOutcome,
    pub this_push: ThisPush,
    /// The HTTP status of the service's answer. `None` without an answer.
    pub status: Option<u16>,
    /// Number of requests with this row, of any push, that have no known outcome.
    pub unknown_sends: u64,
    pub has_events: bool,
    /// True if it is unknown whether the service has counted the events.
    pub has_unknown_events: bool,
    /// True if other content of the same user was sent later.
    pub is_superseded: bool,
    /// Why the row has this outcome. Empty if there is nothing to say.
    pub reason: &'a str,
}

impl<'a> RowResult<'a> {
    /// Creates a result with only an outcome. The other fields are empty.
    pub fn new(row: u64, user_id: &'a str, outcome: RowOutcome) -> Self {
        RowResult {
            row,
            user_id: Some(user_id),
            outcome,
            this_push: ThisPush::Nothing,
            status: None,
            unknown_sends: 0,
            has_events: false,
            has_unknown_events: false,
            is_superseded: false,
            reason: "",
        }
    }

    /// Creates the result of a row that is not sent: an invalid row, or one about an erased person.
    pub fn set_aside(row: u64, user_id: Option<&'a str>, reason: &'a str) -> Self {
        RowResult { user_id, reason, ..RowResult::new(row, "", RowOutcome::SetAside) }
    }

    /// Creates the result of a row that the service answered in an earlier push.
    pub fn already_answered(row: u64, user_id: &'a str, has_events: bool, record: &PushRecord) -> Self {
        let (outcome, reason) = match (record.answer, record.is_superseded) {
            (PushAnswer::Refused, _) => (RowOutcome::Refused, "refused when it was sent; --again sends it once more"),
            (_, true) => {
                (RowOutcome::Accepted, "other content was sent for this user later; --again sends this once more")
            }
            (_, false) => (RowOutcome::Accepted, ""),
        };
        RowResult {
            status: record.status,
            unknown_sends: record.unknown_sends,
            has_events,
            has_unknown_events: record.unknown_events,
            is_superseded: record.is_superseded,
            reason,
            ..RowResult::new(row, user_id, outcome)
        }
    }

    /// Returns the value of the column `fate`.
    fn outcome_name(&self) -> &'static str {
        match self.outcome {
            RowOutcome::Accepted => "accepted",
            RowOutcome::Refused => "refused",
            RowOutcome::Unknown => "unknown",
            RowOutcome::NotSent => "not_sent",
            RowOutcome::SetAside => "set_aside",
            RowOutcome::WouldSend => "would_send",
        }
    }

    /// Returns the value of the column `events`: what happened to the row's events. Empty for a row without events.
    fn events_name(&self) -> &'static str {
        match (self.has_events, self.has_unknown_events, self.outcome) {
            (false, ..) => "",
            (true, true, _) => "unknown",
            (true, false, RowOutcome::Accepted) => "accepted",
            (true, false, RowOutcome::WouldSend) => "would_send",
            (true, false, _) => "not_accepted",
        }
    }
}

/// The results file of a push in progress.
pub(super) struct ResultsFile {
    /// `None` when the file is finished.
    out: Option<csv::Writer<Output>>,
    path: PathBuf,
    has_rows: bool,
    /// True if any row has another outcome than `not_sent`.
    has_outcomes: bool,
}

/// How a push ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Every row of the input has an outcome.
    Complete,
    /// The push failed or was stopped.
    Early,
}

impl ResultsFile {
    /// Creates the temporary file, and writes the header. Keeps the temporary file of a killed push under a free name.
    pub fn begin(path: &Path) -> Result<ResultsFile, PipelineError> {
        let failed = PipelineError::results(path);
        let real = files::real_path(path).map_err(failed)?;
        // The temporary file exists if an earlier push was killed.
        rename_to_free_name(&files::with_suffix(&real, TEMPORARY), &real).map_err(failed)?;
        let out = Output::begin(path, TEMPORARY, Access::Private).map_err(failed)?;
        let out = Some(csv::Writer::from_writer(out));
        let mut results = ResultsFile { out, path: path.to_owned(), has_rows: false, has_outcomes: false };
        results.record(HEADER)?;
        Ok(results)
    }

    /// Writes the line of a row.
    pub fn write(&mut self, result: &RowResult<'_>) -> Result<(), PipelineError> {
        let (row, unknown_sends) = (result.row.to_string(), result.unknown_sends.to_string());
        let status = result.status.map(|status| status.to_string()).unwrap_or_default();
        let this_push = match result.this_push {
            ThisPush::Sent => "sent",
            ThisPush::SentAgain => "sent_again",
            ThisPush::Nothing => "nothing",
        };
        let user_id = result.user_id.unwrap_or_default();
        let (outcome, events) = (result.outcome_name(), result.events_name());
        self.has_rows = true;
        self.has_outcomes |= result.outcome != RowOutcome::NotSent;
        self.record([&row, user_id, outcome, this_push, &status, &unknown_sends, events, result.reason])
    }

    /// Writes a line. Does nothing if the file is finished.
    fn record(&mut self, cells: [&str; HEADER.len()]) -> Result<(), PipelineError> {
        let Some(out) = &mut self.out else { return Ok(()) };
        out.write_record(cells).map_err(|error| PipelineError::results(&self.path)(error.into()))
    }

    /// Renames the file to its path. Returns false if the file was already finished. A push that ended early also
    /// returns false if it has no row, or if it has no outcome and an earlier push's file is at the path: that file
    /// stays.
    pub fn finish(&mut self, ending: Ending) -> Result<bool, PipelineError> {
        let Some(out) = self.out.take() else { return Ok(false) };
        let finish = || -> io::Result<bool> {
            let out = out.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
            if ending == Ending::Early && out.is_regular() {
                let real = files::real_path(&self.path)?;
                if !self.has_rows || !self.has_outcomes && files::metadata(&real)?.is_some() {
                    return Ok(false);
                }
                rename_to_free_name(&real, &real)?;
            }
            out.finish().map(|()| true)
        };
        finish().map_err(PipelineError::results(&self.path))
    }
}

/// Renames the results file `results` to the first free name: `<path>.1`, `<path>.2` and so on. Does nothing if
/// `results` does not exist.
fn rename_to_free_name(results: &Path, path: &Path) -> io::Result<()> {
    if !files::metadata(results)?.is_some_and(|found| found.is_file()) {
        return Ok(());
    }
    let mut number = 1;
    let free = loop {
        let free = files::with_suffix(path, &format!(".{number}"));
        if fs::symlink_metadata(&free).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            break free;
        }
        number += 1;
    };
    fs::rename(results, &free)?;
    tracing::warn!("the results of an earlier push are kept as {}", free.display());
    Ok(())
}
