//! Fetches one recording: returns the known outcome, or downloads the recording by its link.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::pipeline::error::PipelineError;

use super::{
    pending_downloads::{FreshLink, PendingDownload, fresh_link},
    sink::{Allowance, Declined, Sink},
};
use crate::{
    clock::Clock,
    files::FileError,
    model::{DAY_MS, FlagSet, RowStamp, RunId, is_in_future},
    recordings::{MissingReason, MissingRecording, PartialFile, Recordings, STORED, UploadOutcome},
    source::{DownloadOutcome, DownloadRequest, DownloadStart, Failure, PartialDownload, Source, Stop, host_of},
};

/// The maximum number of attempts with one link. Each attempt resumes where the one before broke off.
const ATTEMPTS_MAX: u32 = 3;
/// Wait between two attempts.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Consecutive failed recordings after which a host gets no further request in this run.
const CONSECUTIVE_FAILURES_MAX: u32 = 5;
/// The reason why a host that answers 429 or 503 gets no further request in this run.
const HOST_BUSY: &str = "their host sends nothing for now (429 or 503)";
/// Days after which a missing recording is requested again: after its first, second and third attempt. After the fourth
/// attempt, the recording stays missing.
const RETRY_DAYS: [i64; 3] = [1, 7, 30];

/// The result of fetching one recording.
#[derive(Debug)]
pub(super) enum FetchResult {
    /// The outcome was known before; no request was sent.
    Known(UploadOutcome),
    /// The outcome is new.
    New(UploadOutcome),
    /// The answer was deleted, so the recording is not requested.
    AnswerDeleted,
    /// The download failed in an earlier run. The recording is tried after all recordings that were never tried.
    Deferred,
    /// This run does not fetch the recording, for this reason; the next run tries it again. `outcome` is that of a
    /// failed download.
    NextRun {
        reason: String,
        outcome: Option<UploadOutcome>,
    },
    /// The recording exceeds what the run may still download.
    DoesNotFit {
        reason: String,
    },
    Stopped(Stop),
}

impl FetchResult {
    fn next_run(reason: String) -> FetchResult {
        FetchResult::NextRun { reason, outcome: None }
    }
}

/// The hosts of recordings in this run, by host and port.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<BTreeMap<String, Host>>);

/// One host of recordings.
#[derive(Debug, Default)]
struct Host {
    consecutive_failures: u32,
    /// Why the host gets no further request in this run. `None` while requests are allowed.
    closed_reason: Option<String>,
}

impl Hosts {
    /// Runs `work` on the host of a link.
    fn with<T>(&self, link: &str, work: impl FnOnce(&mut Host) -> T) -> T {
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(host_of(link)).or_default())
    }

    fn closed_reason(&self, link: &str) -> Option<String> {
        self.with(link, |host| host.closed_reason.clone())
    }

    fn close(&self, link: &str, reason: &str) {
        self.with(link, |host| host.closed_reason = Some(reason.to_owned()));
    }

    fn succeeded(&self, link: &str) {
        self.with(link, |host| host.consecutive_failures = 0);
    }

    /// Counts a failed recording. After [`CONSECUTIVE_FAILURES_MAX`] failures, closes the host.
    fn failed(&self, link: &str, reason: &str) {
        self.with(link, |host| {
            host.consecutive_failures += 1;
            if host.consecutive_failures >= CONSECUTIVE_FAILURES_MAX {
                host.closed_reason = Some(reason.to_owned());
            }
        });
    }
}

/// Fetches recordings within the limits of a run.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub source: Source,
    pub recordings: Recordings,
    pub run_id: RunId,
    pub clock: Clock,
    /// The flags of scans of responses.
    pub flags: FlagSet,
    /// False if the service is known to list answers by another time than their creation.
    pub is_listed_by_creation: bool,
    pub allowance: Allowance,
    pub hosts: Hosts,
}

impl Fetcher {
    /// Fetches a recording, unless its outcome is known. If the link seems to have expired, requests a fresh link from
    /// the service and tries once more.
    ///
    /// If `includes_failed` is false, a recording whose download failed in an earlier run is deferred.
    pub async fn fetch(&self, upload: &PendingDownload, includes_failed: bool) -> Result<FetchResult, PipelineError> {
        let earlier = match self.recordings.find(&upload.key)? {
            Some(UploadOutcome::Missing(missing)) if self.is_due(&missing) => Some(missing),
            Some(outcome) => return Ok(FetchResult::Known(self.written_now(upload, outcome)?)),
            None => None,
        };
        if upload.row.is_gone {
            return self.without_answer(upload);
        }
        if earlier.as_ref().is_some_and(|missing| missing.reason == MissingReason::Failed) && !includes_failed {
            return Ok(FetchResult::Deferred);
        }
        if let Some(reason) = self.allowance.used_up_reason() {
            return Ok(FetchResult::DoesNotFit { reason });
        }
        let attempts = earlier.map_or(0, |missing| missing.attempts);
        let link = &upload.row.link;
        let first_reason = match self.follow(upload, link).await? {
            LinkResult::Missing(
                reason @ (MissingReason::Refused | MissingReason::BadLink | MissingReason::NotMedia),
            ) => reason,
            result => return self.finish(upload, result, attempts),
        };
        // An expired link is refused, or leads to a page that is no recording.
        match fresh_link(&self.source, self.flags, &upload.row).await {
            Ok(FreshLink::Link(fresh)) if fresh != *link => {
                let result = self.follow(upload, &fresh).await?;
                self.finish(upload, result, attempts)
            }
            Ok(FreshLink::Link(_)) => self.finish(upload, LinkResult::Missing(first_reason), attempts),
            Ok(FreshLink::Deleted) => self.without_answer(upload),
            Ok(FreshLink::NotListed) if self.is_listed_by_creation => {
                self.finish(upload, LinkResult::Missing(first_reason), attempts)
            }
            Ok(FreshLink::NotListed) => {
                let reason = "the service lists answers by another time than their creation, so no fresh link is found";
                Ok(FetchResult::next_run(reason.to_owned()))
            }
            Ok(FreshLink::Unknown(reason)) => Ok(FetchResult::next_run(reason)),
            Err(stop) => Ok(FetchResult::Stopped(stop)),
        }
    }

    /// Returns true if a missing recording should be requested again. One that was too large is due if the limit has
    /// grown, and one whose download failed is due at once. Others are due after [`RETRY_DAYS`].
    fn is_due(&self, missing: &MissingRecording) -> bool {
        if let Some(limit) = missing.limit_bytes {
            return self.allowance.file_limit_bytes > limit;
        }
        if missing.reason == MissingReason::Failed {
            return true;
        }
        let retry = usize::try_from(missing.attempts.saturating_sub(1)).ok();
        let days = retry.and_then(|index| RETRY_DAYS.get(index));
        let now_ms = self.clock.now_ms();
        let is_over = |days: &i64| now_ms >= missing.asked_ms.saturating_add(days * DAY_MS);
        days.is_some_and(|days| is_over(days) || is_in_future(missing.asked_ms, now_ms))
    }

    /// Stores the result of following a link, and returns the result of the recording. `attempts` is the number of
    /// earlier attempts; a failed download does not count as an attempt.
    fn finish(
        &self,
        upload: &PendingDownload,
        result: LinkResult,
        attempts: u32,
    ) -> Result<FetchResult, PipelineError> {
        Ok(match result {
            LinkResult::Stored(outcome) => FetchResult::New(outcome),
            LinkResult::Missing(reason) => {
                self.recordings.discard(&upload.key)?;
                FetchResult::New(self.store_missing(upload, reason, attempts.saturating_add(1))?)
            }
            LinkResult::Failed(reason) => {
                // The partial file stays: the next run resumes the download.
                let outcome = self.store_missing(upload, MissingReason::Failed, attempts)?;
                FetchResult::NextRun { reason, outcome: Some(outcome) }
            }
            LinkResult::NextRun(reason) => FetchResult::next_run(reason),
            LinkResult::DoesNotFit(reason) => FetchResult::DoesNotFit { reason },
            LinkResult::Stopped(stop) => FetchResult::Stopped(stop),
        })
    }

    /// Stores next to the recordings that a recording is missing, and returns this outcome.
    fn store_missing(
        &self,
        upload: &PendingDownload,
        reason: MissingReason,
        attempts: u32,
    ) -> Result<UploadOutcome, PipelineError> {
        let limit_bytes = (reason == MissingReason::TooLarge).then_some(self.allowance.file_limit_bytes);
        let written = self.stamp(upload, reason.name(), None)?;
        let missing = MissingRecording { reason, attempts, asked_ms: self.clock.now_ms(), limit_bytes, written };
        let outcome = UploadOutcome::Missing(missing);
        self.recordings.note(&upload.key, &outcome)?;
        Ok(outcome)
    }

    /// Returns the result of a recording whose answer was deleted. If its file was stored and is gone, notes so.
    fn without_answer(&self, upload: &PendingDownload) -> Result<FetchResult, PipelineError> {
        if upload.row.sha256.is_none() {
            return Ok(FetchResult::AnswerDeleted);
        }
        Ok(FetchResult::New(self.store_missing(upload, MissingReason::Lost, 1)?))
    }

    /// Returns the stamp of the rows if they get this outcome: of this run, or of the run that wrote the same outcome
    /// before.
    fn stamp(
        &self,
        upload: &PendingDownload,
        status: &str,
        sha256: Option<&str>,
    ) -> Result<Option<RowStamp>, FileError> {
        if upload.has(status, sha256) {
            return Ok(self.recordings.noted(&upload.key)?.and_then(|noted| noted.written().cloned()));
        }
        let at_ms = self.source.service_now_ms().unwrap_or_else(|| self.clock.now_ms());
        Ok(Some(RowStamp { run_id: self.run_id.clone(), at_ms }))
    }

    /// Returns a known outcome with the stamp of this run, and notes the stamp. Returns the outcome as it is if the
    /// rows have it already.
    fn written_now(&self, upload: &PendingDownload, outcome: UploadOutcome) -> Result<UploadOutcome, PipelineError> {
        if upload.has(outcome.status(), outcome.sha256()) {
            return Ok(outcome);
        }
        let written = self.stamp(upload, outcome.status(), outcome.sha256())?;
        let outcome = outcome.with_written(written);
        self.recordings.note(&upload.key, &outcome)?;
        Ok(outcome)
    }

    /// Downloads the recording at a link. After a failure of the host or the connection, makes up to [`ATTEMPTS_MAX`]
    /// attempts; any other result is final. Resumes the partial file of an earlier attempt or run if the host still has
    /// the same version. After an attempt in which the host sent nothing of the requested part, the next one requests
    /// the whole file.
    async fn follow(&self, upload: &PendingDownload, link: &str) -> Result<LinkResult, PipelineError> {
        let closed_reason = || self.hosts.closed_reason(link);
        if let Some(reason) = closed_reason() {
            return Ok(LinkResult::NextRun(reason));
        }
        let partial = self.recordings.begin(&upload.key)?;
        let mut sink = Sink::new(partial, &self.allowance, &closed_reason);
        let (mut last, mut resumes) = (String::new(), true);
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0
                && let Err(stop) = self.source.retry_delay(RETRY_DELAY).await
            {
                return Ok(LinkResult::Stopped(stop));
            }
            let version = sink.partial.version().filter(|_| resumes).cloned();
            let bytes = sink.partial.bytes();
            let from = version.as_ref().map(|version| PartialDownload { bytes, validator: &version.validator });
            let result = match self.source.download(DownloadRequest { link, partial: from }, &mut sink).await {
                DownloadOutcome::Failed(failure) => {
                    // Some hosts fail for each range.
                    let is_of_range = from.is_some() && matches!(failure, Failure::Status { .. });
                    resumes = !is_of_range;
                    last = failure.to_string();
                    continue;
                }
                DownloadOutcome::UnusablePart(failure) => {
                    // The stored bytes stay until the host sends the whole file, unless this answer added wrong ones.
                    resumes = false;
                    if sink.partial.bytes() != bytes {
                        sink.partial.restart(None)?;
                    }
                    last = failure.to_string();
                    continue;
                }
                DownloadOutcome::Complete(start) => {
                    self.hosts.succeeded(link);
                    return self.store(upload, sink.partial, start);
                }
                DownloadOutcome::Refused(_) => LinkResult::Missing(MissingReason::Refused),
                DownloadOutcome::BadLink(why) => {
                    tracing::warn!("a recording's link cannot be followed: {why}");
                    LinkResult::Missing(MissingReason::BadLink)
                }
                DownloadOutcome::RateLimited => {
                    self.hosts.close(link, HOST_BUSY);
                    LinkResult::Failed(HOST_BUSY.to_owned())
                }
                DownloadOutcome::Declined(declined) => LinkResult::of_declined(declined)?,
                DownloadOutcome::Stopped(stop) => LinkResult::Stopped(stop),
            };
            return Ok(result);
        }
        self.hosts.failed(link, &last);
        Ok(LinkResult::Failed(last))
    }

    /// Stores a complete download. An empty file is no recording.
    fn store(
        &self,
        upload: &PendingDownload,
        partial: PartialFile,
        start: DownloadStart,
    ) -> Result<LinkResult, PipelineError> {
        if partial.bytes() == 0 {
            return Ok(LinkResult::Missing(MissingReason::NotMedia));
        }
        let written = |sha256: &str| self.stamp(upload, STORED, Some(sha256));
        let stored = self.recordings.store(&upload.key, partial, start.media_type, self.clock.now_ms(), written)?;
        Ok(LinkResult::Stored(UploadOutcome::Stored(stored)))
    }
}

/// The result of following one link.
enum LinkResult {
    Stored(UploadOutcome),
    Missing(MissingReason),
    /// The host or the connection failed.
    Failed(String),
    /// This run does not fetch the recording, for this reason; the next run tries it again.
    NextRun(String),
    /// The recording exceeds what the run may still download.
    DoesNotFit(String),
    Stopped(Stop),
}

impl LinkResult {
    /// Returns the result of a download that the sink ended early. An error of the file is an error.
    fn of_declined(declined: Declined) -> Result<LinkResult, PipelineError> {
        match declined {
            Declined::NotMedia => Ok(LinkResult::Missing(MissingReason::NotMedia)),
            Declined::TooLarge => Ok(LinkResult::Missing(MissingReason::TooLarge)),
            Declined::DoesNotFit(reason) => Ok(LinkResult::DoesNotFit(reason)),
            Declined::NextRun(reason) => Ok(LinkResult::NextRun(reason)),
            Declined::File(error) => Err(PipelineError::File(error)),
        }
    }
}
