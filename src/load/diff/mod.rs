//! Compares a staged scan with the warehouse and leaves what must change as relations (promises P1, P2, P4).
//!
//! All of it is SQL generated from the contracts, run by the in-memory engine. Nothing here writes to a warehouse, and nothing
//! here knows what a warehouse is made of: it reads through [`Targets`].

mod delta;
mod sql;

pub use delta::{Delta, DeltaRows, TableDelta, Targets, TimeBounds};

use super::{CommitOptions, LoadError, engine::Engine, stage::Stage};

/// Compares the staged scan with the warehouse. The cost is that of the scan and of the warehouse's rows in its window,
/// whatever else the warehouse holds.
pub fn diff(
    engine: &Engine,
    stage: &Stage,
    targets: &mut dyn Targets,
    options: &CommitOptions,
) -> Result<Delta, LoadError> {
    let _ = (engine, stage, targets, options);
    Err(LoadError::Contract("the comparison is being written".into()))
}
