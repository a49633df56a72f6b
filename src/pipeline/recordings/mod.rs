//! Recordings of answers (VIDEOVOICE): fetched by the links in `response_media` while those are fresh, kept as files, and told in the rows.
//!
//! The rows are the list of what is wanted, and the notes beside the files say what became of it. So nothing else is to be remembered: a
//! kill at any point costs at most a part of a download, and rows that were written anew, by an edit or a replay, are filled again without a
//! request.
//!
//! [`fetch`] brings one recording, [`fresh_link`] asks the service for a link that has aged; here is what is asked for, in which order,
//! and when it is enough.

mod fetch;
mod fresh_link;
mod wishes;
mod work;

use std::{
    sync::atomic::{AtomicU32, AtomicU64},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::Instant;

use crate::{
    config::RecordingsSettings,
    load::{Stamp, Warehouse},
    model::Steps,
    recordings::{Recordings, Upload, UploadKey},
    source::Stop,
};

use super::{PipelineError, Run, assemble::failed};

use fetch::{Fetched, Fetcher};
use wishes::{STREAM, Wish, Wishes, outcome_of};

pub use work::RecordingsReport;
pub(super) use work::RecordingsWork;

/// The folder of recordings that was used last, in the checkpoints: an erasure looks there also when the settings name another.
pub const RECORDINGS_FOLDER: &str = "recordings_folder";

/// Rows that are looked at together.
const ROWS_AT_ONCE: usize = 20_000;
/// Recordings that are looked at before it is asked whether rows are to be told.
const LOOKED_AT_TOGETHER: usize = 64;
/// In a long run, links are followed so often: they age.
const EARLY_AFTER: Duration = Duration::from_secs(300);

impl Run {
    /// Follows links while a long run goes on, now and then.
    pub(super) async fn fetch_recordings_early(&mut self) -> Result<(), PipelineError> {
        let begun = *self.recordings.looked_at.get_or_insert_with(Instant::now);
        if begun.elapsed() < EARLY_AFTER {
            return Ok(());
        }
        self.fetch_recordings().await
    }

    /// Fetches what is wanted and was not tried in this run, within the allowance. What is not had stays wanted.
    pub(super) async fn fetch_recordings(&mut self) -> Result<(), PipelineError> {
        let settings = self.session.settings.recordings.clone();
        if !settings.is_enabled || self.recordings.is_over || self.findings.stop.is_some() {
            return Ok(());
        }
        let path = settings.path.display().to_string();
        self.session
            .state()
            .remember_trait(RECORDINGS_FOLDER, &path, self.session.now_ms())
            .map_err(PipelineError::State)?;
        let responses = self.session.settings.streams.iter().find(|stream| stream.stream == STREAM);
        let fetcher = Fetcher {
            source: self.context.source.clone(),
            recordings: Recordings::at(&settings.path, self.session.surroundings.steps.clone()),
            clock: self.session.surroundings.clock.clone(),
            flags: responses.map(|stream| stream.flags).unwrap_or_default(),
            file_limit_bytes: settings.file_limit_bytes,
            run_limit_bytes: settings.run_limit_bytes,
            spent_bytes: AtomicU64::new(self.recordings.report.bytes),
            failures_in_a_row: AtomicU32::default(),
        };
        self.recordings.report.waiting = 0;
        let mut until_us = i64::MAX;
        loop {
            let wanted = self.wanted_recordings(until_us).await?;
            let untried: Vec<Wish> =
                wanted.wishes.into_iter().filter(|wish| !self.recordings.tried.contains(&wish.key)).collect();
            for some in untried.chunks(LOOKED_AT_TOGETHER) {
                self.fetch_some(&fetcher, some).await?;
            }
            match wanted.older_from_us {
                Some(older_us) if self.findings.stop.is_none() => until_us = older_us.min(until_us.saturating_sub(1)),
                _ => break,
            }
        }
        self.settle_recordings().await?;
        self.recordings.report.bytes = fetcher.bytes();
        self.recordings.looked_at = Some(Instant::now());
        Ok(())
    }

    async fn fetch_some(&mut self, fetcher: &Fetcher, some: &[Wish]) -> Result<(), PipelineError> {
        let at_once = self.session.settings.throttle.in_flight_max;
        let mut under_way = FuturesUnordered::new();
        let (mut next, mut error) = (some.iter(), None);
        loop {
            while under_way.len() < at_once
                && let Some(wish) = next.next()
            {
                let is_over = self.recordings.is_over || self.findings.stop.is_some();
                under_way.push(fetch_wish(fetcher, wish, is_over));
            }
            let Some((wish, fetched)) = under_way.next().await else { break };
            self.recordings.tried.insert(wish.key.clone());
            match fetched {
                Ok(Fetched::Known(upload)) => {
                    self.recordings.outcomes.extend(wish.outcome(&fetcher.recordings, &upload));
                }
                Ok(Fetched::Came(upload)) => {
                    match &upload {
                        Upload::Stored(_) => self.recordings.report.fetched += 1,
                        Upload::Missing(_) => self.recordings.report.missing += 1,
                    }
                    self.recordings.outcomes.extend(wish.outcome(&fetcher.recordings, &upload));
                }
                Ok(Fetched::NotAsked) => {}
                Ok(Fetched::Waits { reason, is_over }) => {
                    self.recordings.is_over |= is_over;
                    self.recordings.wait_because(reason);
                }
                Ok(Fetched::Stopped(stop)) => self.stop_fetching(stop),
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        // What is here is told also after an error. A kill before costs no request: the notes beside the files know it.
        if error.is_some() || self.recordings.is_settling_due() {
            self.settle_recordings().await?;
        }
        error.map_or(Ok(()), Err)
    }

    fn stop_fetching(&mut self, stop: Stop) {
        self.recordings.wait_because(stop.to_string());
        self.findings.stop = self.findings.stop.or(Some(stop));
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
                warehouse.settle_recordings(&outcomes, Some(Stamp { run_id: &run_id, at_ms: now_ms }))
            };
            let settled =
                destination.work(move |warehouse| settle(warehouse).map_err(failed(warehouse.name()))).await??;
            self.findings.wrote |= settled > 0;
            if destination.lock().wants_publish() {
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
                warehouse.rest().map_err(failed(warehouse.name()))?;
                Ok::<_, PipelineError>(wanted)
            };
            wishes.add_all(destination.work(look).await??, ROWS_AT_ONCE);
        }
        Ok(wishes)
    }
}

async fn fetch_wish<'w>(
    fetcher: &Fetcher,
    wish: &'w Wish,
    is_over: bool,
) -> (&'w Wish, Result<Fetched, PipelineError>) {
    (wish, fetcher.fetch(wish, is_over).await)
}

/// Tells a warehouse that a replay built what is known of recordings, without asking anybody.
pub(super) fn tell_known(warehouse: &mut Warehouse, settings: &RecordingsSettings) -> Result<(), PipelineError> {
    let name = warehouse.name();
    let recordings = Recordings::at(&settings.path, Steps::default());
    let mut until_us = i64::MAX;
    loop {
        let wanted = warehouse.wanted_recordings(until_us, ROWS_AT_ONCE).map_err(failed(name))?;
        let oldest = wanted.last().map(|wanted| wanted.created_us).filter(|_| wanted.len() >= ROWS_AT_ONCE);
        let mut outcomes = Vec::new();
        for wanted in wanted {
            let upload_id = wanted.upload_id.as_deref();
            let Some(key) = UploadKey::of(&wanted.response_group_uid, wanted.question_id, upload_id) else { continue };
            if let Some(upload) = recordings.look_up(&key).map_err(PipelineError::Recordings)? {
                outcomes.push(outcome_of(&wanted, &key, &recordings, &upload));
            }
        }
        warehouse.settle_recordings(&outcomes, None).map_err(failed(name))?;
        match oldest {
            Some(oldest_us) => until_us = oldest_us.min(until_us.saturating_sub(1)),
            None => return Ok(()),
        }
    }
}
