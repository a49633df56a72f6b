//! How traits are shown by `check --traits` and `status`.

use serde_json::Value;

use crate::{
    model::format_ms,
    pipeline::{KnownTrait, Measured},
};

/// A table: trait, value, requests, how it was measured.
pub(super) fn describe_measured(measured: &[Measured]) -> String {
    let total: u64 = measured.iter().map(|one| one.requests).sum();
    let mut text = format!("\n{:<22} {:<14} {:>8}  how\n", "trait", "value", "requests");
    for one in measured {
        let value = shown(one.value.as_ref());
        text.push_str(&format!("{:<22} {value:<14} {:>8}  {}\n", one.name, one.requests, one.how));
    }
    text.push_str(&format!("{total} requests; what is known is remembered, and `studysync status` shows it\n"));
    text
}

/// The known ones, one a line.
pub(super) fn describe_known(known: &[KnownTrait]) -> String {
    if known.iter().all(|one| one.value.is_none()) {
        return "\nno trait of the service is known yet (`studysync check --traits` measures them)\n".to_owned();
    }
    let mut text = "\ntraits of the service:\n".to_owned();
    for one in known {
        let when = one.measured_ms.map(|at_ms| format!("  (as of {})", format_ms(at_ms.div_euclid(1000) * 1000)));
        let line = format!("  {:<22} {:<14}{}", one.name, shown(one.value.as_ref()), when.unwrap_or_default());
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "unknown".to_owned(),
        Some(Value::String(word)) => word.clone(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(other) => other.to_string(),
    }
}
