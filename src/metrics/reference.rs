//! The table of all metrics in `docs/monitoring.md`.

use std::fmt::Write as _;

use super::list::ALL;

/// Returns a table of all metrics as Markdown.
pub fn reference() -> String {
    let mut text = "| metric | kind | labels | where | meaning |\n|---|---|---|---|---|\n".to_owned();
    for metric in ALL {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let outputs = if metric.is_serve_only { "`/metrics`" } else { "`/metrics`, textfile, OTLP" };
        let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `studysync_{name}` | {kind} | {labels} | {outputs} | {help} |");
    }
    text
}
