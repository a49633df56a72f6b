//! `[metrics]`: where one-shot runs leave their metrics.

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
    /// The file that node_exporter's textfile collector reads; `None`: none is written.
    pub textfile: Option<PathBuf>,
}

/// The passage of the file that `init` writes.
pub(super) fn template() -> &'static str {
    r#"[metrics]
# Written at the end of every run, for the textfile collector of Prometheus' node_exporter. `serve` also has /metrics.
# textfile = "/var/lib/node_exporter/textfile_collector/studysync.prom"
"#
}
