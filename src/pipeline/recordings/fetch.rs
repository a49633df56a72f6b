//! One recording: what is known of it, else what comes by its link.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use super::{
    super::PipelineError,
    fresh_link::{Fresh, fresh_link},
    wishes::Wish,
};
use crate::{
    clock::Clock,
    model::{DAY_MS, FlagSet},
    recordings::{Missing, Partial, Reason, Recordings, RecordingsError, Upload, Version},
    source::{DownloadFrom, DownloadRequest, DownloadSink, DownloadStart, Downloaded, Failure, Source, Stop},
};

/// Attempts by one link, each going on where the one before was cut off.
const ATTEMPTS_MAX: u32 = 3;
/// Waits before the next attempt.
const NAP: Duration = Duration::from_secs(2);
/// After so many recordings in a row that did not come, their host is left alone until the next run.
const FAILURES_IN_A_ROW_MAX: u32 = 5;
/// What a fresh link did not bring is asked for again after so many days; then no more.
const ASK_AGAIN_DAYS: [i64; 3] = [1, 7, 30];

/// What came of one recording.
#[derive(Debug)]
pub(super) enum Fetched {
    /// It was known before.
    Known(Upload),
    /// It is known now.
    Came(Upload),
    /// Nobody is to be asked for it: its answer is gone.
    NotAsked,
    /// It is left to the next run. `is_over`: so are all others.
    Waits {
        reason: String,
        is_over: bool,
    },
    Stopped(Stop),
}

/// Fetches recordings within the allowance of a run.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub source: Source,
    pub recordings: Recordings,
    pub clock: Clock,
    /// Of the scans of responses.
    pub flags: FlagSet,
    pub file_limit_bytes: u64,
    pub run_limit_bytes: u64,
    /// What came and what is under way.
    pub spent_bytes: AtomicU64,
    /// Recordings that did not come, without one between that did.
    pub failures_in_a_row: AtomicU32,
}

impl Fetcher {
    /// What came in this run.
    pub fn bytes(&self) -> u64 {
        self.spent_bytes.load(Ordering::Relaxed)
    }

    /// What is known of a recording, or what comes by its link; by a fresh one if that has aged. `is_over`: only what is known counts.
    pub async fn fetch(&self, wish: &Wish, is_over: bool) -> Result<Fetched, PipelineError> {
        let known = self.recordings.look_up(&wish.key).map_err(PipelineError::Recordings)?;
        let earlier = match known {
            Some(Upload::Missing(missing)) if self.is_due(&missing) => Some(missing),
            Some(upload) => return Ok(Fetched::Known(upload)),
            None => None,
        };
        if wish.wanted.is_gone {
            return Ok(Fetched::NotAsked);
        }
        if is_over {
            return Ok(Fetched::Waits { reason: String::new(), is_over: true });
        }
        let attempts = earlier.map_or(0, |missing| missing.attempts);
        match self.follow(wish, &wish.wanted.link).await? {
            Followed::Missing(Reason::Refused | Reason::BadLink) => {}
            followed => return self.ended(wish, followed, attempts),
        }
        // The link has aged: the service hands out another one.
        match fresh_link(&self.source, self.flags, &wish.wanted).await {
            Ok(Fresh::Link(link)) if link != wish.wanted.link => {
                let followed = self.follow(wish, &link).await?;
                self.ended(wish, followed, attempts)
            }
            Ok(Fresh::Link(_) | Fresh::None) => self.ended(wish, Followed::Missing(Reason::Refused), attempts),
            Ok(Fresh::Unknown(reason)) => Ok(Fetched::Waits { reason, is_over: false }),
            Err(stop) => Ok(Fetched::Stopped(stop)),
        }
    }

    /// Whether what is missing is to be asked for again.
    fn is_due(&self, missing: &Missing) -> bool {
        if let Some(limit) = missing.limit_bytes {
            return self.file_limit_bytes > limit;
        }
        let days = usize::try_from(missing.attempts.saturating_sub(1)).ok().and_then(|at| ASK_AGAIN_DAYS.get(at));
        days.is_some_and(|days| self.clock.now_ms() >= missing.asked_ms.saturating_add(days * DAY_MS))
    }

    fn ended(&self, wish: &Wish, followed: Followed, attempts: u32) -> Result<Fetched, PipelineError> {
        Ok(match followed {
            Followed::Stored(upload) => Fetched::Came(upload),
            Followed::Missing(reason) => {
                let limit_bytes = (reason == Reason::TooLarge).then_some(self.file_limit_bytes);
                let asked_ms = self.clock.now_ms();
                let missing = Missing { reason, attempts: attempts.saturating_add(1), asked_ms, limit_bytes };
                self.recordings.note_missing(&wish.key, &missing).map_err(PipelineError::Recordings)?;
                Fetched::Came(Upload::Missing(missing))
            }
            Followed::Waits { reason, is_over } => Fetched::Waits { reason, is_over },
            Followed::Stopped(stop) => Fetched::Stopped(stop),
        })
    }

    /// Follows a link, a few times if need be.
    async fn follow(&self, wish: &Wish, link: &str) -> Result<Followed, PipelineError> {
        let partial = self.recordings.begin(&wish.key).map_err(PipelineError::Recordings)?;
        let mut sink = Sink { partial, fetcher: self, is_reserved: false };
        let mut last = None;
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0
                && let Err(stop) = self.source.nap(NAP).await
            {
                return Ok(Followed::Stopped(stop));
            }
            let version = sink.partial.version().cloned();
            let bytes = sink.partial.bytes();
            let from = version.as_ref().map(|version| DownloadFrom { bytes, validator: &version.validator });
            let downloaded = match self.source.download(DownloadRequest { link, from }, &mut sink).await {
                Ok(downloaded) => downloaded,
                Err(stop) => return Ok(Followed::Stopped(stop)),
            };
            sink.is_reserved = false;
            match downloaded {
                Downloaded::Whole(start) => return self.whole(wish, sink.partial, start),
                Downloaded::Refused(_) => return discarded(sink.partial, Followed::Missing(Reason::Refused)),
                Downloaded::BadLink(why) => {
                    tracing::warn!("a recording's link cannot be followed: {why}");
                    return discarded(sink.partial, Followed::Missing(Reason::BadLink));
                }
                Downloaded::Later => {
                    let reason = "their host sends nothing for now (429 or 503)".to_owned();
                    return Ok(Followed::Waits { reason, is_over: true });
                }
                Downloaded::Declined(Declined::NotMedia) => {
                    return discarded(sink.partial, Followed::Missing(Reason::NotMedia));
                }
                Downloaded::Declined(Declined::TooLarge) => {
                    return discarded(sink.partial, Followed::Missing(Reason::TooLarge));
                }
                Downloaded::Declined(Declined::Allowance) => {
                    let reason = format!("run_limit_mb = {} is used up", self.run_limit_bytes / 1_000_000);
                    return Ok(Followed::Waits { reason, is_over: true });
                }
                Downloaded::Declined(Declined::File(error)) => return Err(PipelineError::Recordings(error)),
                Downloaded::Failed(failure) => {
                    if matches!(failure, Failure::Status { status: 416, .. }) {
                        sink.partial.restart(None).map_err(PipelineError::Recordings)?;
                    }
                    last = Some(failure);
                }
            }
        }
        let reason = last.map(|failure| failure.to_string()).unwrap_or_default();
        let failures = self.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Followed::Waits { reason, is_over: failures >= FAILURES_IN_A_ROW_MAX })
    }

    fn whole(&self, wish: &Wish, partial: Partial, start: DownloadStart) -> Result<Followed, PipelineError> {
        if partial.bytes() == 0 {
            return discarded(partial, Followed::Missing(Reason::NotMedia));
        }
        self.failures_in_a_row.store(0, Ordering::Relaxed);
        let now_ms = self.clock.now_ms();
        let kept = self.recordings.keep(&wish.key, partial, start.media_type, now_ms);
        Ok(Followed::Stored(Upload::Stored(kept.map_err(PipelineError::Recordings)?)))
    }
}

/// What came by one link.
enum Followed {
    Stored(Upload),
    Missing(Reason),
    Waits { reason: String, is_over: bool },
    Stopped(Stop),
}

fn discarded(partial: Partial, followed: Followed) -> Result<Followed, PipelineError> {
    partial.discard().map_err(PipelineError::Recordings)?;
    Ok(followed)
}

/// Why no more is taken.
#[derive(Debug)]
enum Declined {
    /// A web page, JSON or text.
    NotMedia,
    TooLarge,
    /// The run has fetched what it may.
    Allowance,
    File(RecordingsError),
}

/// Writes a recording as it comes.
struct Sink<'f> {
    partial: Partial,
    fetcher: &'f Fetcher,
    /// The bytes to come are counted already.
    is_reserved: bool,
}

impl DownloadSink for Sink<'_> {
    type Error = Declined;

    fn start(&mut self, start: &DownloadStart) -> Result<(), Declined> {
        if start.media_type.as_deref().is_some_and(is_no_media) {
            return Err(Declined::NotMedia);
        }
        if let Some(length) = start.length {
            if length > self.fetcher.file_limit_bytes {
                return Err(Declined::TooLarge);
            }
            self.fetcher.spend(length.saturating_sub(start.offset))?;
            self.is_reserved = true;
        }
        if start.offset == 0 {
            let version = start.validator.clone().map(|validator| Version { validator });
            self.partial.restart(version).map_err(Declined::File)?;
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Declined> {
        let count = bytes.len() as u64;
        if self.partial.bytes().saturating_add(count) > self.fetcher.file_limit_bytes {
            return Err(Declined::TooLarge);
        }
        if !self.is_reserved {
            self.fetcher.spend(count)?;
        }
        self.partial.write(bytes).map_err(Declined::File)
    }
}

impl Fetcher {
    fn spend(&self, bytes: u64) -> Result<(), Declined> {
        let spent = self.spent_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if spent <= self.run_limit_bytes {
            return Ok(());
        }
        self.spent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Err(Declined::Allowance)
    }
}

/// Whether a media type is that of no recording.
fn is_no_media(media_type: &str) -> bool {
    let is_document = media_type.ends_with("json") || media_type.ends_with("xml") || media_type.ends_with("javascript");
    media_type.starts_with("text/") || media_type.starts_with("image/") || is_document
}
