//! The configuration: a TOML file, environment variables and the command line, merged into [`Settings`].
//!
//! Each default is defined once. No other folder reads the environment. The configuration creates no file, and opens
//! none for writing. The only command that it may run is one that prints a secret.

mod defaults;
mod environment;
mod error;
mod file;
#[cfg(fuzzing)]
pub mod fuzzing;
mod keys;
mod limits;
mod locations;
mod metrics;
mod notify;
mod otlp;
mod paths;
mod recordings;
mod resolve;
mod secret;
mod serve;
mod setting_variables;
mod settings;
mod streams;
mod template;
mod tilde;

pub use defaults::{CONFIG_FILE_NAME, FIRST_SYNC_DAYS};
pub use environment::{NetworkVariables, network_variables, program_folders};
pub use error::ConfigError;
pub use keys::{SettingKey, keys};
pub use metrics::MetricsSettings;
pub use notify::{NotifyEvent, NotifySettings, ReceiverKind};
pub use otlp::OtlpSettings;
pub use recordings::RecordingsSettings;
pub use resolve::resolve;
pub use secret::SecretSource;
pub use serve::{MaxLag, ServeSettings};
pub use setting_variables::private_variables;
pub use settings::{
    ArchiveChoice, AuthChoice, Overrides, ServiceSettings, Settings, StreamSettings, ThrottleSettings, UsersSettings,
    WarehouseSettings,
};
pub use template::template;

#[cfg(test)]
mod tests;
