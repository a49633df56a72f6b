//! Reads a secret (the key of the service, the secret of webhooks, the token of the status page) from a file, a command
//! or an environment variable.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use super::{
    environment::{is_variable_name, variable},
    error::{ConfigError, invalid},
};
use crate::{
    files::FileError,
    process_group::ProcessGroup,
    redact::{ApiKey, bare_secret},
    text,
};

/// Names under which people write a secret into the configuration file by mistake.
const SECRET_KEYS: [&str; 13] = [
    "api_key",
    "apikey",
    "api_token",
    "auth_token",
    "authorization",
    "bearer",
    "key",
    "password",
    "secret",
    "token",
    "webhook_secret",
    "webhook_token",
    "bearer_token",
];
/// A missing file whose name has at least this length and no dot may be a key that was written in place of a path.
const KEY_BYTES_MIN: usize = 16;

/// Time limit of a file with a secret, which may be on a network mount, and of a command that prints a secret, which
/// may first ask for a fingerprint or a code.
const SECRET_WAIT: Duration = Duration::from_secs(60);
/// Interval between two checks if a command has ended.
const COMMAND_POLL: Duration = Duration::from_millis(10);
/// Time limit for the output of a command to close after the command has ended.
const OUTPUT_WAIT: Duration = Duration::from_secs(5);
/// Limit of the output of a command.
const COMMAND_BYTES_MAX: u64 = 64 * 1024;

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A file that contains only the secret.
    File(PathBuf),
    /// A command line for `/bin/sh` that prints the secret.
    Command(String),
    /// An environment variable.
    Variable(String),
}

impl SecretSource {
    /// Returns the environment variable of the secret; `None` for a file or a command.
    pub fn variable(&self) -> Option<&str> {
        match self {
            SecretSource::Variable(name) => Some(name),
            SecretSource::File(_) | SecretSource::Command(_) => None,
        }
    }

    /// Returns true if the source is a `STUDYSYNC_` variable that is not set. In this case the user has configured no
    /// secret.
    pub fn is_unset_default(&self) -> bool {
        matches!(self, SecretSource::Variable(name) if name.starts_with("STUDYSYNC_") && variable(name).is_none())
    }
}

/// The keys of the configuration that name the source of one secret.
pub(super) struct SecretKeys {
    /// The table of the keys.
    pub table: &'static str,
    /// The common prefix of the keys: `api_key` of `api_key_file`.
    pub name: &'static str,
    pub file: Option<PathBuf>,
    pub command: Option<String>,
    /// The variable, which is read without a file and a command.
    pub variable: String,
    /// What the secret is called in the error for a variable whose name cannot be one.
    pub noun: &'static str,
}

impl SecretKeys {
    /// Returns the source of the secret: the file or command if one is set, else the variable.
    ///
    /// # Errors
    /// A file and a command are both set, or the command is empty.
    pub fn resolve(self) -> Result<SecretSource, ConfigError> {
        let setting = format!("[{}] {}_command", self.table, self.name);
        let variable = variable_name(&format!("[{}] {}_env", self.table, self.name), self.variable, self.noun)?;
        match (self.file, self.command) {
            (Some(_), Some(_)) => Err(invalid(setting, format!("{}_file is set too: keep one of the two", self.name))),
            (_, Some(command)) if command.trim().is_empty() => Err(invalid(setting, "the command is empty")),
            (Some(file), None) => Ok(SecretSource::File(file)),
            (None, Some(command)) => Ok(SecretSource::Command(command)),
            (None, None) => Ok(SecretSource::Variable(variable)),
        }
    }
}

/// Checks the name of the variable that a key names; `noun` is what the variable has. The error does not show the name,
/// which may be the secret.
pub(super) fn variable_name(setting: &str, name: String, noun: &str) -> Result<String, ConfigError> {
    match is_variable_name(&name) {
        true => Ok(name),
        false => Err(invalid(setting, format!("expected the name of an environment variable, not {noun} itself"))),
    }
}

/// Reads a secret from its source. `key` is the configuration key of a command, for error messages. `missing` returns
/// the error for a variable that is not set. Fails for an empty secret and for one of several lines.
pub(super) fn read_secret(
    source: &SecretSource,
    key: &str,
    missing: impl FnOnce(&str) -> ConfigError,
) -> Result<ApiKey, ConfigError> {
    let (text, origin) = match source {
        SecretSource::File(path) => {
            let text = file_text(path, SECRET_WAIT).map_err(|source| key_file_error(path, source))?;
            (text, format!("file {}", path.display()))
        }
        // The command line is not shown, because it may contain a secret itself.
        SecretSource::Command(line) => (command_output(line, key, SECRET_WAIT)?, format!("the command {key}")),
        SecretSource::Variable(name) => {
            (variable(name).ok_or_else(|| missing(name))?, format!("environment variable {name}"))
        }
    };
    let (bare, left_out) = bare_secret(&text);
    if bare.is_empty() {
        return Err(ConfigError::EmptyKey { origin });
    }
    if bare.chars().any(char::is_control) {
        return Err(ConfigError::KeyOfLines { origin });
    }
    if let Some(left_out) = left_out {
        tracing::warn!(origin, "the key is used without {left_out}");
    }
    Ok(ApiKey::new(bare, origin))
}

/// Reads a file. Fails if the file does not answer within the limit, for example a pipe that nobody writes.
fn file_text(path: &Path, wait_max: Duration) -> io::Result<String> {
    let owned = path.to_owned();
    let read = on_thread(move || File::open(owned).and_then(text::read)).recv_timeout(wait_max);
    read.unwrap_or_else(|_| {
        let why = format!("it does not answer within {} s", wait_max.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

/// Does work that may block for ever on a thread of its own. Returns the receiver of its result.
fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (sender, result) = mpsc::channel();
    // The send fails if nobody waits any more.
    std::thread::spawn(move || drop(sender.send(work())));
    result
}

/// Runs a command line and returns its output. The command shares stderr and the terminal with this program, so that it
/// can ask for a password.
///
/// Time and size of the output are limited. The limits also hold if the command closes its output and keeps running, or
/// if a process that it started keeps the output open. At a limit, the command is killed with the processes that it
/// started, so that nobody waits for their output. `key` is the configuration key, for error messages. Fails if the
/// command fails or prints too much.
fn command_output(line: &str, key: &str, wait_max: Duration) -> Result<String, ConfigError> {
    let failed = |problem: String| invalid(key, problem);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped());
    let group = ProcessGroup::default();
    // A group of its own cannot ask a person at the terminal, because the terminal stops its reads.
    let started = match io::stdin().is_terminal() {
        true => group.spawn_on_terminal(&mut command),
        false => group.spawn(&mut command),
    };
    let mut child = started.map_err(|error| failed(format!("cannot start /bin/sh: {error}")))?;
    let bytes = read_output(&mut child, &group, wait_max);
    if bytes.is_err() {
        group.kill();
    }
    let status = group.reap(&mut child).map_err(|error| failed(format!("cannot wait for the command: {error}")))?;
    let bytes = bytes.map_err(failed)?;
    if bytes.len() as u64 > COMMAND_BYTES_MAX {
        return Err(failed(format!("the command printed more than {COMMAND_BYTES_MAX} bytes: that is no key")));
    }
    if !status.success() {
        return Err(failed(format!("the command {}: run it by hand to see why", exit_description(status))));
    }
    text::read(bytes.as_slice()).map_err(|_| failed("the output of the command is not text".to_owned()))
}

/// Reads the output of a command until the command has ended and its output is closed. Fails with a sentence at a
/// limit.
fn read_output(child: &mut Child, group: &ProcessGroup, wait_max: Duration) -> Result<Vec<u8>, String> {
    let stdout = child.stdout.take();
    let output = on_thread(move || {
        let mut bytes = Vec::new();
        let read = stdout.map_or(Ok(0), |stdout| stdout.take(COMMAND_BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map(|_| bytes)
    });
    let until = Instant::now() + wait_max;
    while !group.has_ended().map_err(|error| format!("cannot wait for the command: {error}"))? {
        if Instant::now() >= until {
            let secs = wait_max.as_secs();
            return Err(format!("the command did not end within {secs} s; it was killed"));
        }
        std::thread::sleep(COMMAND_POLL);
    }
    let time_left = until.saturating_duration_since(Instant::now()).min(OUTPUT_WAIT);
    let bytes = output.recv_timeout(time_left).map_err(|_| {
        "the command ended, and a process that it started kept its output open until it was killed: the command must only \
         print the key"
    })?;
    bytes.map_err(|error| format!("cannot read the output of the command: {error}"))
}

fn exit_description(status: ExitStatus) -> String {
    status.code().map_or_else(|| "was ended by a signal".to_owned(), |code| format!("ended with exit code {code}"))
}

/// Returns the error for a key file that cannot be read. The path is not shown if it may be the key itself.
fn key_file_error(path: &Path, source: io::Error) -> ConfigError {
    match source.kind() == io::ErrorKind::NotFound && may_be_a_key(path) {
        true => ConfigError::NoKeyFile,
        false => FileError::of("read the key file", path)(source).into(),
    }
}

/// Returns true if the path may be a key that was written in place of the path of its file.
pub(super) fn may_be_a_key(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() >= KEY_BYTES_MIN && !name.contains('.') && !path.exists()
}

/// Returns true if people use this name for a key that holds a secret.
pub(super) fn is_secret_key(name: &str) -> bool {
    SECRET_KEYS.contains(&name.to_ascii_lowercase().replace('-', "_").as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_key(variable: &str) -> ConfigError {
        ConfigError::NoKey { variable: variable.to_owned() }
    }

    fn from_file(bytes: &[u8]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.txt");
        std::fs::write(&path, bytes).unwrap();
        read_secret(&SecretSource::File(path), "", no_key)
            .map(|key| key.expose().to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_file_may_have_a_byte_order_mark_and_blanks() {
        let utf16: Vec<u8> = "\u{feff}k3y\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in
            [b"k3y".as_slice(), b"k3y\n", b"k3y\r\n", b"\n  k3y \t\r\n\r\n", "\u{feff}k3y\n".as_bytes(), &utf16]
        {
            assert_eq!(from_file(bytes).as_deref(), Ok("k3y"), "{bytes:?}");
        }
        for (bytes, expected) in [
            (b"".as_slice(), "is empty"),
            ("\u{feff}\r\n".as_bytes(), "is empty"),
            (b"\"\"", "is empty"),
            (b"Bearer \n", "is empty"),
            (b"k3y\nk3y2\n", "more than one line"),
            (b"k3y\n# mine\n", "more than one line"),
        ] {
            let problem = from_file(bytes).unwrap_err();
            assert!(problem.contains(expected) && !problem.contains("k3y"), "{bytes:?}: {problem}");
        }
        assert!(from_file(b"k3y\xff").is_err());
    }

    #[test]
    fn a_key_file_that_does_not_answer_ends_with_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.txt");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let problem = file_text(&path, Duration::from_millis(100)).unwrap_err();
        assert_eq!(problem.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn p11_a_key_written_in_place_of_its_path_is_not_shown() {
        let file = |path: &str| read_secret(&SecretSource::File(path.into()), "", no_key).unwrap_err();
        for error in [file("/etc/studysync/sk_live_0123456789abcdef"), no_key("sk_live_0123456789abcdef")] {
            assert!(!error.to_string().contains("0123456789"), "{error}");
        }
        let named = file("/no/such/key.txt");
        assert!(named.to_string().contains("/no/such/key.txt"));
    }

    #[test]
    fn p11_a_command_and_its_output_are_not_shown_in_errors() {
        let printed = |line: &str, wait_secs: u64| {
            command_output(line, "[service] api_key_command", Duration::from_secs(wait_secs))
                .map_err(|error| error.to_string())
        };
        let from_command = |line: &str| {
            let key = read_secret(&SecretSource::Command(line.to_owned()), "[service] api_key_command", no_key);
            key.map(|key| key.expose().to_owned()).map_err(|error| error.to_string())
        };
        assert_eq!(from_command("printf '%s\\n' \"  k3y \" | cat").as_deref(), Ok("k3y"));
        for (line, expected) in [
            ("echo s3cr3t; exit 3", "exit code 3"),
            ("kill -9 $$ # s3cr3t", "by a signal"),
            ("true # s3cr3t", "is empty"),
            ("echo s3cr3t; echo s3cr3t", "more than one line"),
        ] {
            let problem = from_command(line).unwrap_err();
            assert!(problem.contains(expected) && !problem.contains("s3cr3t"), "{line}: {problem}");
        }
        for (line, expected) in [
            ("sleep 30", "within 1 s"),
            ("echo s3cr3t; exec >&-; sleep 30", "within 1 s"),
            ("trap '' TERM; sleep 30; echo s3cr3t", "within 1 s"),
            ("echo s3cr3t; sleep 30 &", "kept its output open"),
            ("head -c 70000 /dev/zero", "more than 65536 bytes"),
        ] {
            let problem = printed(line, 1).unwrap_err();
            assert!(problem.contains(expected) && !problem.contains("s3cr3t"), "{line}: {problem}");
        }
    }

    #[test]
    fn a_file_and_a_command_for_one_secret_are_refused() {
        let resolved = |file: Option<&str>, command: Option<&str>| {
            let (file, command) = (file.map(PathBuf::from), command.map(str::to_owned));
            let variable = "X".to_owned();
            let keys = SecretKeys { table: "service", name: "api_key", file, command, variable, noun: "the key" };
            keys.resolve().map_err(|error| error.to_string())
        };
        assert_eq!(resolved(None, None), Ok(SecretSource::Variable("X".to_owned())));
        assert_eq!(resolved(None, Some("pass x")), Ok(SecretSource::Command("pass x".to_owned())));
        assert!(resolved(Some("k"), Some("pass x")).unwrap_err().contains("keep one of the two"));
        assert!(resolved(None, Some(" ")).unwrap_err().contains("empty"));
    }
}
