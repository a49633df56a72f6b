//! Numbers and names of the file that cannot be meant, refused with what can be.

use super::{
    error::{ConfigError, value},
    file::{ConfigFile, StreamTable},
    notify::TIMEOUT_SECS_MAX,
    variable::is_variable_name,
};

const DAY_SECS: u64 = 24 * 3600;
const YEAR_SECS: u64 = 366 * DAY_SECS;

/// Checks what needs no other setting.
pub(super) fn check(file: &ConfigFile) -> Result<(), ConfigError> {
    let range = |place: &str, number: Option<u64>, least: u64, most: u64| match number {
        Some(number) if !(least..=most).contains(&number) => {
            Err(value(place, format!("{number} is not between {least} and {most}")))
        }
        _ => Ok(()),
    };
    range("[service] timeout_secs", file.service.timeout_secs, 1, DAY_SECS)?;
    range("[throttle] patience_secs", file.throttle.patience_secs, 0, YEAR_SECS)?;
    range("[warehouse] lock_wait_secs", file.warehouse.lock_wait_secs, 0, DAY_SECS)?;
    range("[serve] wake_secs", file.serve.wake_secs, 0, DAY_SECS)?;
    range("[serve] flush_secs", file.serve.flush_secs, 0, DAY_SECS)?;
    range("[notify] timeout_secs", file.notify.timeout_secs, 1, TIMEOUT_SECS_MAX)?;
    for (name, StreamTable { settle_secs, .. }) in &file.streams {
        range(&format!("[streams.{name}] settle_secs"), *settle_secs, 0, YEAR_SECS)?;
    }
    for (place, name, what) in [
        ("[service] api_key_env", &file.service.api_key_env, "the key"),
        ("[serve] token_env", &file.serve.token_env, "the secret"),
        ("[notify] url_env", &file.notify.url_env, "the address"),
        ("[serve] status_token_env", &file.serve.status_token_env, "the token"),
    ] {
        // It is not repeated: it may be the key.
        if name.as_deref().is_some_and(|name| !is_variable_name(name)) {
            return Err(value(place, format!("it takes the name of an environment variable, and not {what} itself")));
        }
    }
    Ok(())
}
