//! Plans which windows are due. Pure functions of coverage, rules and a time: no I/O, no requests.
//!
//! [`due()`] says which intervals of a scope must be scanned and why; [`Cutter`] cuts them into windows of a good size.
//! The cutter learns the row density from each scan.

mod cutter;
mod due;
mod estimate;
pub mod page_boundaries;

pub use cutter::{Cutter, halves};
pub use due::{Due, DueRules, PlanRequest, Reason, RescanRules, SyncStart, Tier, covered_with, due};
pub use estimate::{Estimate, PlannedWindow, estimate, minutes};

#[cfg(test)]
mod tests;
