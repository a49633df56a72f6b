//! The configuration: a TOML file, the environment and the command line, resolved into [`Settings`].
//!
//! Defaults are defined here once. This is the only place that reads the environment. Nothing is opened or created; a
//! secret may come from a command.

mod environment;
mod error;
mod file;
#[cfg(fuzzing)]
pub mod fuzzing;
mod keys;
mod limits;
mod metrics;
mod notify;
mod otlp;
mod paths;
mod places;
mod recordings;
mod resolve;
mod secret;
mod serve;
mod streams;
mod template;
mod tilde;
mod variable;

pub use environment::{config_from_environment, private_variables};
pub use error::ConfigError;
pub use file::CONFIG_FILE_NAME;
pub use keys::{Key, Kind, keys};
pub use metrics::MetricsSettings;
pub use notify::{NotifyEvent, NotifySettings};
pub use otlp::OtlpSettings;
pub use recordings::RecordingsSettings;
pub use resolve::{
    ArchiveChoice, AuthChoice, FIRST_SYNC_DAYS, Overrides, ServiceSettings, Settings, StreamSettings, ThrottleSettings,
    UsersSettings, WarehouseSettings, resolve,
};
pub use secret::SecretSource;
pub use serve::{MaxLag, ServeSettings, WEBHOOK_OFF};
pub use template::template;
pub use tilde::expanded;
pub use variable::{NetworkVariables, network_variables, programs_path};

#[cfg(test)]
mod tests;
