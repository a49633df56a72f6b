//! Erases people (promise P9). An erasure asks the service to purge the people, deletes their local data, and searches
//! for data that was not deleted.
//!
//! The modules in reading order; none contains SQL:
//! - [`request`]: who is erased; [`linked`]: other identifiers of these people.
//! - [`place`]: a place with texts, the people, the plan, the search; [`places`]: the list of the places; [`archive`]:
//!   one of them.
//! - [`plan`]: who has which data; [`journal`]: state of an interrupted erasure.
//! - [`purge`]: requests to the service; [`apply`]: the steps, in one function.
//! - [`receipt`]: the proof.
//! - [`export`]: everything about people in a folder, in place of an erasure.
//! - [`end`]: the end of the suppression of people who are back.

mod apply;
mod archive;
mod end;
mod error;
mod export;
mod journal;
mod linked;
mod place;
mod places;
mod plan;
mod purge;
mod receipt;
mod request;

pub use apply::{DELAY_SECONDS_MAX, Erase, attention_for, erase_vanished, log_erased};
pub use end::{EndReport, end_suppression};
pub use error::EraseError;
pub use export::PersonExport;
pub use linked::{LinkedIdentifiers, NotFollowed};
pub use place::{ArchiveFound, HardLinked, Plan, SearchReport};
pub use purge::Purged;
pub use receipt::{Receipt, UnsearchedVersions};
pub use request::{EraseRequest, PEOPLE_MAX, Reason, read_people};
