//! Secrets, from their file or from the environment: the key of the service and the secret of webhooks. The only place that reads the
//! environment.

use std::{fs::File, io, path::Path};

use super::ConfigError;
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

/// A secret, from its file if one is named, else from the environment.
pub(super) fn secret(
    file: Option<&Path>,
    variable: &str,
    missing: impl FnOnce() -> ConfigError,
) -> Result<ApiKey, ConfigError> {
    let (secret, origin) = match file {
        Some(path) => {
            let read = File::open(path).and_then(text::read);
            (read.map_err(|source| unreadable(path, source))?, format!("file {}", path.display()))
        }
        None => (environment(variable).ok_or_else(missing)?, format!("environment variable {variable}")),
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

/// Some people write the key itself where the path of its file belongs: such a path is not shown.
fn unreadable(path: &Path, source: io::Error) -> ConfigError {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let may_be_a_key = source.kind() == io::ErrorKind::NotFound && name.len() >= KEY_BYTES_MIN && !name.contains('.');
    match may_be_a_key {
        true => ConfigError::NoKeyFile,
        false => ConfigError::KeyFile { path: path.to_owned(), source },
    }
}

#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub(super) fn environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// Whether a key of the configuration file is one that people put a secret into.
pub(super) fn is_secret_key(name: &str) -> bool {
    SECRET_KEYS.contains(&name.to_ascii_lowercase().replace('-', "_").as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(bytes: &[u8]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.txt");
        std::fs::write(&path, bytes).unwrap();
        let none = || ConfigError::NoKey { variable: "X".to_owned() };
        secret(Some(&path), "X", none).map(|key| key.expose().to_owned()).map_err(|error| error.to_string())
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
        let none = || ConfigError::NoKey { variable: "sk_live_0123456789abcdef".to_owned() };
        let path = Path::new("/etc/studysync/sk_live_0123456789abcdef");
        for error in [secret(Some(path), "X", none).unwrap_err(), none()] {
            assert!(!error.to_string().contains("0123456789"), "{error}");
        }
        let named = secret(Some(Path::new("/no/such/key.txt")), "X", none).unwrap_err();
        assert!(named.to_string().contains("/no/such/key.txt"));
    }
}
