//! The OpenTelemetry variables that this program reads. The OpenTelemetry library reads all others itself.

use super::environment::variable;

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
