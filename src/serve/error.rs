//! The errors that keep `serve` from starting, or end it.

use std::{io, net::SocketAddr, path::PathBuf};

use crate::{config::ConfigError, pipeline::PipelineError, state::StateError};

/// An error that keeps `serve` from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Config(ConfigError),
    #[error(transparent)]
    Pipeline(PipelineError),
    #[error(transparent)]
    State(StateError),
    #[error(
        "[serve] schedule: '{expression}' cannot be read as minute, hour, day of month, month and day of week: {why}"
    )]
    Schedule { expression: String, why: String },
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
