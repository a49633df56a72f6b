//! Errors become exit codes, and a hint where there is a way out. The whole chain of an error is printed here and nowhere else.

use std::{error::Error, io, path::Path};

use super::users::input_hint;
use crate::{
    archive::ArchiveError,
    config::ConfigError,
    erase::EraseError,
    load::LoadError,
    person::PersonError,
    pipeline::{PipelineError, chain, load_code, state_code},
    serve::ServeError,
    source::{Failure, SettingsError, SourceError, Stop},
    state::StateError,
};

/// For `--help`.
pub(super) const ALL_CODES: &str = "Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 done, but something needs a look; \
     4 key refused; 5 another run holds the lease; 6 stopped early, resumable; 130 interrupted, resumable.";

/// Why a command did not end well.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("cannot do that")]
    Config(#[source] ConfigError),
    #[error("the run ended early")]
    Pipeline(#[source] PipelineError),
    #[error("nobody was erased, or not everything: run the same command again")]
    Erase(#[source] EraseError),
    #[error("nobody was erased, and nothing was changed")]
    NotErased(#[source] EraseError),
    #[error("the warehouse cannot be read")]
    Load(#[source] LoadError),
    #[error("serve cannot go on")]
    Serve(#[source] ServeError),
    #[error("the statement cannot be answered")]
    Query(#[source] LoadError),
    #[error("the checkpoints cannot be read")]
    State(#[source] StateError),
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
        let mut text = format!("error: {self}");
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(&format!("\n  because: {error}"));
            cause = error.source();
        }
        if let Some(hint) = self.hint() {
            text.push_str(&format!("\n  what to do: {hint}"));
        }
        text.push('\n');
        // When stderr is gone, the exit code has to say it all.
        io::Write::write_all(&mut io::stderr(), text.as_bytes()).ok();
        self.exit_code()
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
            CommandError::Query(LoadError::OutOfTime { .. }) => {
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

fn pipeline_hint(error: &PipelineError) -> Option<&'static str> {
    match error {
        PipelineError::Source(error) => source_hint(error),
        PipelineError::Load { source, .. } => load_hint(source),
        PipelineError::State(error) => state_hint(error),
        PipelineError::Input(_) | PipelineError::InputTable(_) => input_hint(error),
        PipelineError::Person(PersonError::KeyLost { .. }) => Some(
            "restore the key from a backup: without it, people who were erased would come back. If they must, move suppressed.json away",
        ),
        PipelineError::Person(PersonError::Damaged { .. }) => Some("restore it from a backup"),
        PipelineError::Person(PersonError::Newer { .. }) => Some("use the newer version of studysync"),
        PipelineError::Person(PersonError::Io { path, source, .. })
        | PipelineError::Swap { path, source, .. }
        | PipelineError::Results { path, source } => refusal_hint(path, source, Wish::Write),
        PipelineError::NotReplayable(_) => Some(
            "the warehouse is as it was; a stretch whose scans are all archived can be replayed with --from and --to, and \
             anything can be pulled again into a new warehouse with `backfill`",
        ),
        PipelineError::Archive(ArchiveError::Damaged { .. }) => Some(
            "the warehouse is as it was; restore the file from a backup, or leave the archive as it is: only `replay` reads it",
        ),
        PipelineError::Archive(error) => archive_hint(error),
        _ => None,
    }
}

fn serve_code(error: &ServeError) -> u8 {
    match error {
        ServeError::Config(_) | ServeError::Schedule { .. } | ServeError::Zone { .. } => 2,
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
        ServeError::AlreadyRunning { .. } => Some("stop the other one, or name another --state"),
        ServeError::Listen { .. } => Some("stop what listens there, or name another address with --listen"),
        _ => None,
    }
}

const SPACE: &str = "make room and run the same command again: nothing committed is lost, and it goes on where it was";

const LOCKS: &str = "keep it on a file system that gives locks: a local disk, or a network mount with its lock service (NFS: lockd, not \
     `nolock`). No other process holds it";
const WRITABLE: &str = "make the folder writable for this user, or name another place for it";
const DAMAGED: &str =
    "restore it from a backup, or move it away and run the same command again: what it held is pulled anew";

/// Whether a lock is held by this program.
fn is_own(holder: Option<&str>) -> bool {
    holder.is_some_and(|holder| holder == "this process" || holder.ends_with("studysync"))
}

/// What a command wanted of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Read,
    Write,
}

/// The way out where the system refuses a file: by what this user lacks.
fn refusal_hint(path: &Path, error: &io::Error, wish: Wish) -> Option<&'static str> {
    use io::ErrorKind::{AlreadyExists, NotADirectory, PermissionDenied, ReadOnlyFilesystem};
    let may = |right| rustix::fs::access(path, right).is_ok();
    match error.kind() {
        PermissionDenied if path.try_exists().is_err() => {
            Some("let this user enter the folders above it, or run the command as the user who owns them")
        }
        PermissionDenied if path.exists() && !may(rustix::fs::Access::READ_OK) => {
            Some("let this user read it, or run the command as the user who owns it")
        }
        PermissionDenied if wish == Wish::Write && path.is_file() && !may(rustix::fs::Access::WRITE_OK) => {
            Some("make the file writable for this user, or run the command as the user who owns it")
        }
        ReadOnlyFilesystem if wish == Wish::Write => {
            Some("its file system is mounted read-only: make it writable, or name another place for it")
        }
        NotADirectory | AlreadyExists => {
            Some("a file stands where a folder is needed, and nothing below it is writable: name another place for it")
        }
        PermissionDenied | ReadOnlyFilesystem if wish == Wish::Write => Some(WRITABLE),
        _ => None,
    }
}

fn archive_hint(error: &ArchiveError) -> Option<&'static str> {
    match error {
        ArchiveError::Full { .. } => Some(SPACE),
        ArchiveError::Io { path, source, .. } => refusal_hint(path, source, Wish::Write),
        ArchiveError::OtherService { .. } | ArchiveError::OtherOwner { .. } => Some(
            "name another folder with --archive (path under [archive]): a folder holds the pages of one service, environment and state \
             file. After the state file was renamed, remove owner.json from the folder",
        ),
        _ => None,
    }
}

fn source_hint(error: &SourceError) -> Option<&'static str> {
    match error {
        SourceError::KeyRefused { .. } => Some(
            "check the key and that it belongs to this environment of the service; for users also its form: auth under [service]",
        ),
        SourceError::Blocked { .. } => Some("ask whoever runs the proxy or firewall to let this program through"),
        SourceError::Stopped(Stop::Patience { told: true, .. }) => {
            Some("run the same command again after that; --ignore-rate-limit asks at once, against the service's word")
        }
        SourceError::Forbidden { .. } => {
            Some("ask the service whether this key may read that, and whoever runs a proxy or firewall what it refuses")
        }
        SourceError::NotFound { .. } => {
            Some("check --base-url, with its path: it is what stands before /v1/responses, without the /v1")
        }
        SourceError::Unreachable { last: Failure::Tls { problem, .. }, .. } if problem.is_certificate() => {
            Some(CERTIFICATE)
        }
        SourceError::Unreachable {
            last: Failure::Tls { .. } | Failure::Connect { .. } | Failure::TimedOut { .. },
            ..
        } => Some(CONNECTION),
        SourceError::Unreachable { .. } => {
            Some("check the address and the network; run the same command again to go on")
        }
        SourceError::BadAnswer { last: Failure::NotHttp { .. }, .. } => {
            Some("check --base-url: where the port speaks https, write https://")
        }
        SourceError::BadAnswer { .. } => {
            Some("check that --base-url is the service itself, and not a web page or a proxy")
        }
        SourceError::Settings(SettingsError::Client { .. }) => Some(CERTIFICATE),
        _ => None,
    }
}

const CERTIFICATE: &str = "if an authority of your own or a company's proxy signed it, name a PEM file with the certificates of all \
    trusted authorities in the environment variable SSL_CERT_FILE";
const CONNECTION: &str = "check the address (https:// or http://, host, port) and the network; where this machine reaches the internet \
    through a proxy, name that in the environment variable HTTPS_PROXY; run the same command again to go on";

fn load_hint(error: &LoadError) -> Option<&'static str> {
    match error {
        LoadError::Locked { holder, .. } if is_own(holder.as_deref()) => Some(
            "another command of studysync has it open: wait for it to end, then run again; a run waits for it as long as lock_wait_secs \
             under [warehouse] says",
        ),
        LoadError::LockRefused { .. } => Some(LOCKS),
        LoadError::Missing { .. } => {
            Some("run `studysync sync` first, which makes it, or name the warehouse with --duckdb or --parquet")
        }
        LoadError::Locked { .. } => Some(
            "close the program that has it open (an analyst's session, a notebook), then run again; a run waits for it as long as \
             lock_wait_secs under [warehouse] says",
        ),
        LoadError::OtherIdentity { .. } => Some(
            "name another warehouse: one warehouse holds one environment of one service. If the service has moved: studysync rebind --from ITS_OLD_ADDRESS",
        ),
        LoadError::NoExtension { .. } => Some(
            "install it for the user who runs studysync (INSTALL fts, in DuckDB of the same version), or name its folder by \
             extension_directory under [warehouse]; until then search_answers searches without an index. Or switch off full_text_search",
        ),
        LoadError::Newer { .. } => Some("use the newer version of studysync"),
        LoadError::NotOurs { .. } => Some(
            "name another path; or, if it was the warehouse once, restore it from a backup, or move it away and run the same command again",
        ),
        LoadError::InTheWay { .. } => Some(
            "it is an object of your own: drop it, or make it without what is named here (a copy of its rows can stay in a file of your own \
             or in another table), then run the same command again",
        ),
        LoadError::OtherPartition { .. } => Some("keep to the partition it was made with, or name another folder"),
        LoadError::Full { .. } => Some(SPACE),
        LoadError::Unfinished { .. } => Some("run `studysync sync` once, which finishes it"),
        LoadError::Damaged { .. } => Some(DAMAGED),
        LoadError::OutOfTime { .. } => Some("ask for less: --survey narrows it"),
        LoadError::Engine { source, .. } if source.to_string().contains("Out of Memory Error") => {
            Some("raise memory_limit_mb under [warehouse] and run the same command again: nothing committed is lost")
        }
        LoadError::Io { path, source, .. } => refusal_hint(path, source, Wish::Write),
        _ => None,
    }
}

fn state_hint(error: &StateError) -> Option<&'static str> {
    match error {
        StateError::Leased { .. } => {
            Some("wait for it, or stop it; two runs at once would only ask for the same twice")
        }
        StateError::OtherService { .. } => Some(
            "name another --state: one state file belongs to one environment of one service. If the service has moved: studysync rebind --from ITS_OLD_ADDRESS",
        ),
        StateError::Newer { .. } => Some("use the newer version of studysync"),
        StateError::Full { .. } => Some(SPACE),
        StateError::Damaged { .. } => {
            Some("run sync: it puts the file aside and rebuilds the checkpoints from the ledgers of the warehouses")
        }
        StateError::PutAside { .. } => Some("move it away yourself and run the same command again"),
        StateError::Unreachable { path, source } => refusal_hint(path, source, Wish::Read),
        StateError::LockRefused { .. } => Some(LOCKS),
        StateError::Folder { path, source } | StateError::Lock { path, source } => {
            refusal_hint(path, source, Wish::Write).or(Some(WRITABLE))
        }
        StateError::ReadOnly { .. } => Some(WRITABLE),
        StateError::Sqlite { .. } => {
            Some("look at the disk (space, quota, errors) and run the same command again: nothing committed is lost")
        }
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
