//! Errors that end an erasure. After the cause is fixed, the same command resumes the erasure.

use std::{io, path::PathBuf};

use crate::{
    files::FileError,
    load::{LoadError, Warehouse},
    model::{Fault, RunReason},
    pipeline::PipelineError,
};

/// An error of an erasure.
#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    /// The archive, a warehouse, a file, the list of suppressed people or the service failed.
    #[error(transparent)]
    Pipeline(PipelineError),
    /// The request cannot be carried out: a person or path that it names cannot be used.
    #[error("{0}")]
    Names(String),
    /// Nobody with these ids is suppressed, so no suppression can end.
    #[error("nobody is suppressed with {}", quoted(.0))]
    NotSuppressed(Vec<String>),
    /// The journal of an interrupted erasure cannot be read.
    #[error("{} cannot be read: {why}", path.display())]
    Journal { path: PathBuf, why: String },
}

impl EraseError {
    /// Returns a function for `map_err` that adds the action and the path to an I/O error.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> EraseError {
        let path = path.into();
        move |source| FileError { action, path, source }.into()
    }

    /// Returns a function for `map_err` that adds the name of the warehouse to an error.
    pub(super) fn load(destination: &'static str) -> impl FnOnce(LoadError) -> EraseError {
        move |source| PipelineError::Load { destination, source }.into()
    }
}

impl Fault for EraseError {
    fn reason(&self) -> RunReason {
        match self {
            EraseError::Pipeline(error) => error.reason(),
            EraseError::Names(_) | EraseError::NotSuppressed(_) => RunReason::Configuration,
            EraseError::Journal { .. } => RunReason::RunFailed,
        }
    }

    fn hint(&self) -> Option<&str> {
        match self {
            EraseError::Pipeline(error) => error.hint(),
            EraseError::NotSuppressed(_) => Some(
                "name any identifier of the person, as in the erasure, or the id of an erasure: `studysync status --json` lists \
                 them (erasures_waiting). An erasure that is not listed suppresses nobody",
            ),
            EraseError::Names(_) | EraseError::Journal { .. } => None,
        }
    }
}

/// Calls `work` for each warehouse, and returns the results. An error has the name of its warehouse.
pub(super) fn in_each<T>(
    warehouses: &mut [Warehouse],
    mut work: impl FnMut(&mut Warehouse) -> Result<T, LoadError>,
) -> Result<Vec<T>, EraseError> {
    let each = |warehouse: &mut Warehouse| work(warehouse).map_err(EraseError::load(warehouse.name()));
    warehouses.iter_mut().map(each).collect()
}

/// Returns the first 60 characters of a text, without characters that control a terminal.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|letter| !crate::model::is_display_control(*letter)).take(60).collect()
}

/// Returns the ids for people, without characters that control a terminal.
fn quoted(ids: &[String]) -> String {
    let shown = ids.iter().map(|id| format!("'{}'", shown(id)));
    shown.collect::<Vec<_>>().join(", ")
}

impl<E: Into<PipelineError>> From<E> for EraseError {
    fn from(error: E) -> Self {
        EraseError::Pipeline(error.into())
    }
}
