//! Errors that end a run, and failures of windows that do not.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    archive::ArchiveError,
    config::ConfigError,
    files::FileError,
    flatten::FlattenError,
    load::LoadError,
    model::{Fault, RunReason, Scope},
    person::SuppressionError,
    source::SourceError,
    state::StateError,
    upsert::{CORRECT_INPUT, InputError},
};

use super::drift::Frozen;

/// An error that ends the run. Committed scans stay in the warehouses, and the next run resumes the other scans.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("the {destination} warehouse failed")]
    Load {
        destination: &'static str,
        #[source]
        source: LoadError,
    },
    #[error(transparent)]
    State(#[from] StateError),
    /// The suppression list cannot be read. Without it a run would store erased people again.
    #[error("it is not known who is kept out")]
    Person(#[from] SuppressionError),
    /// A page that `source` accepted cannot be flattened, which is a fault of the program.
    #[error(transparent)]
    Flatten(#[from] FlattenError),
    /// A scan was not applied, because its stream is frozen and the scan has drift.
    #[error(transparent)]
    Frozen(Box<Frozen>),
    /// The archive lacks pages, so that a replay would lose rows.
    #[error("{0}")]
    NotReplayable(String),
    /// A recording or the results file of a push cannot be read or written, or a rebuilt warehouse cannot replace the
    /// old one, which is unchanged.
    #[error(transparent)]
    File(#[from] FileError),
    /// A commit note in the archive cannot be read, because it is damaged or of a newer version of the program.
    #[error("a note in the archive cannot be read: {0}")]
    Note(String),
    /// A file of users cannot be opened.
    #[error("cannot open {}", path.display())]
    InputFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A row in a file of users is invalid or cannot be read.
    #[error("the users cannot be read")]
    Input(#[source] InputError),
    /// The rows of a Parquet file or of a query are invalid or cannot be read.
    #[error("the users cannot be read")]
    InputTable(#[source] LoadError),
    /// Neither the warehouse nor the service knows the surveys that were named. The run scanned none of them.
    #[error("{0}")]
    UnknownSurveys(UnknownSurveys),
    /// A thread of the program panicked: a fault of the program.
    #[error("a part of the program stopped: {0}")]
    WorkerPanicked(String),
}

impl PipelineError {
    /// Returns a function for `map_err` that makes the error of a results file of a push.
    pub(super) fn results(path: &Path) -> impl Fn(io::Error) -> PipelineError + Copy + use<'_> {
        move |source| FileError { action: "write the results to", path: path.to_owned(), source }.into()
    }

    fn cause(&self) -> Option<&dyn Fault> {
        Some(match self {
            PipelineError::Config(error) => error,
            PipelineError::Source(error) => error,
            PipelineError::Archive(error) => error,
            PipelineError::Load { source, .. } | PipelineError::InputTable(source) => source,
            PipelineError::State(error) => error,
            PipelineError::Person(error) => error,
            PipelineError::File(error) => error,
            PipelineError::Input(error) => error,
            _ => return None,
        })
    }
}

impl Fault for PipelineError {
    fn reason(&self) -> RunReason {
        match self {
            PipelineError::UnknownSurveys(_) | PipelineError::InputFile { .. } => RunReason::Configuration,
            error => error.cause().map_or(RunReason::RunFailed, Fault::reason),
        }
    }

    fn hint(&self) -> Option<&str> {
        match self {
            PipelineError::InputTable(_) => Some(CORRECT_INPUT),
            PipelineError::NotReplayable(_) => Some(
                "the warehouse is unchanged; a range whose scans are all archived can be replayed with --from and --to, and \
                 everything can be pulled again into a new warehouse with `backfill`",
            ),
            error => error.cause()?.hint(),
        }
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
    /// What to do about the error, where something is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The error without the address of the request, if other windows failed for the same reason. For texts.
    #[serde(skip)]
    pub cause: Option<String>,
}

impl Failure {
    pub(super) fn new(scope: Scope, window: crate::model::Window, error: &dyn std::error::Error) -> Self {
        let window = window.to_string();
        let stream = scope.stream.name();
        Self { stream, survey_id: scope.survey_id, window, error: chain(error), hint: None, cause: None }
    }

    /// Returns the failure on one line, for the summary of a run.
    pub fn sentence(&self) -> String {
        format!("{} {}: {}", self.stream, self.window, self.error)
    }
}

/// The maximum number of causes that are shown of an error.
const CAUSES_MAX: usize = 2;

/// Returns an error and its causes on one line, outermost first. Leaves out a cause whose text is part of the text
/// before it. Of many causes, only the last ones are shown, because the last causes name what failed.
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

/// The maximum number of known surveys that the message suggests.
const SUGGESTED_MAX: usize = 3;

/// Surveys by id, with their names.
pub type SurveyNames = BTreeMap<i64, String>;

/// Named surveys that are unknown, and the known surveys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownSurveys {
    /// The named surveys that are unknown.
    pub ids: Vec<i64>,
    /// The known surveys.
    pub known: SurveyNames,
}

impl fmt::Display for UnknownSurveys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.ids.iter().map(i64::to_string).collect();
        let (noun, verb) = if ids.len() == 1 { ("survey", "is") } else { ("surveys", "are") };
        write!(f, "{noun} {} {verb} not known", ids.join(", "))?;
        let near: Vec<String> = self.near().map(|(id, name)| format!("{id} ({name})")).collect();
        if !near.is_empty() {
            write!(f, "; did you mean {}?", near.join(" or "))?;
        }
        Ok(())
    }
}

impl UnknownSurveys {
    /// Returns the known surveys whose ids are most similar to an unknown id, at most [`SUGGESTED_MAX`].
    fn near(&self) -> impl Iterator<Item = (&i64, &String)> {
        let distance = |id: i64| {
            let wrong =
                self.ids.iter().map(|unknown| strsim::damerau_levenshtein(&unknown.to_string(), &id.to_string()));
            wrong.min().unwrap_or(usize::MAX)
        };
        let mut known: Vec<_> = self.known.iter().collect();
        known.sort_by_key(|(id, _)| (distance(**id), **id));
        known.into_iter().take(SUGGESTED_MAX)
    }
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
    fn a_chain_repeats_no_cause_and_keeps_the_last_ones() {
        let chained = |texts: &[&'static str]| {
            let levels = texts.iter().rev().fold(None, |source, text| Some(Box::new(Level { text, source })));
            chain(&*levels.unwrap())
        };
        assert_eq!(chained(&["cannot open x"]), "cannot open x");
        assert_eq!(chained(&["cannot open x", "no such file"]), "cannot open x: no such file");
        assert_eq!(chained(&["cannot open x: no such file", "no such file"]), "cannot open x: no such file");
        assert_eq!(chained(&["one", "two", "three", "four", "five"]), "one: four: five");
    }

    #[test]
    fn the_nearest_ids_are_suggested_first() {
        let known = [(4100, "Onboarding"), (4101, "Prices"), (52, "Old"), (4200, "Exit")];
        let known: SurveyNames = known.into_iter().map(|(id, name)| (id, name.to_owned())).collect();
        let message = UnknownSurveys { ids: vec![4010], known: known.clone() }.to_string();
        assert!(message.starts_with("survey 4010 is not known; did you mean 4100 (Onboarding) or "), "{message}");
        let two = UnknownSurveys { ids: vec![1, 2], known: SurveyNames::new() }.to_string();
        assert_eq!(two, "surveys 1, 2 are not known");
    }
}
