//! The HTTP client, the only stage that talks to the service. The client reads the pages of a window through one gate
//! per process. Errors say what the caller can do. The client does not look into rows and stores nothing on disk.
//!
//! A request passes four layers. [`Walk`] reads the pages of a window and detects false ends. `fetch` retries one page.
//! The gate decides when a request may be sent. `wire` sends the request and reads the answer.

mod service;

mod probe;
mod purge;
mod users;
mod walk;

mod guards;
mod page_memory;

mod download;
mod download_start;

mod fetch;

mod backoff;
mod gate;

mod body;
pub mod envelope;
mod header_times;
mod transport;
mod wire;

mod address;
mod client;
mod error;
mod lists;
mod proxies;
mod settings;
mod settings_error;
mod tls_problem;

#[cfg(fuzzing)]
pub use self::header_times::retry_after_of_lines;
pub use self::{
    address::Range,
    download::{DownloadOutcome, DownloadRequest, DownloadSink, host_of},
    download_start::{DownloadStart, PartialDownload},
    error::{Failure, LoopCause, SourceError, Stop},
    gate::{LearnedRate, RequestWait, WaitReason},
    lists::NotFoundEnd,
    page_memory::PageReservation,
    probe::Probe,
    proxies::Proxies,
    purge::{PURGE_DELETIONS_MAX, PurgeAnswer, PurgeRequest},
    service::Source,
    settings::{AuthForm, KeyReader, KnownLists, SourceSettings, checked_address},
    settings_error::SettingsError,
    tls_problem::TlsProblem,
    transport::{Reply, Transport},
    users::{UpsertOutcome, Upserted, UserAnswer},
    walk::{Answer, Page, Walk, WalkStep},
    wire::RequestStats,
};

#[cfg(test)]
mod tests;
