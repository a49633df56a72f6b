//! Why there is no report.

use crate::{load::LoadError, state::StateError};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("a chart cannot be drawn: {0}")]
    Draw(String),
}
