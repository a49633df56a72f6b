//! The service profile as text, for `check --service-profile`. Each known behaviour has a line with its value. The next
//! line says when and how the value was measured. The last lines name the unknown behaviours. Lines have at most 80
//! columns.

use serde_json::Value;

use crate::{
    model::{behaviour_names, format_second},
    pipeline::Measured,
};

use super::{printer::counted, terminal::wrapped};

/// Columns of a behaviour's name.
const NAME_WIDTH: usize = 24;
const EVIDENCE_INDENT: &str = "      ";

/// Returns the behaviours that were just measured: first each known behaviour with its value, its date and how it was
/// measured, then the names of the unknown ones.
pub(super) fn describe_measured(measured: &[Measured]) -> String {
    let total: u64 = measured.iter().map(|behaviour| behaviour.requests).sum();
    let mut text = "\nbehaviour of the service:\n".to_owned();
    for Measured { name, value, how, requests, measured_ms } in measured.iter().filter(|known| known.value.is_some()) {
        text.push_str(&value_line(name, value.as_ref()));
        text.push_str(&evidence_line(*measured_ms, &format!("{how} ({})", counted(*requests, "request"))));
        text.push_str(&warning(name, value.as_ref()));
    }
    let unknown = measured.iter().filter(|behaviour| behaviour.value.is_none());
    let unknown: Vec<&str> = unknown.map(|behaviour| behaviour.name).collect();
    if !unknown.is_empty() {
        text.push_str(&wrapped(&format!("unknown: {} (--json says why)", unknown.join(", ")), "  ", "    "));
    }
    text.push_str(&format!("{}; the values are stored\n", counted(total, "request")));
    text
}

fn value_line(name: &str, value: Option<&Value>) -> String {
    wrapped(&format!("{name:<NAME_WIDTH$} {}", value_text(value)), "  ", &" ".repeat(NAME_WIDTH + 3))
}

fn evidence_line(measured_ms: Option<i64>, evidence: &str) -> String {
    let when = measured_ms.map(format_second).unwrap_or_default();
    let gap = if when.is_empty() || evidence.is_empty() { "" } else { ": " };
    wrapped(&format!("{when}{gap}{evidence}"), EVIDENCE_INDENT, EVIDENCE_INDENT)
}

/// Returns a warning if webhooks came from several environments; otherwise an empty text. A key belongs to one
/// environment, so some of these webhooks are about other data.
fn warning(name: &str, value: Option<&Value>) -> String {
    match value.and_then(Value::as_array) {
        Some(ids) if name == behaviour_names::ENVIRONMENT_IDS && ids.len() > 1 => wrapped(
            "warning: several environments are known, and a key belongs to one; set environment_id under [serve] to it, and let the service send only its webhooks",
            EVIDENCE_INDENT,
            EVIDENCE_INDENT,
        ),
        _ => String::new(),
    }
}

/// Returns the text that shows a behaviour's value to people. `None` is shown as `unknown`.
fn value_text(value: Option<&Value>) -> String {
    match value {
        None => "unknown".to_owned(),
        Some(Value::String(word)) => word.clone(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(Value::Array(values)) if values.is_empty() => "none".to_owned(),
        Some(Value::Array(values)) => values.iter().map(|value| value_text(Some(value))).collect::<Vec<_>>().join(", "),
        // An environment id, with the number of webhook deliveries from that environment.
        Some(value) => match (value["id"].as_str(), value["deliveries"].as_u64()) {
            (Some(id), Some(deliveries)) => format!("{id} ({deliveries})"),
            _ => value.to_string(),
        },
    }
}
