//! The configuration: a TOML file, the environment and the command line, resolved into [`Settings`].
//!
//! Defaults are defined here once. This is the only place that reads the environment. Nothing is opened or created.

mod error;
mod file;
#[cfg(fuzzing)]
pub mod fuzzing;
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
mod variable;

pub use error::ConfigError;
pub use file::CONFIG_FILE_NAME;
pub use metrics::MetricsSettings;
pub use notify::{NotifyEvent, NotifySettings};
pub use otlp::OtlpSettings;
pub use paths::expanded;
pub use recordings::RecordingsSettings;
pub use resolve::{
    ArchiveChoice, AuthChoice, FIRST_SYNC_DAYS, Overrides, ServiceSettings, Settings, StreamSettings, ThrottleSettings,
    UsersSettings, WarehouseSettings, resolve,
};
pub use serve::{MaxLag, ServeSettings, WEBHOOK_OFF};
pub use template::template;

#[cfg(test)]
mod tests;
