//! Finds the configuration file: the named one, the one of the working folder, or the one of the system. Opens no file.

use std::path::PathBuf;

use super::{
    environment::variable,
    error::{ConfigError, invalid},
    paths::expand_tilde,
};

/// The variable that names the configuration file.
pub(super) const CONFIG_VARIABLE: &str = "STUDYSYNC_CONFIG";
/// The configuration file of the working folder.
pub const CONFIG_FILE_NAME: &str = "studysync.toml";
/// The configuration file of the system, which packages install.
pub(super) const SYSTEM_FILE: &str = "/etc/studysync/studysync.toml";

/// Returns the file that a flag or the variable names; `None` if both are missing. `flag` is the value of `--config`.
///
/// # Errors
/// The path cannot be expanded.
pub fn named_config(flag: Option<PathBuf>) -> Result<Option<PathBuf>, ConfigError> {
    let named = flag.map(|path| ("--config", path)).or_else(|| {
        let path = variable(CONFIG_VARIABLE).filter(|path| !path.is_empty())?;
        Some((CONFIG_VARIABLE, path.into()))
    });
    named.map(|(name, path)| expand_tilde(path).map_err(|problem| invalid(name, problem))).transpose()
}

/// Returns the configuration file of a command: the named file, else the first existing one of the working folder and
/// the system. `flag` is the value of `--config`.
///
/// # Errors
/// [`named_config`] fails.
pub(super) fn find_config(flag: Option<PathBuf>) -> Result<Option<PathBuf>, ConfigError> {
    let named = named_config(flag)?;
    let found = || {
        // An inaccessible file counts as existing: reading it reports the cause.
        [CONFIG_FILE_NAME, SYSTEM_FILE].map(PathBuf::from).into_iter().find(|path| path.try_exists().unwrap_or(true))
    };
    Ok(named.or_else(found))
}
