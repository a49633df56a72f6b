//! What is due. Pure: coverage, rules and a time go in, windows come out; nothing is read and nothing is asked.
//!
//! [`due()`] says which stretches of a scope must be scanned and why; [`Cutter`] cuts them into windows of a good size
//! while the scans teach it how dense the answers lie.

mod cutter;
mod due;
pub mod edges;
mod estimate;
mod rescan;

pub use cutter::{Cutter, halves};
pub use due::{Ask, Due, Reason, Rules, due};
pub use estimate::{Estimate, PlannedWindow, estimate, minutes};
pub use rescan::{RescanRules, Tier};

#[cfg(test)]
mod tests;
