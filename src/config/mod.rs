//! The configuration: a TOML file, environment variables and the command line, merged into [`Settings`].
//!
//! Each default is defined once. No other folder reads the environment. The configuration creates no file, and opens
//! none for writing. The only command that it may run is one that prints a secret.

mod catalogs;
mod declare;
mod effective;
mod environment;
mod error;
mod file;
mod find;
#[cfg(fuzzing)]
pub mod fuzzing;
mod lines;
mod notify;
mod paths;
mod publish;
mod recordings;
mod resolve;
mod secret;
mod serve;
mod setting_variables;
mod settings;
mod streams;
mod tables;
mod template;

pub use declare::SettingKey;
pub use effective::{EffectiveSetting, EffectiveSettings, effective};
pub use environment::{NetworkVariables, OtlpSettings, network_variables, program_folders};
pub use error::ConfigError;
pub use find::{CONFIG_FILE_NAME, named_config};
pub use notify::{NotifyEvent, NotifySettings, ReceiverKind};
pub use paths::ArchiveChoice;
pub use publish::{AnalystSettings, PublishSettings};
pub use recordings::RecordingsSettings;
pub use resolve::resolve;
pub use secret::SecretSource;
pub use serve::{MaxLag, ScheduledReport, ServeSettings, parse_cron};
pub use setting_variables::private_variables;
pub use settings::{
    AuthChoice, FIRST_SYNC_DAYS, MetricsSettings, Overrides, ServiceSettings, Settings, StreamSettings,
    ThrottleSettings, UsersSettings, WarehouseSettings,
};
pub use tables::keys;
pub use template::{assignment, template};

#[cfg(test)]
mod tests;
