//! Erases people (promise P9). An erasure asks the service to purge the people, deletes their local data, and searches
//! for data that was not deleted.
//!
//! The modules in reading order; none contains SQL:
//! - [`request`]: who is erased; [`linked`]: other identifiers of these people.
//! - [`archive`]: records in archived pages; [`recordings`]: recordings of the people's sessions.
//! - [`plan`]: what would be deleted; [`journal`]: state of an interrupted erasure.
//! - [`purge`]: requests to the service; [`apply`]: the steps, in one function.
//! - [`verify`]: the search; [`receipt`]: the proof; [`vanished`]: erasure of sessions that the service removed.
//! - [`end`]: the end of the suppression of people who are back.

mod apply;
mod archive;
mod end;
mod error;
mod journal;
mod linked;
mod plan;
mod purge;
mod receipt;
mod recordings;
mod request;
mod vanished;
mod verify;

pub use apply::{DELAY_SECONDS_MAX, Erase};
pub use archive::ArchiveFound;
pub use end::{EndReport, EndedErasure, end_suppression};
pub use error::EraseError;
pub use linked::{LinkedIdentifiers, NotFollowed};
pub use plan::Plan;
pub use purge::Purged;
pub use receipt::Receipt;
pub use request::{EraseRequest, PEOPLE_MAX, Reason, read_people};
pub use vanished::{attention_for, erase_vanished, log_erased};
pub use verify::{HardLinked, LocationResult, SearchReport};
