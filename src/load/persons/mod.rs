//! Finds rows of people in a store by identifiers, removes the rows, and redacts texts that mention the people. The
//! table contracts say which columns identify a person and which tables belong together, so a new table needs no code
//! here. The module `erase` decides which identifiers belong to one person.
//!
//! The functions of this module do not commit: the caller does.

mod all_rows;
mod co_occurrence;
mod identifier_columns;
mod identifier_set;
mod mentions;
mod rows;
mod vanished;

#[cfg(test)]
mod tests;

pub use co_occurrence::CoOccurrence;
pub use mentions::LocationResult;
pub use rows::PeopleFound;

pub(in crate::load) use co_occurrence::co_occurrence;
pub(in crate::load) use mentions::{redact, search};
pub(in crate::load) use rows::{export, find, remove};
pub(in crate::load) use vanished::{live_sessions, vanished_sessions};
