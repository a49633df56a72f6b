//! Hints: one sentence that says what to do about an error. The command line, the pages of `serve`, metrics and
//! notifications show the same hint.

use std::{io, path::Path, sync::LazyLock};

use rustix::io::Errno;

use crate::{
    archive::ArchiveError,
    files::FileError,
    load::LoadError,
    model::WarehouseKind,
    person::SuppressionError,
    source::{Failure, SettingsError, SourceError, Stop},
    state::StateError,
    upsert::InputError,
};

use super::PipelineError;

/// Returns what to do about an error that ends a run, or `None` if the error's text says enough.
pub fn pipeline_hint(error: &PipelineError) -> Option<&'static str> {
    match error {
        PipelineError::Source(error) => source_hint(error),
        PipelineError::Load { source, .. } => load_hint(source),
        PipelineError::State(error) => state_hint(error),
        PipelineError::Input(InputError::Columns(_)) => {
            Some("see `studysync users push --help` for the columns; no row was sent")
        }
        PipelineError::Input(_) | PipelineError::InputTable(_) => Some(
            "correct the input and run the same command again: rows that the service has answered are not sent again",
        ),
        PipelineError::Person(SuppressionError::KeyLost { .. }) => Some(
            "restore the key from a backup: without it, erased people would come back. If it is lost, replace suppressed.json by an \
             empty list ({\"format_version\":1,\"erasures\":[]}) and erase them again",
        ),
        PipelineError::Person(SuppressionError::ListLost { .. }) => Some(
            "restore the folder from a backup: without it, erased people would come back. If it is lost, write an empty list \
             ({\"format_version\":1,\"erasures\":[]}) and erase them again",
        ),
        PipelineError::Person(SuppressionError::Damaged { .. }) => Some("restore it from a backup"),
        PipelineError::Person(SuppressionError::Newer { .. }) => Some("use the newer version of studysync"),
        PipelineError::Person(SuppressionError::File(FileError { path, source, .. }))
        | PipelineError::File(FileError { path, source, .. })
        | PipelineError::Results { path, source } => refusal_hint(path, source, FileAccess::Write),
        PipelineError::NotReplayable(_) => Some(
            "the warehouse is unchanged; a range whose scans are all archived can be replayed with --from and --to, and \
             everything can be pulled again into a new warehouse with `backfill`",
        ),
        PipelineError::Archive(ArchiveError::Damaged { .. }) => Some(
            "the warehouse is unchanged; restore the file from a backup, or leave the archive as it is: only `replay` reads it",
        ),
        PipelineError::Archive(error) => archive_hint(error),
        _ => None,
    }
}

const SPACE: &str =
    "free disk space and run the same command again: nothing committed is lost, and the command resumes";
const LOCKS: &str = "move it to a file system that supports file locks: a local disk, or a network mount with its lock service (NFS: lockd, not \
     `nolock`). No other process holds it";
const WRITABLE: &str = "make the folder writable for this user, or name another path";
const DAMAGED: &str =
    "restore it from a backup, or move it away and run the same command again, which pulls its rows again";
const OPEN_FILES: &str = "raise the limit of open files of this program: LimitNOFILE= in a unit of systemd, `ulimit -n` in a shell. No file \
     is damaged";
const BUG: &str =
    "report this bug of studysync with the message; nothing committed is lost, and the command can be run again";

/// Returns true if the process that holds a lock is this program. `holder` is the name of the process, if known.
pub fn is_own_lock(holder: Option<&str>) -> bool {
    holder.is_some_and(|holder| holder == "this process" || holder.ends_with("studysync"))
}

/// The access that a command needs to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    Read,
    Write,
}

/// Returns true if another user owns a path; for a path that cannot be seen, the nearest folder above it that can.
fn is_of_another_user(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let seen = path.ancestors().find_map(|path| path.metadata().ok());
    seen.is_some_and(|seen| seen.uid() != rustix::process::geteuid().as_raw())
}

/// Returns what to do if the operating system refuses access to a file or folder. The text names the permission that
/// this user lacks. Returns `None` for other errors.
pub fn refusal_hint(path: &Path, error: &io::Error, access: FileAccess) -> Option<&'static str> {
    use io::ErrorKind::{AlreadyExists, NotADirectory, PermissionDenied, ReadOnlyFilesystem};
    let may = |right| rustix::fs::access(path, right).is_ok();
    let is_of_another = is_of_another_user(path);
    // The action. After a first run as root, the files are root's, and the hint also says how to give them back.
    macro_rules! hint {
        ($action:literal) => {
            match is_of_another {
                true => concat!(
                    $action,
                    ". After a run as another user, such as root, give the files back: `chown -R USER: FOLDER`, for the \
                     folders of the state file, the archive and the warehouse"
                ),
                false => $action,
            }
        };
    }
    match error.kind() {
        _ if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) => Some(OPEN_FILES),
        PermissionDenied if path.try_exists().is_err() => {
            Some(hint!("let this user enter the folders above it, or run the command as the user who owns them"))
        }
        PermissionDenied if path.exists() && !may(rustix::fs::Access::READ_OK) => {
            Some(hint!("let this user read it, or run the command as the user who owns it"))
        }
        PermissionDenied if access == FileAccess::Write && path.is_file() && !may(rustix::fs::Access::WRITE_OK) => {
            Some(hint!("make the file writable for this user, or run the command as the user who owns it"))
        }
        ReadOnlyFilesystem if access == FileAccess::Write => {
            Some("its file system is mounted read-only: make it writable, or name another path")
        }
        NotADirectory | AlreadyExists => {
            Some("a file has the name of a needed folder, so nothing below it is writable: name another path")
        }
        PermissionDenied if access == FileAccess::Write => {
            Some(hint!("make the folder writable for this user, or name another path"))
        }
        _ => None,
    }
}

fn archive_hint(error: &ArchiveError) -> Option<&'static str> {
    match error {
        ArchiveError::Full { .. } => Some(SPACE),
        ArchiveError::File(FileError { path, source, .. }) => refusal_hint(path, source, FileAccess::Write),
        ArchiveError::OtherService { .. } | ArchiveError::OtherOwner { .. } => Some(
            "name another folder with --archive (path under [archive]): a folder holds the pages of one service, environment and state \
             file. After the state file was renamed, remove owner.json from the folder",
        ),
        _ => None,
    }
}

pub(super) fn source_hint(error: &SourceError) -> Option<&'static str> {
    match error {
        SourceError::KeyRefused { .. } => Some(
            "check the key and that it belongs to this environment of the service; for users also its form: auth under [service]",
        ),
        SourceError::Blocked { .. } => Some("ask the operator of the proxy or firewall to let this program through"),
        SourceError::Stopped(Stop::Patience { is_retry_after: true, .. }) => Some(
            "run the same command again after that time; --ignore-rate-limit sends requests earlier, against the service's limit",
        ),
        SourceError::Forbidden { .. } => Some(
            "ask the operator of the service whether this key may read that, and the operator of your proxy or firewall what it blocks",
        ),
        SourceError::ListGone { .. } => Some(
            "ask the operator of the service whether the key may still read this list; if all its rows were really deleted, run \
             `studysync sync --accept-vanished`",
        ),
        SourceError::NotFound { .. } => Some(
            "check --base-url, with its path: it is the address before /v1/responses. If the environment is new and the service answers \
             404 for empty lists, try again when it has a survey",
        ),
        SourceError::Unreachable { last: Failure::Tls { problem, .. }, .. } if problem.is_certificate() => {
            Some(CERTIFICATE)
        }
        SourceError::Unreachable {
            last: Failure::Tls { .. } | Failure::Connect { .. } | Failure::TimedOut { .. },
            ..
        } => Some(CONNECTION),
        SourceError::Unreachable { .. } => Some("check the address and the network; then run the same command again"),
        SourceError::BadAnswer { last: Failure::NotHttp { .. }, .. } => {
            Some("check --base-url: if the port uses https, write https://")
        }
        SourceError::BadAnswer { .. } => {
            Some("check that --base-url is the service itself, and not a web page or a proxy")
        }
        SourceError::Settings(SettingsError::Client { .. }) => Some(CERTIFICATE),
        SourceError::Settings(SettingsError::UnusableProxy { .. }) => Some(
            "write http://HOST:PORT (or https://, socks5://, socks5h://, socks4://, socks4a://; special characters of a user or password as %XX), \
             or unset the variable for requests without a proxy",
        ),
        _ => None,
    }
}

const CERTIFICATE: &str = "if your own authority or a company's proxy signed it, name a PEM file with the certificates of all \
    trusted authorities in the environment variable SSL_CERT_FILE";
const CONNECTION: &str = "check the address (https:// or http://, host, port) and the network; if this machine reaches the internet \
    through a proxy, name it in the environment variable HTTPS_PROXY; then run the same command again";

static MISSING: LazyLock<String> = LazyLock::new(|| {
    format!("run `studysync sync` first, which creates it, or name the warehouse with {}", WarehouseKind::flags(""))
});

/// Returns what to do about an error of a warehouse that a run writes to.
pub fn load_hint(error: &LoadError) -> Option<&'static str> {
    match error {
        LoadError::Locked { holder, .. } if is_own_lock(holder.as_deref()) => Some(
            "another command of studysync has it open: wait for it to end, then run again; a run waits for it as long as lock_wait_secs \
             under [warehouse] says",
        ),
        LoadError::LockRefused { .. } => Some(LOCKS),
        LoadError::Missing { .. } => Some(&MISSING),
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
            "name another path; or, if it was a warehouse before, restore it from a backup, or move it away and run the same command again",
        ),
        LoadError::ForeignObject { .. } => Some(
            "it is an object of your own: drop it, or create it without the object that is named here (its rows can be copied to another \
             table or file first), then run the same command again",
        ),
        LoadError::OtherPartition { .. } => Some("use the partition with which it was created, or name another folder"),
        LoadError::Full { .. } => Some(SPACE),
        LoadError::Unfinished { .. } => Some("run `studysync sync` once, which finishes the change"),
        LoadError::Damaged { .. } | LoadError::DamagedRows(_) => Some(DAMAGED),
        LoadError::TooManyRows { .. } => Some("name fewer people at once"),
        LoadError::RolledBack => Some("run the same command again: it applies these scans again"),
        LoadError::Bug(_) => Some(BUG),
        LoadError::TimedOut { .. } => Some("read less: --survey selects one survey"),
        error if error.is_out_of_memory() => {
            Some("raise memory_limit_mb under [warehouse] and run the same command again: nothing committed is lost")
        }
        LoadError::File(FileError { path, source, .. }) => refusal_hint(path, source, FileAccess::Write),
        _ => None,
    }
}

/// Returns what to do about an error of the state file.
pub fn state_hint(error: &StateError) -> Option<&'static str> {
    match error {
        StateError::Leased { .. } => {
            Some("wait for it to end, or stop it: two runs at a time would request the same windows twice")
        }
        StateError::OtherService { .. } => Some(
            "name another --state: one state file belongs to one environment of one service. If the service has moved: studysync rebind --from ITS_OLD_ADDRESS",
        ),
        StateError::Newer { .. } => Some("use the newer version of studysync"),
        StateError::Full { .. } => Some(SPACE),
        StateError::Damaged { .. } => {
            Some("run sync: it renames the file and rebuilds the checkpoints from the ledgers of the warehouses")
        }
        StateError::RenameDamaged { .. } => Some("move it away and run the same command again"),
        StateError::Inaccessible { path, source } => refusal_hint(path, source, FileAccess::Read),
        StateError::LockRefused { .. } => Some(LOCKS),
        StateError::Folder { path, source } | StateError::Lock { path, source } => {
            refusal_hint(path, source, FileAccess::Write).or(Some(WRITABLE))
        }
        StateError::ReadOnly { path, .. } => {
            // SQLite does not say whether the file or its folder is not writable.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let refused = [path.as_path(), folder].into_iter().find_map(|path| {
                let error = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).err()?;
                refusal_hint(path, &error.into(), FileAccess::Write)
            });
            refused.or(Some(WRITABLE))
        }
        StateError::Sqlite { .. } => {
            Some("check the disk (space, quota, errors) and run the same command again: nothing committed is lost")
        }
        _ => None,
    }
}
