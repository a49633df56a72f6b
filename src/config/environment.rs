//! Reads environment variables. No other file of the program does so.

use std::path::PathBuf;

/// Returns the value of a variable; `None` if the variable is not set or not UTF-8.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the names of the variables that begin with the prefix.
pub(super) fn names_with_prefix(prefix: &str) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Returns the names and values of the variables that begin with the prefix.
///
/// # Errors
/// The name of a variable whose value is not UTF-8.
pub(super) fn variables_with_prefix(prefix: &str) -> Result<Vec<(String, String)>, String> {
    let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let matching = named.filter(|(name, _)| name.starts_with(prefix));
    matching.map(|(name, value)| value.into_string().map(|value| (name.clone(), value)).map_err(|_| name)).collect()
}

/// Returns true if the text can be the name of an environment variable.
pub(super) fn is_variable_name(name: &str) -> bool {
    let begins = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    begins && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Returns the name of a variable for an error message. A name that is not in capitals may be the secret itself, and is
/// replaced by a description.
pub(super) fn shown_variable(name: &str) -> &str {
    match is_variable_name(name) && !name.chars().any(|letter| letter.is_ascii_lowercase()) {
        true => name,
        false => "that the configuration file names",
    }
}

/// The variables that change how this machine reaches the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkVariables {
    /// The name of the variable that sets a proxy, and the proxy's address without user and password; `None` if no
    /// variable does.
    pub proxy: Option<(String, String)>,
    /// The hosts that are reached without the proxy; `None` if the variable is not set.
    pub no_proxy: Option<String>,
    /// The file of trusted certificate authorities; `None` if the variable is not set.
    pub certificates: Option<PathBuf>,
}

/// Returns the folders of `PATH`.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub fn program_folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Reads the variables that set the proxy and the trusted certificates, so that `check` can show them. The proxy's user
/// and password are left out.
pub fn network_variables() -> NetworkVariables {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty()).map(|value| ((*name).to_owned(), value));
    let proxy = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].iter().find_map(set);
    NetworkVariables {
        proxy: proxy.map(|(name, address)| (name, without_credentials(&address))),
        no_proxy: ["NO_PROXY", "no_proxy"].iter().find_map(set).map(|(_, hosts)| hosts),
        certificates: ["SSL_CERT_FILE"].iter().find_map(set).map(|(_, path)| PathBuf::from(path)),
    }
}

/// Returns the address of a proxy without the user and password before its host.
fn without_credentials(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let is_host = |letter: char| letter.is_ascii_alphanumeric() || "-._:[]/".contains(letter);
    if host.is_empty() || !host.chars().all(is_host) {
        return "an address that cannot be parsed".to_owned();
    }
    if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p11_the_password_of_a_proxy_is_not_shown() {
        for (address, shown) in [
            ("http://proxy.example:3128", "http://proxy.example:3128"),
            ("http://me:s3cr3t@proxy.example:3128", "http://proxy.example:3128"),
            ("me:s3@cr3t@proxy.example", "proxy.example"),
            ("::::bad s3cr3t", "an address that cannot be parsed"),
        ] {
            assert_eq!(without_credentials(address), shown);
        }
    }
}
