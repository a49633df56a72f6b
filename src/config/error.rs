//! What can be wrong with a configuration. Each names the thing and what to do.

use std::{io, path::PathBuf};

use super::variable::shown_variable;

/// An error of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The text is not TOML of the right shape; the message has the line.
    #[error("{}: {message}", path.display())]
    Parse { path: PathBuf, message: String },
    /// A path cannot be followed to the file that it leads to.
    #[error("cannot find out where {} leads", path.display())]
    Link {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{place}: {problem}")]
    Value { place: String, problem: String },
    #[error("no service is named: give --base-url or set base_url under [service] in {file}")]
    NoService { file: &'static str },
    #[error("no warehouse is named: give --duckdb PATH or --parquet PATH, or set one under [warehouse] in {file}")]
    NoWarehouse { file: &'static str },
    #[error(
        "the address https://api.example.com is only an example: set base_url under [service] in {file} to your service's"
    )]
    ExampleService { file: &'static str },
    #[error("no key: set the environment variable {}, or give --api-key-file PATH", shown_variable(variable))]
    NoKey { variable: String },
    #[error(
        "no webhook secret: set the environment variable {}, or token_file under [serve]; webhook = \"off\" there runs the schedule alone",
        shown_variable(variable)
    )]
    NoWebhookSecret { variable: String },
    #[error("no token of the status page: set the environment variable {}", shown_variable(variable))]
    NoStatusToken { variable: String },
    #[error("the key file {} cannot be read", path.display())]
    KeyFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// What is named may be the key itself.
    #[error("there is no such key file: api_key_file takes the path of a file, and not the key itself")]
    NoKeyFile,
    #[error(
        "the key from {origin} has more than one line, or holds a control character: a key is one line and nothing else"
    )]
    KeyOfLines { origin: String },
    #[error("the key from {origin} is empty")]
    EmptyKey { origin: String },
}

/// What is wrong with the value at a place of the file or the command line.
pub(super) fn value(place: impl Into<String>, problem: String) -> ConfigError {
    ConfigError::Value { place: place.into(), problem }
}
