//! The error of a command, with its exit code and its hint. Only this file prints the causes of an error.

use std::{borrow::Cow, io};

use crate::{
    config::ConfigError,
    erase::EraseError,
    files::FileError,
    load::LoadError,
    pipeline::{
        FileAccess, PipelineError, chain, is_own_lock, load_code, load_hint, pipeline_hint, refusal_hint, state_code,
        state_hint,
    },
    serve::ServeError,
    state::StateError,
};

/// The exit codes in the help of the program.
pub(super) const ALL_CODES: &str = "Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 done, but something needs attention; \
     4 key refused; 5 another run holds the lease; 6 stopped early, resumable; 130 interrupted, resumable.";

/// The error that ends a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// An erasure failed after it may have removed rows.
    #[error("the erasure did not finish: run the same command again")]
    Erase(#[source] EraseError),
    /// An erasure failed before it removed anything.
    #[error("nobody was erased, and nothing was changed")]
    NotErased(#[source] EraseError),
    /// The suppression of people could not be ended.
    #[error("cannot end the suppression")]
    NotEnded(#[source] EraseError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot execute the statement")]
    Query(#[source] LoadError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{what}")]
    Failed {
        what: String,
        #[source]
        source: io::Error,
    },
    /// The command line or the environment of the command is wrong.
    #[error("{0}")]
    Usage(String),
    /// The command failed for a reason that is no error of a library.
    #[error("{0}")]
    Refused(String),
    /// The reader of stdout has closed the pipe.
    #[error("the reader of the output has closed the pipe")]
    PipeClosed,
}

impl CommandError {
    pub fn failed(what: impl Into<String>, source: io::Error) -> Self {
        CommandError::Failed { what: what.into(), source }
    }

    /// Returns the error for a blocking task that panicked.
    pub fn panicked(error: tokio::task::JoinError) -> Self {
        CommandError::failed("a part of the program stopped", error.into())
    }

    /// Returns the error for a sandbox that cannot start.
    pub fn sandbox(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::InvalidInput => CommandError::Usage(source.to_string()),
            _ => CommandError::failed("the sandbox cannot listen", source),
        }
    }

    /// Writes the error to stderr, and returns the exit code. A closed pipe is not an error.
    pub fn report(&self) -> u8 {
        if matches!(self, CommandError::PipeClosed) {
            return 0;
        }
        // A failure to write to stderr is ignored, because the exit code still shows the result.
        self.write_to(&mut anstream::stderr()).ok();
        self.exit_code()
    }

    /// Writes the error with its causes, and the hint. `anstream` removes the colours if the output cannot show them.
    fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        let styles = clap::builder::Styles::styled();
        let (error, hint) = (styles.get_error(), styles.get_valid());
        writeln!(out, "{error}error:{error:#} {}", self.chain())?;
        match self.hint() {
            Some(text) => writeln!(out, "{hint}hint:{hint:#} {text}"),
            None => Ok(()),
        }
    }

    /// Returns the error and its causes on one line.
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// Returns the exit code of a command that ends with this error; 0 for a closed pipe, which is no failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::Config(_) | CommandError::Usage(_) => 2,
            CommandError::Pipeline(error) => error.exit_code(),
            CommandError::Erase(error) | CommandError::NotErased(error) | CommandError::NotEnded(error) => {
                error.exit_code()
            }
            CommandError::Load(error) | CommandError::Query(error) => load_code(error),
            CommandError::State(error) => state_code(error),
            CommandError::Serve(error) => serve_code(error),
            CommandError::Failed { .. } | CommandError::Refused(_) => 1,
            CommandError::PipeClosed => 0,
        }
    }

    /// Returns what the user can do about the error; `None` if the error itself says so, or nothing is known.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            CommandError::Query(LoadError::Column { hint, .. }) => Some(hint.clone().into()),
            _ => self.known_hint().map(Cow::Borrowed),
        }
    }

    /// Returns the hint of an error whose hint is always the same text.
    fn known_hint(&self) -> Option<&'static str> {
        match self {
            CommandError::Erase(error) | CommandError::NotErased(error) | CommandError::NotEnded(error) => {
                match error {
                    EraseError::Pipeline(error) => pipeline_hint(error),
                    EraseError::NotSuppressed(_) => Some(
                        "name any identifier of the person, as in the erasure, or the id of an erasure: `studysync status --json` lists \
                     them (erasures_waiting). An erasure that is not listed suppresses nobody",
                    ),
                    EraseError::File(FileError { path, source, .. }) => refusal_hint(path, source, FileAccess::Write),
                    _ => None,
                }
            }
            CommandError::Pipeline(error) => pipeline_hint(error),
            CommandError::Load(LoadError::Locked { holder, .. }) if is_own_lock(holder.as_deref()) => Some(
                "a run of studysync writes to it: try again when the run has ended; `publish` under [warehouse] keeps a copy that \
                 can be read at any time",
            ),
            CommandError::Load(LoadError::File(FileError { path, source, .. })) => {
                refusal_hint(path, source, FileAccess::Read)
            }
            CommandError::Load(source) => load_hint(source),
            CommandError::Query(LoadError::TimedOut { .. }) => {
                Some("query less (a range of created_at, one survey), or raise the limit with --time-limit")
            }
            CommandError::Query(error) if error.is_out_of_memory() => {
                Some("query less, or raise memory_limit_mb under [warehouse]")
            }
            CommandError::State(error) => state_hint(error),
            CommandError::Serve(error) => serve_hint(error),
            _ => None,
        }
    }
}

/// Returns the exit code for an error of `serve`.
fn serve_code(error: &ServeError) -> u8 {
    match error {
        ServeError::Config(_)
        | ServeError::Schedule { .. }
        | ServeError::Zone { .. }
        | ServeError::OpenStatusPage { .. } => 2,
        ServeError::Pipeline(error) => error.exit_code(),
        ServeError::State(error) => state_code(error),
        ServeError::AlreadyRunning { .. } => 5,
        ServeError::Listen { .. } | ServeError::DaemonPanicked | ServeError::Thread(_) => 1,
    }
}

/// Returns what the user can do about an error of `serve`; `None` if nothing is known.
fn serve_hint(error: &ServeError) -> Option<&'static str> {
    match error {
        ServeError::Pipeline(error) => pipeline_hint(error),
        ServeError::State(StateError::Damaged { .. }) => Some(
            "stop every program that uses the inbox. Move the file away, with all files whose names begin with its name. Keep \
             them: they have deliveries that no warehouse has yet. Scans find the answers that the deliveries reported",
        ),
        ServeError::State(error) => state_hint(error),
        ServeError::OpenStatusPage { .. } => Some(
            "put a token of 16 characters or more into STUDYSYNC_STATUS_TOKEN (or status_token_file under [serve]), or set \
             status_page = \"off\" there",
        ),
        ServeError::AlreadyRunning { .. } => Some("stop the other `serve`, or name another --state"),
        ServeError::Listen { .. } => Some("stop the program that listens there, or name another address with --listen"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_a_locked_file_has_its_own_hint() {
        let locked = |holder: &str| LoadError::Locked { path: "w".into(), holder: Some(holder.to_owned()) };
        let refused = || LoadError::LockRefused { path: "w".into(), source: io::Error::other("No locks available") };
        let hint = |error| CommandError::Load(error).hint().unwrap_or_default();
        let in_run = |source| CommandError::Pipeline(PipelineError::Load { destination: "duckdb", source });
        let run = "process 7, /usr/local/bin/studysync";
        assert!(hint(locked(run)).contains("when the run has ended"));
        assert!(hint(locked("process 7, /usr/bin/duckdb")).contains("close the program"));
        assert!(in_run(locked(run)).hint().unwrap_or_default().contains("another command of studysync"));
        assert!(in_run(locked("process 7, /usr/bin/duckdb")).hint().unwrap_or_default().contains("lock_wait_secs"));
        for error in [CommandError::Load(refused()), in_run(refused())] {
            assert_eq!(error.exit_code(), 1);
            assert!(error.hint().unwrap_or_default().contains("supports file locks"));
        }
        let state = StateError::LockRefused { path: "s".into(), source: io::Error::other("No locks available") };
        let state = CommandError::State(state);
        assert!(state.exit_code() == 1 && state.hint().unwrap_or_default().contains("supports file locks"));
    }
}
