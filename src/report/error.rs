//! The errors of the report.

use crate::{load::LoadError, state::StateError};

/// An error of the report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("cannot draw a chart: {0}")]
    Draw(String),
}
