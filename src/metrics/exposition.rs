//! Values of metrics, and their text in Prometheus' format 0.0.4.

use std::{collections::BTreeMap, fmt::Write as _};

use super::list::ALL;

/// Values of metrics, gathered to be shown together.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    /// By the place of the metric in the list: label values, and the value.
    values: BTreeMap<usize, Vec<(Vec<String>, f64)>>,
}

impl Exposition {
    /// Sets a metric of the list, with a value for each of its labels. What the list does not know is left out:
    /// a test looks at that.
    pub fn set(&mut self, name: &str, labels: &[&str], value: f64) {
        let place = ALL.iter().position(|metric| metric.name == name && metric.labels.len() == labels.len());
        debug_assert!(place.is_some(), "{name} with {} labels is not in the list of metrics", labels.len());
        if let Some(place) = place {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            self.values.entry(place).or_default().push((labels, value));
        }
    }

    /// The same for a whole number.
    pub fn count(&mut self, name: &str, labels: &[&str], value: u64) {
        self.set(name, labels, value as f64);
    }

    /// A moment in epoch milliseconds, as seconds; 0 for none.
    pub fn moment(&mut self, name: &str, labels: &[&str], at_ms: Option<i64>) {
        self.set(name, labels, at_ms.unwrap_or(0) as f64 / 1000.0);
    }

    /// Every value: the metric's full name, its labels, the value.
    pub fn values(&self) -> impl Iterator<Item = (String, Vec<(&'static str, &str)>, f64)> {
        self.values.iter().flat_map(|(place, values)| {
            let metric = &ALL[*place];
            values.iter().map(move |(labels, value)| {
                let labels = metric.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
                (format!("studysync_{}", metric.name), labels, *value)
            })
        })
    }

    /// The text that Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (place, values) in &self.values {
            let metric = &ALL[*place];
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

fn escaped(text: &str, is_label: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_label { text.replace('"', "\\\"") } else { text }
}
