//! Names, text and reference of the metrics.

use std::collections::BTreeSet;

use super::*;

#[test]
fn names_follow_the_rules_of_prometheus() {
    let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len(), "a name is there twice");
    for metric in ALL {
        let is_word = |name: &str| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        assert!(is_word(metric.name) && metric.labels.iter().all(|label| is_word(label)), "{}", metric.name);
        assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '|']), "{}", metric.name);
    }
}

#[test]
fn text_has_one_head_for_each_metric_and_escapes_labels() {
    let mut metrics = Exposition::default();
    metrics.set("build_info", &["a\"b\\c\nd"], 1.0);
    metrics.moment("last_run_timestamp_seconds", &[], Some(1_500));
    metrics.count("run_rows", &["responses", "inserted"], 7);
    metrics.count("run_rows", &["responses", "updated"], 0);
    let text = metrics.text();
    assert!(text.contains("studysync_build_info{version=\"a\\\"b\\\\c\\nd\"} 1\n"), "{text}");
    assert!(text.contains("studysync_last_run_timestamp_seconds 1.5\n"), "{text}");
    assert_eq!(text.matches("# TYPE studysync_run_rows gauge\n").count(), 1, "{text}");
    assert!(text.ends_with("studysync_run_rows{stream=\"responses\",fate=\"updated\"} 0\n"), "{text}");
}
