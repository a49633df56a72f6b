//! Names of environment variables, and what may be shown of them.

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
