//! Names, text and reference of the metrics.

use std::{collections::BTreeSet, fmt::Write as _};

use super::*;

#[test]
fn names_are_valid_and_unique() {
    let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len(), "a name occurs twice");
    for metric in ALL {
        let is_word = |name: &str| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        assert!(is_word(metric.name) && metric.labels.iter().all(|label| is_word(label)), "{}", metric.name);
        assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '|']), "{}", metric.name);
    }
}

#[test]
fn each_metric_has_one_head_and_labels_are_escaped() {
    let mut metrics = MetricValues::new("a \"b\"\\\n", "api.example.com:8443");
    metrics.set("build_info", &["a\"b\\c\nd"], 1.0);
    metrics.set_time("last_run_timestamp_seconds", &[], Some(1_500));
    metrics.set_count("run_rows", &["responses", "inserted"], 7);
    metrics.set_count("run_rows", &["responses", "updated"], 0);
    let text = metrics.text();
    let installation = r#"environment="a \"b\"\\\n",service_host="api.example.com:8443"}"#;
    let line = format!("studysync_build_info{{version=\"a\\\"b\\\\c\\nd\",{installation} 1\n");
    assert!(text.contains(&line), "{line} in {text}");
    assert!(text.contains(&format!("studysync_last_run_timestamp_seconds{{{installation} 1.5\n")), "{text}");
    assert_eq!(text.matches("# TYPE studysync_run_rows gauge\n").count(), 1, "{text}");
    let last = format!("studysync_run_rows{{stream=\"responses\",fate=\"updated\",{installation} 0\n");
    assert!(text.ends_with(&last), "{text}");
}

/// Returns a table of all metrics as Markdown.
fn reference() -> String {
    let mut text = "| metric | kind | labels | where | meaning |\n|---|---|---|---|---|\n".to_owned();
    for metric in ALL {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let outputs = if metric.is_serve_only { "`/metrics`" } else { "`/metrics`, textfile, OTLP" };
        let (name, kind, help) = (metric.name, metric.kind(), metric.help);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `studysync_{name}` | {kind} | {labels} | {outputs} | {help} |");
    }
    text
}

const BEGIN: &str = "<!-- metrics: written by a test, from the list in src/metrics/list.rs -->\n";
const END: &str = "<!-- /metrics -->\n";

/// To update the reference: `STUDYSYNC_WRITE_DOCS=1 cargo test --lib metrics`.
#[test]
#[expect(clippy::disallowed_methods, reason = "whether to update the reference")]
fn the_reference_in_the_docs_matches_the_list() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring.md");
    // The published crate has no docs.
    let Ok(page) = std::fs::read_to_string(&path) else { return };
    let begin = page.find(BEGIN).unwrap() + BEGIN.len();
    let end = page.find(END).unwrap();
    if std::env::var("STUDYSYNC_WRITE_DOCS").is_ok() {
        std::fs::write(&path, format!("{}{}{}", &page[..begin], reference(), &page[end..])).unwrap();
        return;
    }
    assert_eq!(page[begin..end], reference(), "STUDYSYNC_WRITE_DOCS=1 updates it");
}

#[test]
fn alerts_name_existing_metrics_and_reasons() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/prometheus/alerts.yml");
    let Ok(rules) = std::fs::read_to_string(path) else { return };
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let names: BTreeSet<&str> = rules
        .match_indices("studysync_")
        .map(|(at, _)| rules[at + "studysync_".len()..].split(|letter| !is_word(letter)).next().unwrap())
        .collect();
    assert!(names.len() > 6, "{names:?}");
    for name in names {
        assert!(ALL.iter().any(|metric| metric.name == name), "studysync_{name} is no metric");
    }
    for (at, _) in rules.match_indices("reason=\"") {
        let reason = rules[at + "reason=\"".len()..].split('"').next().unwrap();
        assert!(crate::sync_status::reason_codes().any(|code| code == reason), "{reason} is no reason");
    }
    assert_eq!(rules.matches("- alert:").count(), rules.matches("action:").count(), "each says what to do");
    let page =
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring.md")).unwrap();
    for code in crate::sync_status::reason_codes() {
        assert!(page.contains(&format!("`{code}`")), "docs/monitoring.md does not explain {code}");
    }
}
