//! Reads environment variables. No other file of the program does so. The OpenTelemetry library reads its own variables
//! itself, except those of [`OtlpSettings`].

use std::path::PathBuf;

use crate::redact::ApiKey;

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

/// The variables that change how this machine reaches the service. Empty variables count as not set.
#[derive(Clone, Debug, Default)]
pub struct NetworkVariables {
    /// The proxy of https addresses, with the name of its variable; the address may contain a password.
    pub https_proxy: Option<ApiKey>,
    /// The proxy of http addresses, with the name of its variable.
    pub http_proxy: Option<ApiKey>,
    /// The hosts that are reached without a proxy; empty if the variable is not set.
    pub no_proxy: String,
    /// The file of trusted certificate authorities; `None` if the variable is not set.
    pub certificates: Option<PathBuf>,
}

/// Returns the folders of `PATH`.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub fn program_folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Reads the variables that set the proxies and the trusted certificates. A value that is not UTF-8 is read with
/// replacement characters, so that it is refused like any other value that is no address.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
pub fn network_variables() -> NetworkVariables {
    let value = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().trim().to_owned());
    let first = |names: &[&'static str]| {
        let mut set = names.iter().filter_map(|name| Some((*name, value(name)?)));
        set.find(|(_, value)| !value.is_empty())
    };
    let proxy = |names: &[&'static str]| first(names).map(|(name, address)| ApiKey::new(address, name));
    NetworkVariables {
        https_proxy: proxy(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
        http_proxy: proxy(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]),
        no_proxy: first(&["NO_PROXY", "no_proxy"]).map(|(_, hosts)| hosts).unwrap_or_default(),
        certificates: std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()).map(PathBuf::from),
    }
}

/// Settings of the OpenTelemetry export, from the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtlpSettings {
    /// True if a variable names an endpoint and OTEL_SDK_DISABLED is not `true`.
    pub is_wanted: bool,
    /// True if OTEL_SERVICE_NAME is set.
    pub has_service_name: bool,
}

/// The variables that name an endpoint.
const ENDPOINTS: [&str; 3] =
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"];

impl OtlpSettings {
    /// Reads the settings from the environment of this process.
    pub fn from_environment() -> OtlpSettings {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let is_disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        OtlpSettings {
            is_wanted: !is_disabled && ENDPOINTS.into_iter().any(is_set),
            has_service_name: is_set("OTEL_SERVICE_NAME"),
        }
    }
}
