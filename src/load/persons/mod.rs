//! Finds people in a store, and removes their rows. The contracts alone say which columns identify somebody and which
//! tables go together, so a new table needs no code here. Which identifiers belong to one person is decided by `erase`.
//!
//! No function here commits: the caller does.

mod facts;
mod fold;
mod marks;
mod records;
mod redact;
mod rows;
mod search;
mod texts;
mod vanished;
mod wanted;

#[cfg(test)]
mod tests;

pub use facts::Facts;
pub use rows::PeopleFound;
pub use search::{Mention, Searched};

pub(in crate::load) use facts::facts;
pub(in crate::load) use redact::redact;
pub(in crate::load) use rows::{find, remove};
pub(in crate::load) use search::search;
pub(in crate::load) use vanished::{live_sessions, vanished_sessions};
