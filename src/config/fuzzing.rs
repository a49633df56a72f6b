//! The entry point of the fuzz target for configuration files; compiled only for fuzzing.

use std::path::Path;

use super::{ConfigError, Overrides, Settings, resolve::resolve_file, tables::ConfigFile};

/// Returns the settings of a configuration file with this text.
pub fn resolve_text(text: &str) -> Result<Settings, ConfigError> {
    let path = Path::new("/place/studysync.toml");
    resolve_file(ConfigFile::parse(text, path)?, Some(path.to_owned()), Overrides::default())
}
