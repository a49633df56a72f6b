//! `[metrics]`: the file to which each run writes its metrics.

use std::path::PathBuf;

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MetricsTable {
    pub textfile: Option<PathBuf>,
}

/// `[metrics]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The file for node_exporter's textfile collector; `None` writes no file.
    pub textfile: Option<PathBuf>,
}

/// Returns this section of the file that `init` writes.
pub(super) fn template() -> &'static str {
    r#"[metrics]
# A file that each run writes at its end, for the textfile collector of Prometheus' node_exporter. `serve` also has /metrics.
# textfile = "/var/lib/node_exporter/textfile_collector/studysync.prom"
"#
}
