//! How behaviours are shown by `check --service-profile` and `status`: a line with the value, and below it when and how
//! it was measured. No line is longer than a terminal of 80 columns.

use serde_json::Value;

use crate::{
    model::{behaviour_names, format_ms},
    pipeline::{KnownBehaviour, Measured},
};

/// The columns of a line.
const WIDTH: usize = 80;
/// The columns of a name.
const NAME: usize = 24;
const EVIDENCE_INDENT: &str = "      ";

/// Each behaviour with its value, its date, and how it was measured or why it could not be.
pub(super) fn describe_measured(measured: &[Measured]) -> String {
    let total: u64 = measured.iter().map(|one| one.requests).sum();
    let mut text = "\nbehaviour of the service:\n".to_owned();
    for one in measured {
        let requests = match one.requests {
            1 => "1 request".to_owned(),
            requests => format!("{requests} requests"),
        };
        text.push_str(&value_line(one.name, one.value.as_ref()));
        text.push_str(&evidence_line(one.measured_ms, &format!("{} ({requests})", one.how)));
        text.push_str(&warning(one.name, one.value.as_ref()));
    }
    text.push_str(&format!("{total} requests; what is known is remembered, and `studysync status` shows it\n"));
    text
}

/// The known ones with their date and evidence, and the names of the others.
pub(super) fn describe_known(known: &[KnownBehaviour]) -> String {
    if known.iter().all(|one| one.value.is_none()) {
        return "\nnothing is known yet of how the service behaves (`studysync check --service-profile` measures them)\n".to_owned();
    }
    let mut text = "\nbehaviour of the service:\n".to_owned();
    for one in known {
        text.push_str(&value_line(one.name, one.value.as_ref()));
        if let Some(at_ms) = one.measured_ms {
            text.push_str(&evidence_line(Some(at_ms), one.evidence.as_deref().unwrap_or_default()));
        }
        text.push_str(&warning(one.name, one.value.as_ref()));
    }
    text
}

fn value_line(name: &str, value: Option<&Value>) -> String {
    wrapped(&format!("{name:<NAME$} {}", shown(value)), "  ", &" ".repeat(NAME + 3))
}

fn evidence_line(measured_ms: Option<i64>, evidence: &str) -> String {
    let when = measured_ms.map(|at_ms| format_ms(at_ms.div_euclid(1000) * 1000)).unwrap_or_default();
    let gap = if when.is_empty() || evidence.is_empty() { "" } else { ": " };
    wrapped(&format!("{when}{gap}{evidence}"), EVIDENCE_INDENT, EVIDENCE_INDENT)
}

/// A key belongs to one environment: webhooks of several are not all of this service's data.
fn warning(name: &str, value: Option<&Value>) -> String {
    match value.and_then(Value::as_array) {
        Some(ids) if name == behaviour_names::ENVIRONMENT_IDS && ids.len() > 1 => wrapped(
            "warning: a key belongs to one environment; set environment_id under [serve], and let the service post webhooks of that one alone",
            EVIDENCE_INDENT,
            EVIDENCE_INDENT,
        ),
        _ => String::new(),
    }
}

/// The text in lines that end at spaces; a word that is longer than a line has a line of its own.
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

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "unknown".to_owned(),
        Some(Value::String(word)) => word.clone(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(Value::Array(values)) if values.is_empty() => "none".to_owned(),
        Some(Value::Array(values)) => values.iter().map(|value| shown(Some(value))).collect::<Vec<_>>().join(", "),
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
        for line in wrapped(&format!("{:<NAME$} {words}", "name"), "  ", "     ").lines() {
            assert!(line.chars().count() <= WIDTH && !line.ends_with(' '), "{line}");
        }
        assert_eq!(wrapped("", "  ", "  "), "\n");
        assert_eq!(wrapped(&"x".repeat(100), "", ""), format!("{}\n", "x".repeat(100)));
    }
}
