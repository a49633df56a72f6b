//! Errors become exit codes, and a hint where there is a way out.
//! The whole chain of an error is printed here and nowhere else.

use std::io;

use crate::{
    config::ConfigError,
    erase::EraseError,
    load::LoadError,
    pipeline::{
        PipelineError, Wish, chain, is_own, load_code, load_hint, pipeline_hint, refusal_hint, state_code, state_hint,
    },
    serve::ServeError,
    state::StateError,
};

/// For `--help`.
pub(super) const ALL_CODES: &str = "Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 done, but something needs a look; \
     4 key refused; 5 another run holds the lease; 6 stopped early, resumable; 130 interrupted, resumable.";

/// Why a command did not end well.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    Config(ConfigError),
    #[error(transparent)]
    Pipeline(PipelineError),
    #[error("nobody was erased, or not everything: run the same command again")]
    Erase(#[source] EraseError),
    #[error("nobody was erased, and nothing was changed")]
    NotErased(#[source] EraseError),
    #[error(transparent)]
    Load(LoadError),
    #[error(transparent)]
    Serve(ServeError),
    #[error("the statement cannot be answered")]
    Query(#[source] LoadError),
    #[error(transparent)]
    State(StateError),
    #[error("{what}")]
    Failed {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Refused(String),
    /// Whoever read the output has enough.
    #[error("the output is no longer read")]
    PipeClosed,
}

impl CommandError {
    pub fn failed(what: impl Into<String>, source: io::Error) -> Self {
        CommandError::Failed { what: what.into(), source }
    }

    pub fn sandbox(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::InvalidInput => CommandError::Usage(source.to_string()),
            _ => CommandError::failed("the sandbox cannot listen", source),
        }
    }

    /// Tells the user, and returns the exit code.
    pub fn report(&self) -> u8 {
        if matches!(self, CommandError::PipeClosed) {
            return 0;
        }
        // When stderr is gone, the exit code has to say it all.
        self.write_to(&mut anstream::stderr()).ok();
        self.exit_code()
    }

    /// Writes what happened and why, and what to do. The colours are taken out where they cannot be shown.
    fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        let styles = clap::builder::Styles::styled();
        let (error, hint) = (styles.get_error(), styles.get_valid());
        writeln!(out, "{error}error:{error:#} {}", self.chain())?;
        match self.hint() {
            Some(text) => writeln!(out, "{hint}hint:{hint:#} {text}"),
            None => Ok(()),
        }
    }

    /// The error and its causes on one line.
    pub fn chain(&self) -> String {
        chain(self)
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::Config(_) | CommandError::Usage(_) => 2,
            CommandError::Pipeline(error) => error.exit_code(),
            CommandError::Erase(error) | CommandError::NotErased(error) => error.exit_code(),
            CommandError::Load(error) | CommandError::Query(error) => load_code(error),
            CommandError::State(error) => state_code(error),
            CommandError::Serve(error) => serve_code(error),
            CommandError::Failed { .. } | CommandError::Refused(_) => 1,
            CommandError::PipeClosed => 0,
        }
    }

    /// A way out, where there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CommandError::Erase(EraseError::Pipeline(error)) | CommandError::NotErased(EraseError::Pipeline(error)) => {
                pipeline_hint(error)
            }
            CommandError::Erase(EraseError::Io { path, source, .. })
            | CommandError::NotErased(EraseError::Io { path, source, .. }) => refusal_hint(path, source, Wish::Write),
            CommandError::Pipeline(error) => pipeline_hint(error),
            CommandError::Load(LoadError::Locked { holder, .. }) if is_own(holder.as_deref()) => Some(
                "a run of studysync writes to it: ask again when the run has ended; `publish` under [warehouse] leaves a copy that \
                 can be read at any time",
            ),
            CommandError::Load(LoadError::Io { path, source, .. }) => refusal_hint(path, source, Wish::Read),
            CommandError::Load(source) => load_hint(source),
            CommandError::Query(LoadError::TimedOut { .. }) => {
                Some("ask for less (a range of created_at, one survey), or allow more with --time-limit")
            }
            CommandError::Query(LoadError::Engine { source, .. })
                if source.to_string().contains("Out of Memory Error") || source.to_string().contains("bad_alloc") =>
            {
                Some("ask for less, or raise memory_limit_mb under [warehouse]")
            }
            CommandError::State(error) => state_hint(error),
            CommandError::Serve(error) => serve_hint(error),
            _ => None,
        }
    }
}

fn serve_code(error: &ServeError) -> u8 {
    match error {
        ServeError::Config(_)
        | ServeError::Schedule { .. }
        | ServeError::Zone { .. }
        | ServeError::OpenStatusPage { .. } => 2,
        ServeError::Pipeline(error) => error.exit_code(),
        ServeError::State(error) => state_code(error),
        ServeError::AlreadyRunning { .. } => 5,
        ServeError::Listen { .. } | ServeError::Thread(_) => 1,
    }
}

fn serve_hint(error: &ServeError) -> Option<&'static str> {
    match error {
        ServeError::Pipeline(PipelineError::State(error)) => state_hint(error),
        ServeError::State(StateError::Damaged { .. }) => Some(
            "stop everything that uses it, and move the file away together with what begins with its name: deliveries that no \
             warehouse has yet are in it, so keep it; scans find the answers that they told of",
        ),
        ServeError::State(error) => state_hint(error),
        ServeError::OpenStatusPage { .. } => Some(
            "put a token of 16 characters or more into STUDYSYNC_STATUS_TOKEN (or status_token_file under [serve]), or set \
             status_page = \"off\" there",
        ),
        ServeError::AlreadyRunning { .. } => Some("stop the other one, or name another --state"),
        ServeError::Listen { .. } => Some("stop what listens there, or name another address with --listen"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_a_refusal_has_its_own_way_out() {
        let held = |holder: &str| LoadError::Locked { path: "w".into(), holder: Some(holder.to_owned()) };
        let refused = || LoadError::LockRefused { path: "w".into(), source: io::Error::other("No locks available") };
        let asked = |error| CommandError::Load(error).hint().unwrap_or_default();
        let synced = |source| CommandError::Pipeline(PipelineError::Load { destination: "duckdb", source });
        let run = "process 7, /usr/local/bin/studysync";
        assert!(asked(held(run)).contains("when the run has ended"));
        assert!(asked(held("process 7, /usr/bin/duckdb")).contains("close the program"));
        assert!(synced(held(run)).hint().unwrap_or_default().contains("another command of studysync"));
        assert!(synced(held("process 7, /usr/bin/duckdb")).hint().unwrap_or_default().contains("lock_wait_secs"));
        for error in [CommandError::Load(refused()), synced(refused())] {
            assert_eq!(error.exit_code(), 1);
            assert!(error.hint().unwrap_or_default().contains("gives locks"));
        }
        let state = StateError::LockRefused { path: "s".into(), source: io::Error::other("No locks available") };
        let state = CommandError::State(state);
        assert!(state.exit_code() == 1 && state.hint().unwrap_or_default().contains("gives locks"));
    }
}
