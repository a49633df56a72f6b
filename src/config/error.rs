//! Errors of the configuration. Each error names the setting or file.

use std::path::PathBuf;

use super::environment::shown_variable;
use crate::{
    files::{FileAccess, FileError, refusal_hint},
    model::{Fault, RunReason, WarehouseKind},
};

/// An error of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file or link cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The text is not valid TOML, or has an unknown key or a wrong type; the message names the line.
    #[error("{}: {message}", path.display())]
    Parse { path: PathBuf, message: String },
    /// A setting, flag or variable has an invalid value.
    #[error("{setting}: {problem}")]
    Invalid { setting: String, problem: String },
    /// There is no configuration file, and neither flags nor variables name a service or a warehouse.
    #[error("no configuration here: there is no {folder_file} in this folder, and no {system_file}")]
    NoConfiguration { folder_file: &'static str, system_file: &'static str },
    #[error("no service is named: give --base-url or set base_url under [service] in {}", file.display())]
    NoService { file: PathBuf },
    #[error("no warehouse is named: give {}, or set one under [warehouse] in {}", WarehouseKind::flags(" PATH"), file.display())]
    NoWarehouse { file: PathBuf },
    #[error(
        "the address https://api.example.com is only an example: set base_url under [service] in {} to your service's", file.display()
    )]
    ExampleService { file: PathBuf },
    #[error("no key: set the environment variable {}, or give --api-key-file PATH", shown_variable(variable))]
    NoKey { variable: String },
    #[error(
        "no webhook secret: set the environment variable {}, or token_file under [serve]; with webhook = \"off\" there, serve runs only the schedule",
        shown_variable(variable)
    )]
    NoWebhookSecret { variable: String },
    #[error(
        "no key of pseudonyms: set the environment variable {}, or publish_key_file under [warehouse]; with pseudonyms = false in publish, the copy has no ids",
        shown_variable(variable)
    )]
    NoPublishKey { variable: String },
    #[error("no token of the status page: set the environment variable {}", shown_variable(variable))]
    NoStatusToken { variable: String },
    /// The key file does not exist. The path is not shown, because the user may have written the key in place of the
    /// path.
    #[error("the key file does not exist: api_key_file takes the path of a file, not the key itself")]
    NoKeyFile,
    #[error("the key from {origin} has more than one line, or contains a control character: a key is a single line")]
    KeyOfLines { origin: String },
    #[error("the key from {origin} is empty")]
    EmptyKey { origin: String },
}

impl Fault for ConfigError {
    fn reason(&self) -> RunReason {
        RunReason::Configuration
    }

    fn hint(&self) -> Option<&str> {
        match self {
            ConfigError::NoConfiguration { .. } => {
                Some("`studysync init` writes one; --config FILE or STUDYSYNC_CONFIG names one elsewhere")
            }
            ConfigError::File(FileError { path, source, .. }) => refusal_hint(path, source, FileAccess::Read),
            _ => None,
        }
    }
}

/// Returns an error about the value of a setting, flag or variable.
pub(super) fn invalid(setting: impl Into<String>, problem: impl Into<String>) -> ConfigError {
    ConfigError::Invalid { setting: setting.into(), problem: problem.into() }
}
