//! The reference of the metrics, as `docs/monitoring.md` has it.

use std::fmt::Write as _;

use super::list::{ALL, Shown};

/// A table of all metrics, as Markdown.
pub fn reference() -> String {
    let mut text = "| metric | kind | labels | where | meaning |\n|---|---|---|---|---|\n".to_owned();
    for metric in ALL {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let shown = match metric.shown {
            Shown::Everywhere => "`/metrics`, textfile, OTLP",
            Shown::ServeAlone => "`/metrics`",
        };
        let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `studysync_{name}` | {kind} | {labels} | {shown} | {help} |");
    }
    text
}
