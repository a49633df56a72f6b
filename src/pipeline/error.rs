//! What can end a run, and what can fail in it without ending it.

use std::{io, path::PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    archive::ArchiveError,
    config::ConfigError,
    flatten::FlattenError,
    load::LoadError,
    model::Scope,
    person::PersonError,
    recordings::RecordingsError,
    source::{SourceError, Stop},
    state::StateError,
    upsert::InputError,
};

use super::{Frozen, UnknownSurveys};

/// An error that ends the run. Everything committed stays, and the next run goes on.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Source(SourceError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("the {destination} warehouse failed")]
    Load {
        destination: &'static str,
        #[source]
        source: LoadError,
    },
    #[error(transparent)]
    Recordings(#[from] RecordingsError),
    #[error(transparent)]
    State(#[from] StateError),
    /// Without the list of those who are kept out, a run would let them back in.
    #[error("it is not known who is kept out")]
    Person(#[source] PersonError),
    /// A page that `source` took for whole cannot be flattened: a fault of the program.
    #[error(transparent)]
    Flatten(#[from] FlattenError),
    /// A scan was not applied, because its stream is frozen and it holds what the contract does not know.
    #[error(transparent)]
    Frozen(Box<Frozen>),
    /// The archive lacks pages without which tables built from it would be poorer than they are.
    #[error("{0}")]
    NotReplayable(String),
    /// A warehouse that was built beside cannot take the place of the old one, which is as it was.
    #[error("cannot {action} {}", path.display())]
    Swap {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A note in the archive on how a scan was committed cannot be read: damaged, or of a newer version.
    #[error("a note in the archive cannot be read: {0}")]
    Note(String),
    /// A file of users cannot be opened.
    #[error("cannot open {}", path.display())]
    InputFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Rows of users are not what they must be, or stop coming.
    #[error("the users cannot be read")]
    Input(#[source] InputError),
    /// The same of a Parquet file or a query.
    #[error("the users cannot be read")]
    InputTable(#[source] LoadError),
    /// The file with the fates of rows cannot be written.
    #[error("cannot write the results to {}", path.display())]
    Results {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Surveys were named that neither the warehouse nor the service knows. Nothing was asked for in their name.
    #[error("{0}")]
    UnknownSurveys(UnknownSurveys),
    /// A thread of the program died: a fault of the program.
    #[error("a part of the program stopped: {0}")]
    WorkerPanicked(String),
}

impl PipelineError {
    /// The exit code of a command that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            PipelineError::Config(_)
            | PipelineError::UnknownSurveys(_)
            | PipelineError::Source(SourceError::Settings(_)) => 2,
            PipelineError::Source(SourceError::KeyRefused { .. }) => 4,
            PipelineError::Source(SourceError::Stopped(Stop::Cancelled)) => 130,
            PipelineError::Source(SourceError::Stopped(_)) => 6,
            PipelineError::Load { source, .. } | PipelineError::InputTable(source) => load_code(source),
            PipelineError::Input(InputError::Columns(_)) | PipelineError::InputFile { .. } => 2,
            PipelineError::State(error) => state_code(error),
            PipelineError::Archive(ArchiveError::OtherService { .. } | ArchiveError::OtherOwner { .. }) => 2,
            _ => 1,
        }
    }
}

/// The exit code of a command that a warehouse refused.
pub fn load_code(error: &LoadError) -> u8 {
    match error {
        LoadError::Locked { .. } => 5,
        LoadError::OtherIdentity { .. }
        | LoadError::OtherPartition { .. }
        | LoadError::Newer { .. }
        | LoadError::Missing { .. }
        | LoadError::NotOurs { .. }
        | LoadError::ForeignObject { .. } => 2,
        _ => 1,
    }
}

/// The exit code of a command that the checkpoints refused.
pub fn state_code(error: &StateError) -> u8 {
    match error {
        StateError::Leased { .. } => 5,
        StateError::OtherService { .. } | StateError::Newer { .. } => 2,
        _ => 1,
    }
}

/// A window that could not be scanned; the others were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failure {
    /// The stream.
    pub stream: &'static str,
    /// The survey, where the scan was of one survey alone.
    pub survey_id: Option<i64>,
    /// The range of creation time.
    pub window: String,
    /// The error and its causes.
    pub error: String,
}

impl Failure {
    pub(super) fn new(scope: Scope, window: crate::model::Window, error: &dyn std::error::Error) -> Self {
        let window = window.to_string();
        Self { stream: scope.stream.name(), survey_id: scope.survey_id, window, error: chain(error) }
    }

    /// It on one line, as the end of a run tells it.
    pub fn sentence(&self) -> String {
        format!("{} {}: {}", self.stream, self.window, self.error)
    }
}

/// The causes that are shown of an error, beside what it says itself.
const CAUSES_MAX: usize = 2;

/// An error and its causes on one line, outermost first. A level that the one before it says already is left out; of many causes the
/// last are shown, which name what failed.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut levels = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if levels.last().is_none_or(|last| !last.contains(&text)) {
            levels.push(text);
        }
        cause = error.source();
    }
    if levels.len() > 1 + CAUSES_MAX {
        levels.drain(1..levels.len() - CAUSES_MAX);
    }
    levels.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Level {
        text: &'static str,
        #[source]
        source: Option<Box<Level>>,
    }

    #[test]
    fn no_level_is_said_twice_and_the_root_is_kept() {
        let chained = |texts: &[&'static str]| {
            let levels = texts.iter().rev().fold(None, |source, text| Some(Box::new(Level { text, source })));
            chain(&*levels.unwrap())
        };
        assert_eq!(chained(&["cannot open x"]), "cannot open x");
        assert_eq!(chained(&["cannot open x", "no such file"]), "cannot open x: no such file");
        assert_eq!(chained(&["cannot open x: no such file", "no such file"]), "cannot open x: no such file");
        assert_eq!(chained(&["one", "two", "three", "four", "five"]), "one: four: five");
    }
}
