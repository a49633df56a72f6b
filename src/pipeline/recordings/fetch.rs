//! One recording: what is known of it, else what comes by its link.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{
    super::PipelineError,
    fresh_link::{Fresh, fresh_link},
    sink::{Allowance, Declined, Sink},
    wishes::Wish,
};
use crate::{
    clock::Clock,
    model::{DAY_MS, FlagSet},
    recordings::{MissingReason, MissingRecording, PartialFile, Recordings, UploadOutcome},
    source::{
        DownloadOutcome, DownloadRequest, DownloadStart, Failure, OTHER_VERSION_STATUS, PartialDownload, Source, Stop,
        host_of,
    },
};

/// Attempts by one link, each going on where the one before was cut off.
const ATTEMPTS_MAX: u32 = 3;
/// Waits before the next attempt.
const NAP: Duration = Duration::from_secs(2);
/// After so many recordings in a row that did not come, their host is left alone until the next run.
const FAILURES_IN_A_ROW_MAX: u32 = 5;
/// Why a host that answers with 429 or 503 is left alone.
const LATER: &str = "their host sends nothing for now (429 or 503)";
/// What a fresh link did not bring is asked for again after so many days; then no more.
const ASK_AGAIN_DAYS: [i64; 3] = [1, 7, 30];

/// What came of one recording.
#[derive(Debug)]
pub(super) enum Fetched {
    /// It was known before.
    Known(UploadOutcome),
    /// It is known now.
    Came(UploadOutcome),
    /// Nobody is to be asked for it: its answer is gone.
    NotAsked,
    /// It failed in an earlier run: those that were not tried yet come first.
    AfterOthers,
    /// It is left to the next run.
    Waits {
        reason: String,
    },
    Stopped(Stop),
}

/// What a run knows of the hosts of recordings, by host and port.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<BTreeMap<String, Host>>);

#[derive(Debug, Default)]
struct Host {
    failures_in_a_row: u32,
    /// Why it is left alone until the next run.
    is_closed: Option<String>,
}

impl Hosts {
    fn with<T>(&self, link: &str, work: impl FnOnce(&mut Host) -> T) -> T {
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(host_of(link)).or_default())
    }

    fn closed(&self, link: &str) -> Option<String> {
        self.with(link, |host| host.is_closed.clone())
    }

    fn close(&self, link: &str, reason: &str) {
        self.with(link, |host| host.is_closed = Some(reason.to_owned()));
    }

    fn came(&self, link: &str) {
        self.with(link, |host| host.failures_in_a_row = 0);
    }

    fn failed(&self, link: &str, reason: &str) {
        self.with(link, |host| {
            host.failures_in_a_row += 1;
            if host.failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
                host.is_closed = Some(reason.to_owned());
            }
        });
    }
}

/// Fetches recordings within the allowance of a run.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub source: Source,
    pub recordings: Recordings,
    pub clock: Clock,
    /// Of the scans of responses.
    pub flags: FlagSet,
    /// Whether an answer is listed at its creation, as far as is known.
    pub is_listed_by_creation: bool,
    pub allowance: Allowance,
    pub hosts: Hosts,
}

impl Fetcher {
    /// What is known of a recording, or what comes by its link; by a fresh one if that has aged. `has_failed_turn`:
    /// also if it failed in an earlier run.
    pub async fn fetch(&self, wish: &Wish, has_failed_turn: bool) -> Result<Fetched, PipelineError> {
        let known = self.recordings.find(&wish.key)?;
        let earlier = match known {
            Some(UploadOutcome::Missing(missing)) if self.is_due(&missing) => Some(missing),
            Some(upload) => return Ok(Fetched::Known(upload)),
            None => None,
        };
        if wish.wanted.is_gone {
            return Ok(Fetched::NotAsked);
        }
        if earlier.as_ref().is_some_and(|missing| missing.reason == MissingReason::Failed) && !has_failed_turn {
            return Ok(Fetched::AfterOthers);
        }
        if let Some(reason) = self.allowance.is_used_up() {
            return Ok(Fetched::Waits { reason });
        }
        let attempts = earlier.map_or(0, |missing| missing.attempts);
        let link = &wish.wanted.link;
        let first = match self.follow(wish, link).await? {
            Followed::Missing(reason @ (MissingReason::Refused | MissingReason::BadLink | MissingReason::NotMedia)) => {
                reason
            }
            followed => return self.ended(wish, followed, attempts),
        };
        // The link has aged: the service hands out another one.
        match fresh_link(&self.source, self.flags, &wish.wanted).await {
            Ok(Fresh::Link(fresh)) if fresh != *link => {
                let followed = self.follow(wish, &fresh).await?;
                self.ended(wish, followed, attempts)
            }
            Ok(Fresh::Link(_)) => self.ended(wish, Followed::Missing(first), attempts),
            Ok(Fresh::Gone) => Ok(Fetched::NotAsked),
            Ok(Fresh::None) if self.is_listed_by_creation => self.ended(wish, Followed::Missing(first), attempts),
            Ok(Fresh::None) => {
                let reason = "the service lists answers by another time than their creation, so no fresh link is found";
                Ok(Fetched::Waits { reason: reason.to_owned() })
            }
            Ok(Fresh::Unknown(reason)) => Ok(Fetched::Waits { reason }),
            Err(stop) => Ok(Fetched::Stopped(stop)),
        }
    }

    /// Whether what is missing is to be asked for again.
    fn is_due(&self, missing: &MissingRecording) -> bool {
        if let Some(limit) = missing.limit_bytes {
            return self.allowance.file_limit_bytes > limit;
        }
        if missing.reason == MissingReason::Failed {
            return true;
        }
        let days = usize::try_from(missing.attempts.saturating_sub(1)).ok().and_then(|at| ASK_AGAIN_DAYS.get(at));
        days.is_some_and(|days| self.clock.now_ms() >= missing.asked_ms.saturating_add(days * DAY_MS))
    }

    fn ended(&self, wish: &Wish, followed: Followed, attempts: u32) -> Result<Fetched, PipelineError> {
        Ok(match followed {
            Followed::Stored(upload) => Fetched::Came(upload),
            Followed::Missing(reason) => {
                self.recordings.discard(&wish.key)?;
                Fetched::Came(self.missing(wish, reason, attempts.saturating_add(1))?)
            }
            Followed::Failed(failure) => {
                // Its part stays: the next run goes on with it.
                self.missing(wish, MissingReason::Failed, attempts)?;
                Fetched::Waits { reason: failure }
            }
            Followed::Waits(reason) => Fetched::Waits { reason },
            Followed::Stopped(stop) => Fetched::Stopped(stop),
        })
    }

    fn missing(&self, wish: &Wish, reason: MissingReason, attempts: u32) -> Result<UploadOutcome, PipelineError> {
        let limit_bytes = (reason == MissingReason::TooLarge).then_some(self.allowance.file_limit_bytes);
        let missing = MissingRecording { reason, attempts, asked_ms: self.clock.now_ms(), limit_bytes };
        self.recordings.note_missing(&wish.key, &missing)?;
        Ok(UploadOutcome::Missing(missing))
    }

    /// Follows a link, a few times if need be.
    async fn follow(&self, wish: &Wish, link: &str) -> Result<Followed, PipelineError> {
        if let Some(reason) = self.hosts.closed(link) {
            return Ok(Followed::Waits(reason));
        }
        let partial = self.recordings.begin(&wish.key)?;
        let mut sink = Sink::new(partial, &self.allowance);
        let mut last = String::new();
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0
                && let Err(stop) = self.source.nap(NAP).await
            {
                return Ok(Followed::Stopped(stop));
            }
            let version = sink.partial.version().cloned();
            let bytes = sink.partial.bytes();
            let from = version.as_ref().map(|version| PartialDownload { bytes, validator: &version.validator });
            let downloaded = match self.source.download(DownloadRequest { link, from }, &mut sink).await {
                Ok(downloaded) => downloaded,
                Err(stop) => return Ok(Followed::Stopped(stop)),
            };
            let followed = match downloaded {
                DownloadOutcome::Failed(failure) => {
                    if matches!(failure, Failure::Status { status: OTHER_VERSION_STATUS, .. }) {
                        sink.partial.restart(None)?;
                    }
                    last = failure.to_string();
                    continue;
                }
                DownloadOutcome::Complete(start) => {
                    self.hosts.came(link);
                    return self.whole(wish, sink.partial, start);
                }
                DownloadOutcome::Refused(_) => Followed::Missing(MissingReason::Refused),
                DownloadOutcome::BadLink(why) => {
                    tracing::warn!("a recording's link cannot be followed: {why}");
                    Followed::Missing(MissingReason::BadLink)
                }
                DownloadOutcome::RateLimited => {
                    self.hosts.close(link, LATER);
                    Followed::Failed(LATER.to_owned())
                }
                DownloadOutcome::Declined(declined) => declined_as(declined)?,
            };
            return Ok(followed);
        }
        self.hosts.failed(link, &last);
        Ok(Followed::Failed(last))
    }

    fn whole(&self, wish: &Wish, partial: PartialFile, start: DownloadStart) -> Result<Followed, PipelineError> {
        if partial.bytes() == 0 {
            return Ok(Followed::Missing(MissingReason::NotMedia));
        }
        let now_ms = self.clock.now_ms();
        let kept = self.recordings.store(&wish.key, partial, start.media_type, now_ms);
        Ok(Followed::Stored(UploadOutcome::Stored(kept?)))
    }
}

fn declined_as(declined: Declined) -> Result<Followed, PipelineError> {
    match declined {
        Declined::NotMedia => Ok(Followed::Missing(MissingReason::NotMedia)),
        Declined::TooLarge => Ok(Followed::Missing(MissingReason::TooLarge)),
        Declined::Allowance(reason) => Ok(Followed::Waits(reason)),
        Declined::File(error) => Err(PipelineError::Recordings(error)),
    }
}

/// What came by one link.
enum Followed {
    Stored(UploadOutcome),
    Missing(MissingReason),
    /// Its host is to blame, or the way to it.
    Failed(String),
    Waits(String),
    Stopped(Stop),
}
