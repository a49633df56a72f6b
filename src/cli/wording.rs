//! Words and numbers in the output of several commands.

use crate::model::format_ms;

/// Formats a moment, rounded down to the second.
pub(super) fn format_second(at_ms: i64) -> String {
    format_ms(at_ms.div_euclid(1000) * 1000)
}

/// Returns the name of a stream, or of one survey of it: `responses of survey 4100`.
pub(super) fn scope_name(stream: &str, survey_id: Option<i64>) -> String {
    survey_id.map_or_else(|| stream.to_owned(), |id| format!("{stream} of survey {id}"))
}

/// Returns the number with its unit: `1 page`, `2 pages`.
pub(super) fn counted(number: u64, unit: &str) -> String {
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

/// Joins the counts that are not zero: `3 new, 1 changed`. Returns `None` if all are zero.
pub(super) fn nonzero_counts(counts: &[(u64, &str)]) -> Option<String> {
    let nonzero = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let nonzero: Vec<String> = nonzero.collect();
    (!nonzero.is_empty()).then(|| nonzero.join(", "))
}

/// Returns the line about a run that stopped early; empty if `reason` is `None`.
pub(super) fn stopped_line(reason: Option<&String>) -> String {
    let line = |reason| format!("  stopped early: {reason}. Run the same command again to resume\n");
    reason.map(line).unwrap_or_default()
}

/// Returns the line with the hint of a failure; empty without a hint.
pub(super) fn hint_line(hint: Option<&str>) -> String {
    hint.map(|hint| format!("    hint: {hint}\n")).unwrap_or_default()
}

/// Returns an outcome's name without underscores: `needs a look`.
pub(super) fn outcome_words(outcome: &str) -> String {
    outcome.replace('_', " ")
}
