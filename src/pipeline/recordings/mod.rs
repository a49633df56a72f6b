//! Recordings of answers (VIDEOVOICE): fetched by the links in `response_media` while those are fresh,
//! kept as files, and told in the rows.
//!
//! The rows are the list of what is wanted, and the notes beside the files say what became of it. So nothing else is to
//! be remembered: a kill at any point costs at most a part of a download, and rows that were written anew, by an edit
//! or a replay, are filled again without a request.
//!
//! [`fetch`] brings one recording, [`fresh_link`] asks the service for a link that has aged; here is what is asked for,
//! in which order, and when it is enough.

mod fetch;
mod folders;
mod fresh_link;
mod sink;
mod wishes;
mod work;

use std::time::Duration;

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::Instant;

use crate::{
    config::RecordingsSettings,
    load::{Stamp, Warehouse},
    model::{Failpoints, RowTime, behaviour_names},
    recordings::{Recordings, UploadOutcome},
};

use super::{PipelineError, Run, assemble::failed, error::chain};

use fetch::{Fetched, Fetcher, Hosts};
use folders::remember_folder;
use sink::Allowance;
use wishes::{STREAM, Wish, Wishes, key_of, outcome_of};

pub use folders::recordings_folders;
pub use work::RecordingsReport;
pub(super) use work::RecordingsWork;

/// Rows that are looked at together.
const ROWS_AT_ONCE: usize = 20_000;
/// Recordings that are looked at before it is asked whether rows are to be told.
const LOOKED_AT_TOGETHER: usize = 64;
/// In a long run, links are followed so often: they age.
const EARLY_AFTER: Duration = Duration::from_secs(300);

impl Run {
    /// Follows links while a long run goes on, now and then.
    pub(super) async fn fetch_recordings_early(&mut self) -> Result<(), PipelineError> {
        let looked_at = *self.recordings.looked_at.get_or_insert_with(Instant::now);
        if looked_at.elapsed() < EARLY_AFTER {
            return Ok(());
        }
        self.fetch_recordings().await
    }

    /// Fetches what is wanted and was not tried in this run, within the allowance. What is not had stays wanted. A
    /// folder that cannot be written needs a look, and keeps the run from nothing else.
    pub(super) async fn fetch_recordings(&mut self) -> Result<(), PipelineError> {
        let settings = self.session.settings.recordings.clone();
        if !settings.is_enabled || self.recordings.is_broken || self.findings.stop.is_some() {
            return Ok(());
        }
        let fetcher = self.fetcher(&settings)?;
        let fetched = match fetcher.recordings.make_folder() {
            Ok(()) => {
                // Before anything is put there.
                remember_folder(&self.session.state(), &settings, self.session.now_ms())?;
                self.fetch_all(&fetcher).await
            }
            Err(error) => Err(PipelineError::Recordings(error)),
        };
        self.recordings.report.bytes = fetcher.allowance.received_bytes();
        self.recordings.looked_at = Some(Instant::now());
        match fetched {
            Err(error @ PipelineError::Recordings(_)) => {
                let note = format!("{}: the recordings are left to the next run", chain(&error));
                tracing::warn!("{note}");
                self.findings.look_at(note);
                self.recordings.is_broken = true;
                Ok(())
            }
            fetched => fetched,
        }
    }

    fn fetcher(&self, settings: &RecordingsSettings) -> Result<Fetcher, PipelineError> {
        let responses = self.session.settings.streams.iter().find(|stream| stream.stream == STREAM);
        let state = self.session.state();
        let filtered_by = state.behaviour::<RowTime>(behaviour_names::RESPONSES_FILTERED_BY)?;
        Ok(Fetcher {
            source: self.context.source.clone(),
            recordings: Recordings::at(&settings.path, self.session.system.failpoints.clone()),
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

    async fn fetch_all(&mut self, fetcher: &Fetcher) -> Result<(), PipelineError> {
        // First what was not tried yet, then what failed in an earlier run.
        if self.fetch_by_age(fetcher, false).await? {
            self.fetch_by_age(fetcher, true).await?;
        }
        self.settle_recordings().await
    }

    /// Goes through all that is wanted, the newest first.
    /// Returns whether some were left for the turn of those that failed.
    async fn fetch_by_age(&mut self, fetcher: &Fetcher, has_failed_turn: bool) -> Result<bool, PipelineError> {
        let (mut until_us, mut has_left) = (Some(i64::MAX), false);
        while let Some(until) = until_us.filter(|_| self.findings.stop.is_none()) {
            let wanted = self.wanted_recordings(until).await?;
            let untried: Vec<Wish> =
                wanted.wishes.into_iter().filter(|wish| !self.recordings.tried.contains(&wish.key)).collect();
            for some in untried.chunks(LOOKED_AT_TOGETHER) {
                has_left |= self.fetch_some(fetcher, some, has_failed_turn).await?;
            }
            until_us = wanted.next_until_us;
        }
        Ok(has_left)
    }

    /// Returns whether some were left for the turn of those that failed.
    async fn fetch_some(
        &mut self,
        fetcher: &Fetcher,
        some: &[Wish],
        has_failed_turn: bool,
    ) -> Result<bool, PipelineError> {
        let at_once = self.session.settings.throttle.in_flight_max;
        let mut under_way = FuturesUnordered::new();
        let (mut next, mut has_left, mut error) = (some.iter(), false, None);
        loop {
            while under_way.len() < at_once
                && self.findings.stop.is_none()
                && error.is_none()
                && let Some(wish) = next.next()
            {
                under_way.push(fetch_wish(fetcher, wish, has_failed_turn));
            }
            let Some((wish, fetched)) = under_way.next().await else { break };
            match fetched {
                Ok(Fetched::AfterOthers) => {
                    has_left = true;
                    continue;
                }
                Ok(Fetched::Known(upload)) => {
                    self.recordings.outcomes.extend(wish.outcome(&fetcher.recordings, &upload));
                }
                Ok(Fetched::Came(upload)) => {
                    match &upload {
                        UploadOutcome::Stored(_) => self.recordings.report.fetched += 1,
                        UploadOutcome::Missing(_) => self.recordings.report.missing += 1,
                    }
                    self.recordings.outcomes.extend(wish.outcome(&fetcher.recordings, &upload));
                }
                Ok(Fetched::NotAsked) => {}
                Ok(Fetched::Waits { reason }) => self.recordings.wait_because(reason),
                Ok(Fetched::Stopped(stop)) => {
                    self.recordings.wait_because(stop.to_string());
                    self.findings.stop = self.findings.stop.or(Some(stop));
                }
                Err(failed) => error = error.or(Some(failed)),
            }
            self.recordings.tried.insert(wish.key.clone());
        }
        // What is here is told also after an error. A kill before costs no request: the notes beside the files know it.
        if error.is_some() || self.recordings.is_settling_due() {
            self.settle_recordings().await?;
        }
        error.map_or(Ok(has_left), Err)
    }

    /// Tells the rows what became of recordings since this was done last.
    async fn settle_recordings(&mut self) -> Result<(), PipelineError> {
        let outcomes = self.recordings.take_outcomes();
        if outcomes.is_empty() {
            return Ok(());
        }
        let now_ms = self.context.source.service_now_ms().unwrap_or_else(|| self.session.now_ms());
        for destination in &self.destinations {
            let (outcomes, run_id) = (outcomes.clone(), self.session.run_id.clone());
            let settle = move |warehouse: &mut Warehouse| {
                warehouse.write_recording_outcomes(&outcomes, Some(Stamp { run_id: &run_id, at_ms: now_ms }))
            };
            let settled =
                destination.work(move |warehouse| settle(warehouse).map_err(failed(warehouse.name()))).await??;
            self.findings.wrote |= settled > 0;
            if destination.lock().should_compact() {
                self.publish(destination).await?;
            }
        }
        Ok(())
    }

    /// What the warehouses want together, of answers up to a moment.
    async fn wanted_recordings(&self, until_us: i64) -> Result<Wishes, PipelineError> {
        let mut wishes = Wishes::default();
        for destination in &self.destinations {
            let look = move |warehouse: &mut Warehouse| {
                let wanted = warehouse.wanted_recordings(until_us, ROWS_AT_ONCE).map_err(failed(warehouse.name()))?;
                // A download takes long: nobody is kept from the warehouse meanwhile.
                warehouse.release_lock().map_err(failed(warehouse.name()))?;
                Ok::<_, PipelineError>(wanted)
            };
            wishes.add_all(destination.work(look).await??);
        }
        Ok(wishes)
    }
}

async fn fetch_wish<'w>(
    fetcher: &Fetcher,
    wish: &'w Wish,
    has_failed_turn: bool,
) -> (&'w Wish, Result<Fetched, PipelineError>) {
    (wish, fetcher.fetch(wish, has_failed_turn).await)
}

/// Tells a warehouse that a replay built what is known of recordings, without asking anybody.
pub(super) fn tell_known(warehouse: &mut Warehouse, settings: &RecordingsSettings) -> Result<(), PipelineError> {
    let name = warehouse.name();
    let recordings = Recordings::at(&settings.path, Failpoints::default());
    let mut until_us = Some(i64::MAX);
    while let Some(until) = until_us {
        let wanted = warehouse.wanted_recordings(until, ROWS_AT_ONCE).map_err(failed(name))?;
        until_us = wanted.next_until_us;
        let mut outcomes = Vec::new();
        for wanted in wanted.rows {
            let Some(key) = key_of(&wanted) else { continue };
            if let Some(upload) = recordings.find(&key)? {
                outcomes.push(outcome_of(&wanted, &key, &recordings, &upload));
            }
        }
        warehouse.write_recording_outcomes(&outcomes, None).map_err(failed(name))?;
    }
    Ok(())
}
