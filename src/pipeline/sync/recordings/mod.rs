//! Downloads the recordings of answers (VIDEOVOICE) by the links in `response_media`, before the links expire, and
//! writes the outcome of each download into the rows.
//!
//! The rows in the warehouses list the recordings, and small note files next to the recordings have the outcomes, so
//! that no further state is needed. A kill loses at most a piece of a download. Rows that an edit or a replay wrote
//! again get their outcome from the note files, without a request.
//!
//! [`fetch`] fetches one recording; [`pending_downloads`] replaces an expired link.
//! This file decides which recordings are fetched, and in which order. A pass goes once through the recordings without
//! an outcome.

mod fetch;
mod pending_downloads;
pub mod progress;
mod sink;

use std::{path::Path, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::Instant;

use crate::{
    config::RecordingsSettings,
    load::{WantedRecordings, Warehouse},
    model::{Failpoints, RowTime, behaviour_names},
    pipeline::{
        assemble::failed,
        error::{PipelineError, chain},
    },
    recordings::{Recordings, UploadOutcome},
};

use super::run::Run;

use fetch::{FetchResult, Fetcher, Hosts};
use pending_downloads::{PendingDownload, PendingDownloads, STREAM, key_of, outcome_of};
use progress::{recordings_folders, remember_folder};
use sink::Allowance;

/// Rows that are read from a warehouse at a time.
const ROWS_AT_ONCE: usize = 20_000;
/// Number of recordings in one chunk. After each chunk, outcomes are written into the rows if a batch is due.
const CHUNK_UPLOADS: usize = 64;
/// Name of the behaviour that stores the creation time of the recording with which the next run begins, in epoch
/// microseconds: of those that the limit of a run left over, it waits the longest. Otherwise newer recordings could use
/// up the limit each time.
const BEGIN_WITH: &str = "recordings_begin_with";
/// Interval between passes during a long run, because links expire.
const PASS_INTERVAL: Duration = Duration::from_secs(300);

/// If more files are gone than this, and more than [`LOST_PERCENT_MAX`], the folder is probably not mounted.
const LOST_MAX: u64 = 20;
const LOST_PERCENT_MAX: u64 = 5;

impl Run {
    /// Fetches recordings during a long run, if the last pass is at least [`PASS_INTERVAL`] ago. Before the first pass,
    /// the interval begins with the first call.
    pub(super) async fn fetch_recordings_early(&mut self) -> Result<(), PipelineError> {
        let last_pass_at = *self.recordings.last_pass_at.get_or_insert_with(Instant::now);
        if last_pass_at.elapsed() < PASS_INTERVAL {
            return Ok(());
        }
        self.fetch_pass(false).await
    }

    /// Fetches the pending recordings that this run has not tried, and recordings whose files are gone, within the
    /// limits.
    pub(super) async fn fetch_recordings(&mut self) -> Result<(), PipelineError> {
        self.fetch_pass(true).await
    }

    /// Fetches the pending recordings that this run has not tried, within the limits. With `checks_files`, also those
    /// whose files are gone. A folder that cannot be written leads to a note and does not fail the run.
    async fn fetch_pass(&mut self, checks_files: bool) -> Result<(), PipelineError> {
        let settings = self.session.settings.recordings.clone();
        if !settings.is_enabled || self.recordings.is_broken || self.findings.stop.is_some() {
            return Ok(());
        }
        let fetcher = self.fetcher(&settings)?;
        let fetched = match fetcher.recordings.make_folder() {
            Ok(()) => {
                remember_folder(&self.session.state(), &settings, self.session.now_ms())?;
                self.fetch_all(&fetcher, checks_files).await
            }
            Err(error) => Err(PipelineError::File(error)),
        };
        self.recordings.report.bytes = fetcher.allowance.received_bytes();
        self.recordings.last_pass_at = Some(Instant::now());
        match fetched {
            Err(error @ PipelineError::File(_)) => {
                let note = format!("{}: the recordings are left to the next run", chain(&error));
                tracing::warn!("{note}");
                self.findings.add_attention_note(note);
                self.recordings.is_broken = true;
                Ok(())
            }
            fetched => fetched,
        }
    }

    /// Creates the fetcher of one pass. The limit of the run counts the bytes of earlier passes.
    fn fetcher(&self, settings: &RecordingsSettings) -> Result<Fetcher, PipelineError> {
        let responses = self.session.settings.streams.iter().find(|stream| stream.stream == STREAM);
        let state = self.session.state();
        let filtered_by = state.behaviour::<RowTime>(behaviour_names::RESPONSES_FILTERED_BY)?;
        Ok(Fetcher {
            source: self.context.source.clone(),
            recordings: Recordings::at(&settings.path, self.session.system.failpoints.clone()),
            run_id: self.session.run_id.clone(),
            clock: self.session.system.clock.clone(),
            flags: responses.map(|stream| stream.flags).unwrap_or_default(),
            is_listed_by_creation: filtered_by.is_none_or(|(time, _)| time == RowTime::Created),
            allowance: Allowance::new(
                settings.file_limit_bytes,
                settings.run_limit_bytes,
                self.recordings.report.bytes,
            ),
            hosts: Hosts::default(),
        })
    }

    /// Fetches all pending recordings, and writes the outcomes into the rows. Begins with the recording that waits the
    /// longest for the limit. Recordings that failed in an earlier run are tried last.
    async fn fetch_all(&mut self, fetcher: &Fetcher, checks_files: bool) -> Result<(), PipelineError> {
        self.begin_with_longest_waiting(fetcher).await?;
        if checks_files {
            self.fetch_lost(fetcher).await?;
        }
        if self.fetch_newest_first(fetcher, false).await? {
            self.fetch_newest_first(fetcher, true).await?;
        }
        let next = self.recordings.longest_waiting_us;
        if next.is_some() {
            self.session.state().remember_behaviour(BEGIN_WITH, &next, self.session.now_ms())?;
        }
        self.write_outcomes().await
    }

    /// Fetches the recording that the limit of an earlier run left over and that waits the longest: it may need the
    /// whole limit. Only once in a run, and not again in the next one, so that it cannot keep others waiting either.
    async fn begin_with_longest_waiting(&mut self, fetcher: &Fetcher) -> Result<(), PipelineError> {
        let stored = self.session.state().behaviour::<Option<i64>>(BEGIN_WITH)?.and_then(|(us, _)| us);
        let Some(created_us) = stored.filter(|_| self.recordings.began_with_us.is_none()) else { return Ok(()) };
        self.recordings.began_with_us = Some(created_us);
        self.session.state().remember_behaviour(BEGIN_WITH, &None::<i64>, self.session.now_ms())?;
        let pending = self.pending_downloads(created_us).await?.downloads.into_iter();
        for upload in pending.filter(|upload| upload.row.created_us == created_us) {
            self.fetch_chunk(fetcher, &[upload], true).await?;
        }
        Ok(())
    }

    /// Fetches the pending recordings that this run has not tried, newest first. If `includes_failed` is false, defers
    /// recordings that failed in an earlier run. Returns true if it deferred any.
    async fn fetch_newest_first(&mut self, fetcher: &Fetcher, includes_failed: bool) -> Result<bool, PipelineError> {
        let (mut until_us, mut has_deferred) = (Some(i64::MAX), false);
        while let Some(until) = until_us.filter(|_| self.findings.stop.is_none()) {
            let pending = self.pending_downloads(until).await?;
            let untried: Vec<PendingDownload> =
                pending.downloads.into_iter().filter(|upload| !self.recordings.tried.contains(&upload.key)).collect();
            for chunk in untried.chunks(CHUNK_UPLOADS) {
                has_deferred |= self.fetch_chunk(fetcher, chunk, includes_failed).await?;
            }
            until_us = pending.next_until_us;
        }
        Ok(has_deferred)
    }

    /// Fetches recordings in parallel, and collects the outcomes. After a stop or an error, starts no further download
    /// and waits for the running ones. Returns true if some recordings were deferred.
    async fn fetch_chunk(
        &mut self,
        fetcher: &Fetcher,
        chunk: &[PendingDownload],
        includes_failed: bool,
    ) -> Result<bool, PipelineError> {
        let in_flight_max = self.session.settings.throttle.in_flight_max;
        let fetch = async |upload| (upload, fetcher.fetch(upload, includes_failed).await);
        let mut in_flight = FuturesUnordered::new();
        let (mut uploads, mut has_deferred, mut error) = (chunk.iter(), false, None);
        loop {
            while in_flight.len() < in_flight_max
                && self.findings.stop.is_none()
                && error.is_none()
                && let Some(upload) = uploads.next()
            {
                in_flight.push(fetch(upload));
            }
            let Some((upload, fetched)) = in_flight.next().await else { break };
            match fetched {
                Ok(FetchResult::Deferred) => {
                    has_deferred = true;
                    continue;
                }
                Ok(FetchResult::Known(outcome)) => {
                    self.recordings.outcomes.extend(upload.outcome(&fetcher.recordings, &outcome));
                }
                Ok(FetchResult::New(outcome)) => {
                    match &outcome {
                        UploadOutcome::Stored(_) => self.recordings.report.fetched += 1,
                        UploadOutcome::Missing(_) => self.recordings.report.missing += 1,
                    }
                    self.recordings.outcomes.extend(upload.outcome(&fetcher.recordings, &outcome));
                }
                Ok(FetchResult::AnswerDeleted) => {}
                Ok(FetchResult::NextRun { reason, outcome }) => {
                    let outcome = outcome.and_then(|outcome| upload.outcome(&fetcher.recordings, &outcome));
                    self.recordings.outcomes.extend(outcome);
                    self.recordings.leave_to_next_run(reason);
                }
                Ok(FetchResult::DoesNotFit { reason }) => {
                    self.recordings.leave_for_limit(upload.row.created_us, reason);
                }
                Ok(FetchResult::Stopped(stop)) => {
                    self.recordings.leave_to_next_run(stop.to_string());
                    self.findings.stop = self.findings.stop.or(Some(stop));
                }
                Err(failed) => error = error.or(Some(failed)),
            }
            self.recordings.tried.insert(upload.key.clone());
        }
        // A kill before this write costs no request: the next run reads the outcomes from the notes next to the files.
        if error.is_some() || self.recordings.is_batch_due() {
            self.write_outcomes().await?;
        }
        error.map_or(Ok(has_deferred), Err)
    }

    /// Writes the outcomes of the downloads since the last write into the rows of every warehouse. Publishes a
    /// warehouse that has too many unpublished changes.
    async fn write_outcomes(&mut self) -> Result<(), PipelineError> {
        let outcomes = self.recordings.take_outcomes();
        if outcomes.is_empty() {
            return Ok(());
        }
        for destination in &self.destinations {
            let outcomes = outcomes.clone();
            let write = move |warehouse: &mut Warehouse| warehouse.write_recording_outcomes(&outcomes);
            self.findings.wrote |= destination.work(write).await? > 0;
            if destination.lock().should_compact(false) {
                self.publish(destination).await?;
            }
        }
        Ok(())
    }

    /// Returns the pending recordings of all warehouses: the newest ones of answers created up to `until_us`, in epoch
    /// microseconds.
    async fn pending_downloads(&self, until_us: i64) -> Result<PendingDownloads, PipelineError> {
        let mut pending = PendingDownloads::default();
        for destination in &self.destinations {
            let read = move |warehouse: &mut Warehouse| {
                let wanted = warehouse.wanted_recordings(until_us, ROWS_AT_ONCE)?;
                // Downloads take long, so other processes may use the warehouse meanwhile.
                warehouse.release_lock().map(|()| wanted)
            };
            pending.add_all(destination.work(read).await?);
        }
        Ok(pending)
    }

    /// Fetches the recordings again that rows call stored, and whose files are gone. If too many are gone at once, only
    /// reports them, unless the user accepts that.
    async fn fetch_lost(&mut self, fetcher: &Fetcher) -> Result<(), PipelineError> {
        let (mut pending, mut stored, mut lost) = (PendingDownloads::default(), 0, 0);
        // The settings may have named another folder before.
        let folders = recordings_folders(&self.session.state())?;
        for destination in &self.destinations {
            let folders: Vec<_> = folders.iter().map(|path| Recordings::at(path, Failpoints::default())).collect();
            let read = move |warehouse: &mut Warehouse| {
                let is_stored = |path: &str, bytes| folders.iter().any(|one| one.is_stored(Path::new(path), bytes));
                let found = warehouse.lost_recordings(&is_stored, ROWS_AT_ONCE)?;
                warehouse.release_lock().map(|()| found)
            };
            let found = destination.work(read).await?;
            (stored, lost) = (found.stored.max(stored), found.lost.max(lost));
            pending.add_all(WantedRecordings { rows: found.rows, next_until_us: None });
        }
        if lost == 0 {
            return Ok(());
        }
        let folder = self.session.settings.recordings.path.display();
        if lost > LOST_MAX && lost * 100 > stored * LOST_PERCENT_MAX && !self.request.accept_vanished {
            self.findings.add_attention_note(format!(
                "the files of {lost} of {stored} recordings are gone from {folder}. Make sure that this folder is mounted. If the \
                 files were deleted, run `studysync sync --accept-vanished`, which fetches them again"
            ));
            return Ok(());
        }
        self.findings
            .notes
            .push(format!("the files of {lost} recordings were gone from {folder}: they are fetched again"));
        let untried: Vec<_> =
            pending.downloads.into_iter().filter(|upload| !self.recordings.tried.contains(&upload.key)).collect();
        for chunk in untried.chunks(CHUNK_UPLOADS) {
            self.fetch_chunk(fetcher, chunk, true).await?;
        }
        Ok(())
    }
}

/// Writes the known outcomes of recordings into the rows of a warehouse that a replay built. Rows of recordings without
/// a known outcome stay as they are. Sends no request.
pub fn apply_known_outcomes(warehouse: &mut Warehouse, settings: &RecordingsSettings) -> Result<(), PipelineError> {
    let name = warehouse.name();
    let recordings = Recordings::at(&settings.path, Failpoints::default());
    let mut until_us = Some(i64::MAX);
    while let Some(until) = until_us {
        let wanted = warehouse.wanted_recordings(until, ROWS_AT_ONCE).map_err(failed(name))?;
        until_us = wanted.next_until_us;
        let mut outcomes = Vec::new();
        for row in wanted.rows {
            let Some(key) = key_of(&row) else { continue };
            if let Some(upload) = recordings.find(&key)? {
                outcomes.push(outcome_of(&row, &key, &recordings, &upload));
            }
        }
        warehouse.write_recording_outcomes(&outcomes).map_err(failed(name))?;
    }
    Ok(())
}
