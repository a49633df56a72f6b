//! Erases people (promise P9). An erasure is planned, asks the service to purge the people, deletes their local data,
//! and searches for what is left.
//!
//! In reading order: [`request`] (who), [`linked`] (their other identifiers), [`archive`] (records in archived pages),
//! [`plan`], [`journal`] (state of an interrupted erasure), [`purge`] (the service), [`apply`] (the steps, in one
//! function), [`verify`] (the search), [`receipt`] (the proof), [`vanished`] (sessions that the service removed).
//! This module contains no SQL and names no table.

mod apply;
mod archive;
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
pub use error::EraseError;
pub use linked::{LinkedIdentifiers, NotFollowed};
pub use plan::Plan;
pub use purge::Purged;
pub use receipt::Receipt;
pub use request::{EraseRequest, PEOPLE_MAX, Reason, read_people};
pub use vanished::erase_vanished;
pub use verify::{HardLinked, LocationResult, SearchReport};
