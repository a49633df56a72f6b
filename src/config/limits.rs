//! Checks values of the file that can be checked without other settings: ranges of numbers, and names of variables.

use super::{
    environment::is_variable_name,
    error::{ConfigError, invalid},
    file::ConfigFile,
    notify::TIMEOUT_SECS_MAX,
};

const DAY_SECS: u64 = 24 * 3600;
const YEAR_SECS: u64 = 366 * DAY_SECS;

/// Checks the values that can be checked without other settings.
///
/// # Errors
/// A number outside its range, with the range, or a text that cannot be the name of a variable.
pub(super) fn check(file: &ConfigFile) -> Result<(), ConfigError> {
    let range = |setting: &str, number: Option<u64>, least: u64, most: u64| match number {
        Some(number) if !(least..=most).contains(&number) => {
            Err(invalid(setting, format!("{number} is not between {least} and {most}")))
        }
        _ => Ok(()),
    };
    range("[service] timeout_secs", file.service.timeout_secs, 1, DAY_SECS)?;
    range("[throttle] patience_secs", file.throttle.patience_secs, 0, YEAR_SECS)?;
    range("[warehouse] lock_wait_secs", file.warehouse.lock_wait_secs, 0, DAY_SECS)?;
    range("[serve] wake_secs", file.serve.wake_secs, 0, DAY_SECS)?;
    range("[serve] flush_secs", file.serve.flush_secs, 0, DAY_SECS)?;
    range("[notify] timeout_secs", file.notify.timeout_secs, 1, TIMEOUT_SECS_MAX)?;
    for (name, stream) in &file.streams {
        range(&format!("[streams.{name}] settle_secs"), stream.settle_secs, 0, YEAR_SECS)?;
    }
    for (setting, name, secret) in [
        ("[service] api_key_env", &file.service.api_key_env, "the key"),
        ("[serve] token_env", &file.serve.token_env, "the secret"),
        ("[notify] url_env", &file.notify.url_env, "the address"),
        ("[serve] status_token_env", &file.serve.status_token_env, "the token"),
    ] {
        // The error does not show the text, which may be the secret.
        if name.as_deref().is_some_and(|name| !is_variable_name(name)) {
            return Err(invalid(setting, format!("expected the name of an environment variable, not {secret} itself")));
        }
    }
    Ok(())
}
