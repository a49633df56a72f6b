//! The HTTP client: the only part that speaks to the service. It yields the pages of a window under one gate for the
//! whole process, and says what the caller can do when there are none. It does not look into rows, keep anything on
//! disk, or know what a page is for.
//!
//! A request's way, outside in: [`Walk`] guards a window's pages against ends that are none; `fetch` asks for one page
//! until it comes or there is no use in asking; the gate says when a request may be sent;
//! `wire` sends it and reads the answer.

mod inner;
mod service;

mod walk;

mod guards;
mod page_size;

mod fetch;
mod probe;

mod backoff;
mod gate;
mod learned_rate;
mod waiting;

mod ends;

mod cause;
mod client;
mod connection;
mod lists_seen;
mod tls_problem;
mod transport;
mod wire;

mod address;
mod ask;
mod body;
mod call;
mod download;
pub mod envelope;
mod excerpt;
mod purge;
mod retry_after;
mod service_clock;
mod surveys_path;
mod users;

#[cfg(fuzzing)]
pub mod fuzzing;

mod error;
mod settings;
mod stats;

pub use self::client::install_crypto;
pub use self::{
    ask::{Answer, Range},
    download::{DownloadFrom, DownloadRequest, DownloadSink, DownloadStart, Downloaded, OTHER_VERSION, host_of},
    error::{Failure, LoopCause, SettingsError, SourceError, Stop},
    learned_rate::LearnedRate,
    probe::Probe,
    purge::{PURGE_DELETIONS_MAX, PurgeAnswer, PurgeRequest},
    service::Source,
    settings::{AuthForm, SourceSettings, checked_address},
    stats::RequestStats,
    tls_problem::TlsProblem,
    transport::{Reply, Transport},
    users::{Upserted, UserAnswer},
    waiting::{WaitReason, Waiting},
    walk::{Page, Step, Walk},
};

#[cfg(test)]
mod tests;
