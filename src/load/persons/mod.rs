//! Finds rows of people in a store by identifiers, removes the rows, and redacts texts that mention the people. The
//! table contracts say which columns identify a person and which tables belong together, so a new table needs no code
//! here. The module `erase` decides which identifiers belong to one person.
//!
//! The functions of this module do not commit: the caller does.

mod co_occurrence;
mod identifier_columns;
mod identifier_set;
mod parallel_read;
mod record_matcher;
mod redact;
mod rows;
mod search;
mod texts;
mod vanished;

#[cfg(test)]
mod tests;

pub use co_occurrence::CoOccurrence;
pub use rows::PeopleFound;
pub use search::{Mention, SearchReport};

pub(in crate::load) use co_occurrence::co_occurrence;
pub(in crate::load) use redact::redact;
pub(in crate::load) use rows::{find, remove};
pub(in crate::load) use search::search;
pub(in crate::load) use vanished::{live_sessions, vanished_sessions};
