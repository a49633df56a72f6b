//! Values of metrics, and their text in the Prometheus exposition format 0.0.4.

use std::{collections::BTreeMap, fmt::Write as _};

use super::list::{ALL, Metric};

/// The labels of every series. Without them, two installations on one machine would write equal series, of which a
/// collector drops one.
pub const INSTALLATION_LABELS: [&str; 2] = ["environment", "service_host"];

/// Values of metrics, collected for one output.
#[derive(Clone, Debug)]
pub struct MetricValues {
    /// The values of [`INSTALLATION_LABELS`].
    installation: [String; 2],
    /// For each index into [`ALL`]: pairs of label values and the metric's value.
    values: BTreeMap<usize, Vec<(Vec<String>, f64)>>,
}

impl MetricValues {
    /// Creates an empty collection for the installation that copies this environment of the service on this host.
    pub fn new(environment: &str, service_host: &str) -> MetricValues {
        MetricValues { installation: [environment.to_owned(), service_host.to_owned()], values: BTreeMap::new() }
    }

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
        self.values.iter().flat_map(move |(index, values)| {
            let metric = &ALL[*index];
            let series = values.iter().map(move |(labels, value)| (self.labels(metric, labels), *value));
            series.map(|(labels, value)| (format!("studysync_{}", metric.name), labels, value))
        })
    }

    /// Returns the labels of one series: those of the metric, then those of the installation.
    fn labels<'a>(&'a self, metric: &Metric, labels: &'a [String]) -> Vec<(&'static str, &'a str)> {
        let of_metric = metric.labels.iter().copied().zip(labels.iter().map(String::as_str));
        of_metric.chain(INSTALLATION_LABELS.into_iter().zip(self.installation.iter().map(String::as_str))).collect()
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
                let labels = self.labels(metric, labels).into_iter();
                let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)));
                let labels = labels.collect::<Vec<_>>().join(",");
                let _ = writeln!(text, "studysync_{}{{{labels}}} {value}", metric.name);
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
