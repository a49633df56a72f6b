//! Whether an OpenTelemetry collector is named in the environment.
//! Everything else of it the library reads from there by itself.

use super::variable::environment;

/// What the environment says of a collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtlpSettings {
    /// Whether an endpoint is named, and OTEL_SDK_DISABLED does not say otherwise.
    pub is_wanted: bool,
    /// Whether OTEL_SERVICE_NAME names the program.
    pub has_service_name: bool,
}

/// The variables that name an endpoint.
const ENDPOINTS: [&str; 3] =
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"];

impl OtlpSettings {
    /// As the standard variables say.
    pub fn from_environment() -> OtlpSettings {
        let is_set = |name: &str| environment(name).is_some_and(|value| !value.is_empty());
        let is_disabled = environment("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        OtlpSettings {
            is_wanted: !is_disabled && ENDPOINTS.into_iter().any(is_set),
            has_service_name: is_set("OTEL_SERVICE_NAME"),
        }
    }
}
