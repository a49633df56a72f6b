//! Values of metrics, and their text in the Prometheus exposition format 0.0.4.

use std::{collections::BTreeMap, fmt::Write as _};

use super::list::ALL;

/// Values of metrics, collected for one output.
#[derive(Clone, Debug, Default)]
pub struct MetricValues {
    /// For each index into [`ALL`]: pairs of label values and the metric's value.
    values: BTreeMap<usize, Vec<(Vec<String>, f64)>>,
}

impl MetricValues {
    /// Adds a value of the metric `name`, with one label value for each label of the metric. An unknown name or a wrong
    /// number of labels is ignored; debug builds panic.
    pub fn set(&mut self, name: &str, labels: &[&str], value: f64) {
        let index = ALL.iter().position(|metric| metric.name == name && metric.labels.len() == labels.len());
        debug_assert!(index.is_some(), "{name} with {} labels is not in the list of metrics", labels.len());
        if let Some(index) = index {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            self.values.entry(index).or_default().push((labels, value));
        }
    }

    /// Adds an integer value.
    pub fn set_count(&mut self, name: &str, labels: &[&str], value: u64) {
        self.set(name, labels, value as f64);
    }

    /// Adds a time, given in epoch milliseconds, as epoch seconds; 0 for `None`.
    pub fn set_time(&mut self, name: &str, labels: &[&str], at_ms: Option<i64>) {
        self.set(name, labels, at_ms.unwrap_or(0) as f64 / 1000.0);
    }

    /// Returns every value with the metric's full name and its labels.
    pub fn values(&self) -> impl Iterator<Item = (String, Vec<(&'static str, &str)>, f64)> {
        self.values.iter().flat_map(|(index, values)| {
            let metric = &ALL[*index];
            values.iter().map(move |(labels, value)| {
                let labels = metric.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
                (format!("studysync_{}", metric.name), labels, *value)
            })
        })
    }

    /// Returns the text that Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (index, values) in &self.values {
            let metric = &ALL[*index];
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP studysync_{} {}", metric.name, escaped(metric.help, false));
            let _ = writeln!(text, "# TYPE studysync_{} {}", metric.name, metric.kind.name());
            for (labels, value) in values {
                let labels = metric.labels.iter().zip(labels);
                let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)));
                let labels = labels.collect::<Vec<_>>().join(",");
                let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
                let _ = writeln!(text, "studysync_{}{labels} {value}", metric.name);
            }
        }
        text
    }
}

/// Escapes a help text or, if `is_label`, a label value for the exposition format.
fn escaped(text: &str, is_label: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_label { text.replace('"', "\\\"") } else { text }
}
