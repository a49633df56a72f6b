//! What a replay did: the JSON of `--json` and the history of runs.

use serde::Serialize;

use crate::model::RunId;

use super::super::{Outcome, ReportHeader};

/// What was replayed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Replayed {
    /// Scans that were applied again.
    pub scans: u64,
    /// Their pages.
    pub pages: u64,
    /// Records on them.
    pub records: u64,
    /// The warehouses that were rebuilt.
    pub warehouses: Vec<Rebuilt>,
    /// The ranges that were replaced; none in a full replay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stretches: Vec<Replaced>,
    /// What else people should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether the checkpoints count less than before: the next sync pulls the rest.
    #[serde(skip)]
    pub has_gaps: bool,
    /// Whether it was asked to stop. Nothing changed then.
    #[serde(skip)]
    pub is_stopped: bool,
}

/// A warehouse that was rebuilt.
#[derive(Clone, Debug, Serialize)]
pub struct Rebuilt {
    pub name: &'static str,
    pub location: String,
    /// Scans in its ledger.
    pub ledger_scans: u64,
}

/// A range that was replaced.
#[derive(Clone, Debug, Serialize)]
pub struct Replaced {
    pub stream: &'static str,
    pub start: String,
    pub end: String,
    /// Rows put in, of all tables of the stream, by warehouse.
    pub rows: std::collections::BTreeMap<&'static str, u64>,
}

impl Replayed {
    pub(super) fn outcome(&self) -> Outcome {
        match (self.is_stopped, self.has_gaps) {
            (true, _) => Outcome::Interrupted,
            (false, true) => Outcome::NeedsALook,
            (false, false) => Outcome::Done,
        }
    }
}

/// A replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    pub run_id: RunId,
    #[serde(flatten)]
    pub header: ReportHeader,
    #[serde(flatten)]
    pub replayed: Replayed,
}
