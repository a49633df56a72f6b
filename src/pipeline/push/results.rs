//! The file with each row's fate: CSV, a line a row, in the order in which the fates became known.
//!
//! It is written beside its place and put there when the push ends. What an earlier push told is never lost by a later
//! failure: a push without any fate leaves the file of an earlier one alone, and one that ends early moves it aside. Of
//! a push that was killed the unfinished file stays, and the next push moves it aside.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    files::{self, Access, Output},
    state::{PushFate, Pushed},
};

use super::super::PipelineError;

pub(super) const HEADER: [&str; 8] =
    ["row", "userId", "fate", "this_push", "status", "unknown_sends", "events", "reason"];
pub(super) const UNFINISHED: &str = ".part";

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The service took it.
    Accepted,
    /// The service does not want it.
    Refused,
    /// It was sent, and no answer tells what became of it.
    Unknown,
    NotSent,
    /// It cannot be sent.
    SetAside,
    /// A dry run would send it.
    WouldSend,
}

/// What this push did about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThisPush {
    Sent,
    /// An earlier attempt is of unknown fate.
    SentAgain,
    Nothing,
}

/// A line of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowResult<'a> {
    pub row: u64,
    pub user_id: Option<&'a str>,
    pub fate: Fate,
    pub this_push: ThisPush,
    pub status: Option<u16>,
    /// How often it was sent, by any push, without knowing what became of it.
    pub unknown_sends: u64,
    pub has_events: bool,
    /// Whether its events may or may not be counted by the service.
    pub has_unknown_events: bool,
    pub is_overtaken: bool,
    pub reason: &'a str,
}

impl<'a> RowResult<'a> {
    /// A row that was read, and of which nothing else is known yet.
    pub fn of(row: u64, user_id: &'a str, fate: Fate) -> Self {
        RowResult {
            row,
            user_id: Some(user_id),
            fate,
            this_push: ThisPush::Nothing,
            status: None,
            unknown_sends: 0,
            has_events: false,
            has_unknown_events: false,
            is_overtaken: false,
            reason: "",
        }
    }

    pub fn set_aside(row: u64, user_id: Option<&'a str>, reason: &'a str) -> Self {
        RowResult { user_id, reason, ..RowResult::of(row, "", Fate::SetAside) }
    }

    /// A row whose answer is known from an earlier push.
    pub fn known(row: u64, user_id: &'a str, has_events: bool, pushed: &Pushed) -> Self {
        let (fate, reason) = match (pushed.fate, pushed.is_overtaken) {
            (PushFate::Refused, _) => (Fate::Refused, "refused when it was sent; --again sends it once more"),
            (_, true) => (Fate::Accepted, "other content was sent for this user later; --again sends this once more"),
            (_, false) => (Fate::Accepted, ""),
        };
        RowResult {
            status: pushed.status,
            unknown_sends: pushed.unknown_sends,
            has_events,
            has_unknown_events: pushed.unknown_events,
            is_overtaken: pushed.is_overtaken,
            reason,
            ..RowResult::of(row, user_id, fate)
        }
    }

    fn fate_name(&self) -> &'static str {
        match self.fate {
            Fate::Accepted => "accepted",
            Fate::Refused => "refused",
            Fate::Unknown => "unknown",
            Fate::NotSent => "not_sent",
            Fate::SetAside => "set_aside",
            Fate::WouldSend => "would_send",
        }
    }

    fn events_name(&self) -> &'static str {
        match (self.has_events, self.has_unknown_events, self.fate) {
            (false, ..) => "",
            (true, true, _) => "unknown",
            (true, false, Fate::Accepted) => "accepted",
            (true, false, Fate::WouldSend) => "would_send",
            (true, false, _) => "not_accepted",
        }
    }
}

/// The file under construction.
pub(super) struct Results {
    /// `None` once it is in its place.
    out: Option<csv::Writer<Output>>,
    path: PathBuf,
    /// Whether it tells of a row more than that it was not sent.
    tells: bool,
}

/// How a push ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Each row of the input has a fate.
    Complete,
    /// It failed, or was stopped.
    Early,
}

impl Results {
    pub fn begin(path: &Path) -> Result<Results, PipelineError> {
        let failed = |source| PipelineError::Results { path: path.to_owned(), source };
        let real = files::real_path(path).map_err(failed)?;
        // Of a push that was killed.
        keep_aside(&files::with_suffix(&real, UNFINISHED), &real).map_err(failed)?;
        let out = Output::begin(path, UNFINISHED, Access::Private).map_err(failed)?;
        let mut results = Results { out: Some(csv::Writer::from_writer(out)), path: path.to_owned(), tells: false };
        results.record(HEADER)?;
        Ok(results)
    }

    pub fn write(&mut self, result: &RowResult<'_>) -> Result<(), PipelineError> {
        let (row, unknown_sends) = (result.row.to_string(), result.unknown_sends.to_string());
        let status = result.status.map(|status| status.to_string()).unwrap_or_default();
        let this_push = match result.this_push {
            ThisPush::Sent => "sent",
            ThisPush::SentAgain => "sent_again",
            ThisPush::Nothing => "nothing",
        };
        let user_id = result.user_id.unwrap_or_default();
        let (fate, events) = (result.fate_name(), result.events_name());
        self.tells |= result.fate != Fate::NotSent;
        self.record([&row, user_id, fate, this_push, &status, &unknown_sends, events, result.reason])
    }

    fn record(&mut self, cells: [&str; HEADER.len()]) -> Result<(), PipelineError> {
        let Some(out) = &mut self.out else { return Ok(()) };
        out.write_record(cells).map_err(|error| self.failed(error.into()))
    }

    /// Puts the file in its place. Returns false if the file of an earlier push stays there,
    /// since this one tells nothing.
    pub fn finish(&mut self, ending: Ending) -> Result<bool, PipelineError> {
        let Some(out) = self.out.take() else { return Ok(false) };
        let place = || -> io::Result<bool> {
            let out = out.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
            if ending == Ending::Early && out.is_regular() {
                let real = files::real_path(&self.path)?;
                if !self.tells && files::metadata(&real)?.is_some() {
                    return Ok(false);
                }
                keep_aside(&real, &real)?;
            }
            out.finish().map(|()| true)
        };
        place().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> PipelineError {
        PipelineError::Results { path: self.path.clone(), source }
    }
}

/// Moves a file of results, if there is one, to the first name that is free: `<place>.1`, `<place>.2` and so on.
fn keep_aside(results: &Path, place: &Path) -> io::Result<()> {
    if !files::metadata(results)?.is_some_and(|found| found.is_file()) {
        return Ok(());
    }
    let mut number = 1;
    let aside = loop {
        let aside = files::with_suffix(place, &format!(".{number}"));
        if fs::symlink_metadata(&aside).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            break aside;
        }
        number += 1;
    };
    fs::rename(results, &aside)?;
    tracing::warn!("the results of an earlier push are kept as {}", aside.display());
    Ok(())
}
