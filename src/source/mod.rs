//! The HTTP client, the only stage that talks to the service. The client reads the pages of a window through one gate
//! per process. Errors say what the caller can do. The client does not look into rows and stores nothing on disk.
//!
//! A request passes four layers. [`Walk`] reads the pages of a window and detects false ends. `fetch` retries one page.
//! The gate decides when a request may be sent. `wire` sends the request and reads the answer.

mod inner;
mod service;

mod walk;

mod guards;
mod page_memory;
mod page_size;

mod fetch;
mod probe;

mod backoff;
mod gate;
mod learned_rate;
mod request_wait;

mod token_lifetimes;

mod client;
mod connection;
mod credentials;
mod error_cause;
mod key_reader;
mod list_ends;
mod lists_seen;
mod proxies;
mod tls_problem;
mod transport;
mod wire;

mod address;
mod body;
mod download;
mod download_start;
pub mod envelope;
mod excerpt;
mod list_call;
mod purge;
mod retry_after;
mod service_clock;
mod surveys_path;
mod user_request;
mod users;

#[cfg(fuzzing)]
pub mod fuzzing;

mod error;
mod settings;
mod stats;

pub use self::client::install_crypto;
pub use self::{
    download::{DownloadOutcome, DownloadRequest, DownloadSink, host_of},
    download_start::{DownloadStart, PartialDownload},
    error::{Failure, LoopCause, SettingsError, SourceError, Stop},
    key_reader::KeyReader,
    learned_rate::LearnedRate,
    list_call::{Answer, Range},
    list_ends::NotFoundEnd,
    page_memory::PageReservation,
    probe::Probe,
    proxies::Proxies,
    purge::{PURGE_DELETIONS_MAX, PurgeAnswer, PurgeRequest},
    request_wait::{RequestWait, WaitReason},
    service::Source,
    settings::{AuthForm, KnownLists, SourceSettings, checked_address},
    stats::RequestStats,
    tls_problem::TlsProblem,
    transport::{Reply, Transport},
    users::{UpsertError, UpsertOutcome, UserAnswer},
    walk::{Page, Walk, WalkStep},
};

#[cfg(test)]
mod tests;
