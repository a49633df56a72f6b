//! What to do about an error: one sentence, where there is a way out. The command line, the pages of `serve`, metrics
//! and notifications show the same one.

use std::{io, path::Path};

use crate::{
    archive::ArchiveError,
    load::LoadError,
    person::SuppressionError,
    source::{Failure, SettingsError, SourceError, Stop},
    state::StateError,
};

use super::PipelineError;

/// The way out of an error that ends a run.
pub fn pipeline_hint(error: &PipelineError) -> Option<&'static str> {
    match error {
        PipelineError::Source(error) => source_hint(error),
        PipelineError::Load { source, .. } => load_hint(source),
        PipelineError::State(error) => state_hint(error),
        PipelineError::Input(_) | PipelineError::InputTable(_) => Some(INPUT),
        PipelineError::Person(SuppressionError::KeyLost { .. }) => Some(
            "restore the key from a backup: without it, people who were erased would come back. If they must, move suppressed.json away",
        ),
        PipelineError::Person(SuppressionError::Damaged { .. }) => Some("restore it from a backup"),
        PipelineError::Person(SuppressionError::Newer { .. }) => Some("use the newer version of studysync"),
        PipelineError::Person(SuppressionError::Io { path, source, .. })
        | PipelineError::Swap { path, source, .. }
        | PipelineError::Results { path, source } => refusal_hint(path, source, Wish::Write),
        PipelineError::NotReplayable(_) => Some(
            "the warehouse is as it was; a range whose scans are all archived can be replayed with --from and --to, and \
             anything can be pulled again into a new warehouse with `backfill`",
        ),
        PipelineError::Archive(ArchiveError::Damaged { .. }) => Some(
            "the warehouse is as it was; restore the file from a backup, or leave the archive as it is: only `replay` reads it",
        ),
        PipelineError::Archive(error) => archive_hint(error),
        _ => None,
    }
}

const INPUT: &str =
    "see `studysync users push --help` for the columns; rows before it were sent, and are not sent again";
const SPACE: &str = "make room and run the same command again: nothing committed is lost, and it goes on where it was";

const LOCKS: &str = "keep it on a file system that gives locks: a local disk, or a network mount with its lock service (NFS: lockd, not \
     `nolock`). No other process holds it";
const WRITABLE: &str = "make the folder writable for this user, or name another place for it";
const DAMAGED: &str =
    "restore it from a backup, or move it away and run the same command again: what it held is pulled anew";
const BUG: &str =
    "report this bug of studysync with the message; nothing committed is lost, and the same command can be run again";

/// Whether a lock is held by this program.
pub fn is_own(holder: Option<&str>) -> bool {
    holder.is_some_and(|holder| holder == "this process" || holder.ends_with("studysync"))
}

/// What a command wanted of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Read,
    Write,
}

/// The way out where the system refuses a file: by what this user lacks.
pub fn refusal_hint(path: &Path, error: &io::Error, wish: Wish) -> Option<&'static str> {
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

/// The way out of an error of a warehouse that a run writes to.
pub fn load_hint(error: &LoadError) -> Option<&'static str> {
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
        LoadError::ForeignObject { .. } => Some(
            "it is an object of your own: drop it, or make it without what is named here (a copy of its rows can stay in a file of your own \
             or in another table), then run the same command again",
        ),
        LoadError::OtherPartition { .. } => Some("keep to the partition it was made with, or name another folder"),
        LoadError::Full { .. } => Some(SPACE),
        LoadError::Unfinished { .. } => Some("run `studysync sync` once, which finishes it"),
        LoadError::Damaged { .. } | LoadError::DamagedRows(_) => Some(DAMAGED),
        LoadError::TooManyRows { .. } => Some("name fewer people at once"),
        LoadError::RolledBack => Some("run the same command again: it applies these scans again"),
        LoadError::Bug(_) => Some(BUG),
        LoadError::TimedOut { .. } => Some("ask for less: --survey narrows it"),
        LoadError::Engine { source, .. } if source.to_string().contains("Out of Memory Error") => {
            Some("raise memory_limit_mb under [warehouse] and run the same command again: nothing committed is lost")
        }
        LoadError::Io { path, source, .. } => refusal_hint(path, source, Wish::Write),
        _ => None,
    }
}

/// The way out of an error of the checkpoints.
pub fn state_hint(error: &StateError) -> Option<&'static str> {
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
