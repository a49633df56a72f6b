//! The errors that keep `serve` from starting, or end it.

use std::{io, net::SocketAddr, path::PathBuf};

use crate::{
    config::ConfigError,
    model::{Fault, RunReason},
    pipeline::PipelineError,
    state::StateError,
};

/// An error that keeps `serve` from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(
        "[serve] schedule: '{expression}' cannot be read as minute, hour, day of month, month and day of week: {why}"
    )]
    Schedule { expression: String, why: String },
    #[error(
        "[serve] report_schedule: '{expression}' cannot be read as minute, hour, day of month, month and day of week: {why}"
    )]
    ReportSchedule { expression: String, why: String },
    #[error("[serve] timezone: there is no zone '{zone}'; write a name such as Europe/Berlin, or UTC")]
    Zone { zone: String },
    #[error("cannot listen on {listen}")]
    Listen {
        listen: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("without a token, everybody who reaches {listen} could read the status page")]
    OpenStatusPage { listen: SocketAddr },
    #[error("another `studysync serve` uses the inbox {}", inbox.display())]
    AlreadyRunning { inbox: PathBuf },
    /// A fault of the program.
    #[error("the thread that does the runs stopped")]
    DaemonPanicked,
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

impl Fault for ServeError {
    fn reason(&self) -> RunReason {
        match self {
            ServeError::Config(_)
            | ServeError::Schedule { .. }
            | ServeError::ReportSchedule { .. }
            | ServeError::Zone { .. }
            | ServeError::OpenStatusPage { .. } => RunReason::Configuration,
            ServeError::Pipeline(error) => error.reason(),
            ServeError::State(error) => error.reason(),
            ServeError::AlreadyRunning { .. } => RunReason::LeaseHeld,
            ServeError::Listen { .. } | ServeError::DaemonPanicked | ServeError::Thread(_) => RunReason::RunFailed,
        }
    }

    fn hint(&self) -> Option<&str> {
        match self {
            ServeError::Pipeline(error) => error.hint(),
            ServeError::State(StateError::Damaged { .. }) => Some(
                "stop every program that uses the inbox. Move the file away, with all files whose names begin with its name. Keep \
                 them: they have deliveries that no warehouse has yet. Scans find the answers that the deliveries reported",
            ),
            ServeError::State(error) => error.hint(),
            ServeError::OpenStatusPage { .. } => Some(
                "put a token of 16 characters or more into STUDYSYNC_STATUS_TOKEN (or status_token_file under [serve]), or set \
                 status_page = \"off\" there",
            ),
            ServeError::AlreadyRunning { .. } => Some("stop the other `serve`, or name another --state"),
            ServeError::Listen { .. } => {
                Some("stop the program that listens there, or name another address with --listen")
            }
            _ => None,
        }
    }
}
