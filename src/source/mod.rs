//! The HTTP client: the only part that speaks to the service. It yields the pages of a window under one gate for the whole
//! process, and says what the caller can do when there are none. It does not look into rows, keep anything on disk, or know
//! what a page is for.
//!
//! A request's way, outside in: [`Walk`] guards a window's pages against ends that are none; `fetch` asks for one page until
//! it comes or there is no use in asking; the gate says when a request may be sent; `wire` sends it and reads the answer.

mod address;
mod backoff;
pub mod envelope;
mod error;
mod retry_after;
mod service_clock;
mod settings;
mod stats;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::{
    error::{Failure, LoopCause, SettingsError, SourceError, Stop},
    settings::{AuthForm, SourceSettings},
    stats::RequestStats,
};
use crate::model::{EndStyle, PageRequest, PageToken, TimeAccount};

/// The service behind its gate. Cheap to clone; all clones share one gate, one count and one clock.
#[derive(Clone, Debug)]
pub struct Source {}

impl Source {
    /// A source that has not sent anything yet. `learned` is what [`Source::learned_rate`] said at the end of an earlier run;
    /// waits and requests are booked in `account`; `stop` ends every wait and every request under way within milliseconds.
    pub fn new(
        settings: SourceSettings,
        learned: Option<LearnedRate>,
        account: TimeAccount,
        stop: CancellationToken,
    ) -> Result<Source, SourceError> {
        settings.check()?;
        let _ = (learned, account, stop);
        todo!("next commit")
    }

    /// Asks for one survey: proves address and key.
    pub async fn probe(&self) -> Result<Probe, SourceError> {
        todo!("next commit")
    }

    /// The pages of one window, in the service's order; `request.token` is where to resume.
    pub fn walk(&self, request: PageRequest) -> Walk {
        let _ = request;
        todo!("next commit")
    }

    /// The service's time in epoch milliseconds: its latest `Date` header, advanced by the time since.
    pub fn service_now_ms(&self) -> Option<i64> {
        todo!("next commit")
    }

    /// What was asked so far.
    pub fn request_stats(&self) -> RequestStats {
        todo!("next commit")
    }

    /// What is known of the service's rate limit, to be handed to the next run.
    pub fn learned_rate(&self) -> LearnedRate {
        todo!("next commit")
    }

    /// What everything is waiting for, if it is.
    pub fn waiting(&self) -> Option<Waiting> {
        todo!("next commit")
    }
}

/// What [`Source::probe`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// From sending the request to the last byte of the answer, without waits before it.
    pub latency_ms: u64,
    /// The service's time, if its answer said so.
    pub service_now_ms: Option<i64>,
}

/// The rate at which the service was found to answer, as kept between runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRate {
    /// `None`: no limit was met.
    pub requests_per_sec: Option<f64>,
    /// When that was found, epoch milliseconds by this machine's clock.
    pub measured_ms: i64,
}

/// A wait, for the progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// When it will be over.
    pub until: Instant,
    /// Who said so.
    pub why: WaitReason,
}

/// Why a request is not sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The service named a time (`Retry-After`).
    Told,
    /// Our own backoff after a refusal or a failure.
    Backoff,
    /// The learned rate, or the ceiling of the settings.
    Pace,
}

/// A window's pages, one by one. After an error the walk may be dropped, and resumed later from the last page's `next`.
#[derive(Debug)]
pub struct Walk {}

impl Walk {
    /// What comes next. After the last page this is `End`, as often as asked.
    pub async fn next(&mut self) -> Result<Step, SourceError> {
        todo!("next commit")
    }

    /// The rows a page is asked for at the moment; 0 where the stream has no `limit`.
    pub fn page_rows(&self) -> u32 {
        todo!("next commit")
    }
}

/// One step of a walk.
#[derive(Debug)]
pub enum Step {
    /// A page.
    Page(Page),
    /// The window starts over from its first page: the caller discards its pages so far.
    Restarted {
        /// Why, for people.
        reason: String,
    },
    /// There is no further page. `NotFound`: the service answered 404, an empty and complete result.
    End(EndStyle),
}

/// One page of a window.
#[derive(Clone, Debug)]
pub struct Page {
    /// The exact body, decompressed: UTF-8, and an envelope that [`envelope::parse`] reads.
    pub body: Bytes,
    /// Items in its `data`.
    pub rows: usize,
    /// Where to continue. `None`: this page carried the end.
    pub next: Option<PageToken>,
    /// How the end was said; present exactly when `next` is not.
    pub end: Option<EndStyle>,
    /// The page token that this page was asked for with.
    pub request_token: Option<PageToken>,
    /// The service's time when this page was sent, epoch milliseconds.
    pub service_now_ms: Option<i64>,
}
