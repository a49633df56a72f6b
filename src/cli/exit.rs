//! The error of a command, with its exit code and its hint. Only this file prints the causes of an error.

use std::{io, net::SocketAddr};

use crate::{
    erase::EraseError,
    files::{FileAccess, FileError, refusal_hint},
    load::LoadError,
    model::{Fault, RunReason},
    pipeline::{PipelineError, chain},
    serve::ServeError,
};

use super::terminal::{styled_error, styled_hint, wrapped_for_terminal};

/// The exit codes in the help of the program.
pub(super) const ALL_CODES: &str = "Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 done, but something needs attention; \
     4 key refused; 5 another run holds the lease; 6 stopped early, resumable; 130 interrupted, resumable.";

/// The error that ends a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    Pipeline(PipelineError),
    /// An erasure failed after it may have removed rows.
    #[error("the erasure did not finish: run the same command again")]
    Erase(#[source] EraseError),
    /// An erasure failed before it removed anything.
    #[error("nobody was erased, and nothing was changed")]
    NotErased(#[source] EraseError),
    /// The data of people could not be exported.
    #[error("cannot export what is stored about the person")]
    NotExported(#[source] EraseError),
    /// The suppression of people could not be ended.
    #[error("cannot end the suppression")]
    NotEnded(#[source] EraseError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot execute the statement")]
    Query(#[source] LoadError),
    #[error("{what}")]
    Failed {
        what: String,
        #[source]
        source: io::Error,
    },
    /// Nothing answers at the address of `serve`.
    #[error("no answer from {address}")]
    NoServe {
        address: SocketAddr,
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

impl<E: Into<PipelineError>> From<E> for CommandError {
    fn from(error: E) -> Self {
        CommandError::Pipeline(error.into())
    }
}

impl CommandError {
    /// Returns a function for `map_err` that says what failed.
    pub fn failed<E: Into<io::Error>>(what: impl Into<String> + Clone) -> impl Fn(E) -> Self {
        move |source| CommandError::Failed { what: what.clone().into(), source: source.into() }
    }

    /// Returns the error for a blocking task that panicked.
    pub fn panicked(error: tokio::task::JoinError) -> Self {
        CommandError::failed("a part of the program stopped")(error)
    }

    /// Returns the error for a sandbox that cannot start.
    pub fn sandbox(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::InvalidInput => CommandError::Usage(source.to_string()),
            _ => CommandError::failed("the sandbox cannot listen")(source),
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
        write_error(out, &self.chain(), self.hint())
    }

    /// Returns the error and its causes on one line.
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// Returns the wrapped error that knows the reason; `None` for an error of this command alone.
    fn cause(&self) -> Option<&dyn Fault> {
        Some(match self {
            CommandError::Pipeline(error) => error,
            CommandError::Erase(error) | CommandError::NotErased(error) => error,
            CommandError::NotExported(error) | CommandError::NotEnded(error) => error,
            CommandError::Load(error) | CommandError::Query(error) => error,
            CommandError::Serve(error) => error,
            _ => return None,
        })
    }
}

/// Writes an error and its hint, each on one line. On a terminal, long lines are wrapped.
pub(super) fn write_error(out: &mut impl io::Write, error: &str, hint: Option<&str>) -> io::Result<()> {
    let hint = hint.map(|hint| format!("{} {hint}\n", styled_hint("hint:"))).unwrap_or_default();
    let error = format!("{} {error}\n", styled_error("error:"));
    // A message of several lines is not wrapped: that of a SQL error points at columns.
    let error = if error.trim_end().contains('\n') { error } else { wrapped_for_terminal(&error) };
    write!(out, "{error}{}", wrapped_for_terminal(&hint))
}

impl Fault for CommandError {
    fn reason(&self) -> RunReason {
        match self {
            CommandError::Usage(_) => RunReason::Configuration,
            error => error.cause().map_or(RunReason::RunFailed, Fault::reason),
        }
    }

    fn hint(&self) -> Option<&str> {
        match self {
            CommandError::Load(error) if error.is_own_lock() => Some(
                "a run of studysync writes to it: try again when the run has ended, or raise lock_wait_secs; `publish` under [warehouse] keeps a copy that \
                 can be read at any time",
            ),
            CommandError::Load(LoadError::File(FileError { path, source, .. })) => {
                refusal_hint(path, source, FileAccess::Read)
            }
            CommandError::Query(LoadError::Column { hint, .. }) => Some(hint),
            CommandError::Query(LoadError::TimedOut { .. }) => {
                Some("query less (a range of created_at, one survey), or raise the limit with --time-limit")
            }
            CommandError::Query(error) if error.is_out_of_memory() => {
                Some("query less, or raise memory_limit_mb under [warehouse]")
            }
            CommandError::Query(_) => None,
            CommandError::NoServe { .. } => {
                Some("`health` asks a running `studysync serve`; without one, `studysync status` shows the health")
            }
            error => error.cause()?.hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateError;

    #[test]
    fn each_cause_of_a_locked_file_has_its_own_hint() {
        let locked = |holder: &str| LoadError::Locked { path: "w".into(), holder: Some(holder.to_owned()) };
        let refused = || LoadError::LockRefused { path: "w".into(), source: io::Error::other("No locks available") };
        let hint = |error| CommandError::Load(error).hint().map(str::to_owned).unwrap_or_default();
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
        let state = CommandError::from(state);
        assert!(state.exit_code() == 1 && state.hint().unwrap_or_default().contains("supports file locks"));
    }
}
