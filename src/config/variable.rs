//! Environment variables: their names, what may be shown of them, and their values.
//! The only place that reads the environment.

use std::path::PathBuf;

/// Returns the value of a variable; `None` if it is not set, or not UTF-8.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub(super) fn environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// Returns the names of the variables that begin so.
pub(super) fn our_names(prefix: &str) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Returns the variables whose names begin so, with their values.
///
/// # Errors
/// The name of one whose value is not UTF-8.
pub(super) fn our_variables(prefix: &str) -> Result<Vec<(String, String)>, String> {
    let named = std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text)));
    let ours = named.filter(|(name, _)| name.starts_with(prefix));
    ours.map(|(name, text)| text.into_string().map(|text| (name.clone(), text)).map_err(|_| name)).collect()
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

/// What the environment says of the way to the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkVariables {
    /// The variable that names a proxy, and its address without user and password.
    pub proxy: Option<(String, String)>,
    /// The hosts that are asked without it.
    pub no_proxy: Option<String>,
    /// The file of the trusted authorities.
    pub certificates: Option<PathBuf>,
}

/// Returns the folders in which programs are looked for.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub fn programs_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Reads the variables of proxies and certificates.
pub fn network_variables() -> NetworkVariables {
    let set =
        |name: &&str| environment(name).filter(|value| !value.is_empty()).map(|value| ((*name).to_owned(), value));
    let proxy = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].iter().find_map(set);
    NetworkVariables {
        proxy: proxy.map(|(name, address)| (name, without_user(&address))),
        no_proxy: ["NO_PROXY", "no_proxy"].iter().find_map(set).map(|(_, hosts)| hosts),
        certificates: ["SSL_CERT_FILE"].iter().find_map(set).map(|(_, path)| PathBuf::from(path)),
    }
}

/// An address without the user and the password before its host.
fn without_user(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let is_host = |letter: char| letter.is_ascii_alphanumeric() || "-._:[]/".contains(letter);
    if host.is_empty() || !host.chars().all(is_host) {
        return "an address that cannot be read".to_owned();
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
            ("::::bad s3cr3t", "an address that cannot be read"),
        ] {
            assert_eq!(without_user(address), shown);
        }
    }
}
