//! Secrets: the key of the service and the secret of webhooks, from a file, a command or the environment.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use super::{ConfigError, error::value, variable::environment};
use crate::{
    redact::{ApiKey, bare_secret},
    text,
};

/// Names by which people put a secret into the configuration file.
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
/// The shortest file name that may be a key which somebody wrote where a path belongs.
const KEY_BYTES_MIN: usize = 16;

/// How long a command may take to print a secret: a secret manager may ask for a finger or a code first.
const COMMAND_WAIT: Duration = Duration::from_secs(60);
/// How often is looked whether a command has ended.
const COMMAND_LOOK: Duration = Duration::from_millis(10);
/// How long the output of a command may stay open after it has ended.
const OUTPUT_WAIT: Duration = Duration::from_secs(5);
/// What a command may print.
const COMMAND_BYTES_MAX: u64 = 64 * 1024;

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A file that holds nothing else.
    File(PathBuf),
    /// A command line for `/bin/sh` that prints it.
    Command(String),
    /// An environment variable.
    Variable(String),
}

impl SecretSource {
    /// The environment variable that holds the secret, if one does.
    pub fn variable(&self) -> Option<&str> {
        match self {
            SecretSource::Variable(name) => Some(name),
            SecretSource::File(_) | SecretSource::Command(_) => None,
        }
    }

    /// Whether nobody has named a source: the variable of the default, which may be unset.
    pub fn is_default(&self) -> bool {
        matches!(self, SecretSource::Variable(name) if name.starts_with("STUDYSYNC_") && environment(name).is_none())
    }
}

/// What the configuration says of one secret.
pub(super) struct WrittenSource {
    /// The table in which the keys stand.
    pub table: &'static str,
    /// The keys' common beginning: `api_key` of `api_key_file`.
    pub name: &'static str,
    pub file: Option<PathBuf>,
    pub command: Option<String>,
    /// The variable's name, and that of the default.
    pub variable: Option<String>,
    pub default_variable: &'static str,
}

impl WrittenSource {
    /// Decides for one source: a file or a command, if one is named, else the environment.
    ///
    /// # Errors
    /// Both a file and a command, or an empty command.
    pub fn resolve(self) -> Result<SecretSource, ConfigError> {
        let place = format!("[{}] {}_command", self.table, self.name);
        match (self.file, self.command) {
            (Some(_), Some(_)) => Err(value(place, format!("{}_file is set too: keep one of the two", self.name))),
            (_, Some(command)) if command.trim().is_empty() => Err(value(place, "the command is empty".to_owned())),
            (Some(file), None) => Ok(SecretSource::File(file)),
            (None, Some(command)) => Ok(SecretSource::Command(command)),
            (None, None) => {
                Ok(SecretSource::Variable(self.variable.unwrap_or_else(|| self.default_variable.to_owned())))
            }
        }
    }
}

/// Reads a secret. `missing`: what to say if its variable is not set. `name`: the configuration key of a command.
pub(super) fn secret(
    source: &SecretSource,
    name: &str,
    missing: impl FnOnce(&str) -> ConfigError,
) -> Result<ApiKey, ConfigError> {
    let (secret, origin) = match source {
        SecretSource::File(path) => {
            let read = File::open(path).and_then(text::read);
            (read.map_err(|source| unreadable(path, source))?, format!("file {}", path.display()))
        }
        // The command line is not shown: it may hold a secret of its own.
        SecretSource::Command(line) => (printed_by(line, name, COMMAND_WAIT)?, format!("the command {name}")),
        SecretSource::Variable(variable) => {
            (environment(variable).ok_or_else(|| missing(variable))?, format!("environment variable {variable}"))
        }
    };
    let (bare, left_out) = bare_secret(&secret);
    if bare.is_empty() {
        return Err(ConfigError::EmptyKey { origin });
    }
    if bare.chars().any(char::is_control) {
        return Err(ConfigError::KeyOfLines { origin });
    }
    if let Some(what) = left_out {
        tracing::warn!(origin, "the key is used without {what}");
    }
    Ok(ApiKey::new(bare, origin))
}

/// What a command line prints. It shares this program's stderr and terminal, so that it can ask for a password there.
/// Time and output are bounded, whatever it does:
/// it may close its output and go on, or leave something behind that keeps the output open.
fn printed_by(line: &str, name: &str, wait_max: Duration) -> Result<String, ConfigError> {
    let failed = |problem: String| value(name, problem);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(format!("/bin/sh cannot be started: {error}")))?;
    let (sender, printed) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.take(COMMAND_BYTES_MAX + 1).read_to_end(&mut bytes);
            // Nobody waits any more when the time is over.
            sender.send(read.map(|_| bytes)).ok();
        });
    }
    let until = Instant::now() + wait_max;
    let ended =
        wait_until(&mut child, until).map_err(|error| failed(format!("the command cannot be waited for: {error}")))?;
    let Some(status) = ended else {
        child.kill().ok();
        child.wait().ok();
        let secs = wait_max.as_secs();
        return Err(failed(format!("the command did not end within {secs} s; its shell was killed")));
    };
    // What it left behind may keep the output open: it has a moment to close it.
    let left = until.saturating_duration_since(Instant::now()).min(OUTPUT_WAIT);
    let bytes = printed.recv_timeout(left).map_err(|_| {
        failed("the command ended, and something that it started keeps its output open: let it print the key and nothing else".to_owned())
    })?;
    let bytes = bytes.map_err(|error| failed(format!("the command's output cannot be read: {error}")))?;
    if bytes.len() as u64 > COMMAND_BYTES_MAX {
        return Err(failed(format!("the command printed more than {COMMAND_BYTES_MAX} bytes: that is no key")));
    }
    if !status.success() {
        return Err(failed(format!("the command {}: run it by hand to see why", how_it_ended(status))));
    }
    text::read(bytes.as_slice()).map_err(|_| failed("the command's output is no text".to_owned()))
}

/// Waits for a process until a moment; `None` if it is still there then.
fn wait_until(child: &mut Child, until: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() >= until => return Ok(None),
            None => std::thread::sleep(COMMAND_LOOK),
        }
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    status.code().map_or_else(|| "was ended by a signal".to_owned(), |code| format!("ended with exit code {code}"))
}

/// Some people write the key itself where the path of its file belongs: such a path is not shown.
fn unreadable(path: &Path, source: io::Error) -> ConfigError {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let may_be_a_key = source.kind() == io::ErrorKind::NotFound && name.len() >= KEY_BYTES_MIN && !name.contains('.');
    match may_be_a_key {
        true => ConfigError::NoKeyFile,
        false => ConfigError::KeyFile { path: path.to_owned(), source },
    }
}

/// Whether a key of the configuration file is one that people put a secret into.
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
        secret(&SecretSource::File(path), "", no_key)
            .map(|key| key.expose().to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_file_is_read_as_editors_write_it() {
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
    fn p11_a_key_in_the_place_of_its_file_or_variable_is_not_shown() {
        let file = |path: &str| secret(&SecretSource::File(path.into()), "", no_key).unwrap_err();
        for error in [file("/etc/studysync/sk_live_0123456789abcdef"), no_key("sk_live_0123456789abcdef")] {
            assert!(!error.to_string().contains("0123456789"), "{error}");
        }
        let named = file("/no/such/key.txt");
        assert!(named.to_string().contains("/no/such/key.txt"));
    }

    #[test]
    fn p11_a_command_prints_the_key_and_is_not_shown() {
        let printed = |line: &str, wait_secs: u64| {
            printed_by(line, "[service] api_key_command", Duration::from_secs(wait_secs))
                .map_err(|error| error.to_string())
        };
        let from_command = |line: &str| {
            let key = secret(&SecretSource::Command(line.to_owned()), "[service] api_key_command", no_key);
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
            ("echo s3cr3t; sleep 30 &", "keeps its output open"),
            ("head -c 70000 /dev/zero", "more than 65536 bytes"),
        ] {
            let problem = printed(line, 1).unwrap_err();
            assert!(problem.contains(expected) && !problem.contains("s3cr3t"), "{line}: {problem}");
        }
    }

    #[test]
    fn a_secret_has_one_source() {
        let written = |file: Option<&str>, command: Option<&str>| {
            let (file, command) = (file.map(PathBuf::from), command.map(str::to_owned));
            let written = WrittenSource {
                table: "service",
                name: "api_key",
                file,
                command,
                variable: None,
                default_variable: "X",
            };
            written.resolve().map_err(|error| error.to_string())
        };
        assert_eq!(written(None, None), Ok(SecretSource::Variable("X".to_owned())));
        assert_eq!(written(None, Some("pass x")), Ok(SecretSource::Command("pass x".to_owned())));
        assert!(written(Some("k"), Some("pass x")).unwrap_err().contains("keep one of the two"));
        assert!(written(None, Some(" ")).unwrap_err().contains("empty"));
    }
}
