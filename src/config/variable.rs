//! Environment variables: their names, what may be shown of them, and their values. The only place that reads the environment.

/// Returns the value of a variable; `None` if it is not set, or not UTF-8.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub(super) fn environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// Returns the variables whose names begin so, with their values.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub(super) fn our_variables(prefix: &str) -> Vec<(String, String)> {
    let named = std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text)));
    let ours = named.filter(|(name, _)| name.starts_with(prefix));
    ours.map(|(name, text)| (name, text.to_string_lossy().into_owned())).collect()
}

/// Whether a text can be the name of an environment variable, and not rather a secret.
pub(super) fn is_variable_name(name: &str) -> bool {
    let begins = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    begins && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// The name of a variable as it may be shown: what does not look like one may be the secret itself.
pub(super) fn shown_variable(name: &str) -> &str {
    match is_variable_name(name) && !name.chars().any(|letter| letter.is_ascii_lowercase()) {
        true => name,
        false => "that the configuration file names",
    }
}
