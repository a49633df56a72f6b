//! The service profile as text, for `check --service-profile` and `status`. Each behaviour has a line with its value.
//! The next line says when and how the value was measured. Lines have at most 80 columns.

use serde_json::Value;

use crate::{
    model::{behaviour_names, format_second},
    pipeline::{KnownBehaviour, Measured},
};

use super::printer::counted;

/// Columns of a line.
const WIDTH: usize = 80;
/// Columns of a behaviour's name.
const NAME_WIDTH: usize = 24;
const EVIDENCE_INDENT: &str = "      ";

/// Returns the behaviours that were just measured. Each behaviour has its value, its date, and how it was measured or
/// why it could not be measured.
pub(super) fn describe_measured(measured: &[Measured]) -> String {
    let total: u64 = measured.iter().map(|behaviour| behaviour.requests).sum();
    let mut text = "\nbehaviour of the service:\n".to_owned();
    for Measured { name, value, how, requests, measured_ms } in measured {
        text.push_str(&value_line(name, value.as_ref()));
        text.push_str(&evidence_line(*measured_ms, &format!("{how} ({})", counted(*requests, "request"))));
        text.push_str(&warning(name, value.as_ref()));
    }
    text.push_str(&format!(
        "{}; the values are stored, and `studysync status` shows them\n",
        counted(total, "request")
    ));
    text
}

/// Returns the stored behaviours. A known behaviour has its date and evidence; the value of any other behaviour is
/// `unknown`.
pub(super) fn describe_known(known: &[KnownBehaviour]) -> String {
    if known.iter().all(|behaviour| behaviour.value.is_none()) {
        return "\nno behaviour of the service is known yet (`studysync check --service-profile` measures them)\n"
            .to_owned();
    }
    let mut text = "\nbehaviour of the service:\n".to_owned();
    for KnownBehaviour { name, value, measured_ms, evidence } in known {
        text.push_str(&value_line(name, value.as_ref()));
        if measured_ms.is_some() {
            text.push_str(&evidence_line(*measured_ms, evidence.as_deref().unwrap_or_default()));
        }
        text.push_str(&warning(name, value.as_ref()));
    }
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

/// Wraps a text at spaces. `first` is the indent of the first line, and `next` that of all further lines. A word that
/// is longer than a line gets a separate line.
fn wrapped(text: &str, first: &str, next: &str) -> String {
    let (mut lines, mut line, mut has_word) = (String::new(), first.to_owned(), false);
    for word in text.split(' ') {
        if has_word && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            (line, has_word) = (next.to_owned(), false);
        }
        if has_word {
            line.push(' ');
        }
        line.push_str(word);
        has_word = true;
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_a_terminal() {
        let words = "word ".repeat(60);
        for line in wrapped(&format!("{:<NAME_WIDTH$} {words}", "name"), "  ", "     ").lines() {
            assert!(line.chars().count() <= WIDTH && !line.ends_with(' '), "{line}");
        }
        assert_eq!(wrapped("", "  ", "  "), "\n");
        assert_eq!(wrapped(&"x".repeat(100), "", ""), format!("{}\n", "x".repeat(100)));
    }
}
