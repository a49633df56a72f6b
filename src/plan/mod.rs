//! Plans which windows are due. Pure functions of coverage, rules and a time: no I/O, no requests.
//!
//! [`due()`] says which intervals of a scope must be scanned and why; [`Cutter`] cuts them into windows of a good size.
//! The cutter learns the row density from each scan.

mod cutter;
mod due;
mod estimate;
pub mod page_boundaries;
mod rescan;

pub use cutter::{Cutter, halves};
pub use due::{Due, DueRules, PlanRequest, Reason, SyncStart, covered_with, due};
pub use estimate::{Estimate, PlannedWindow, estimate, minutes};
pub use rescan::{RescanRules, Tier};

#[cfg(test)]
mod tests;
