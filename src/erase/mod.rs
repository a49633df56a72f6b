//! Forgets people (promise P9): plans first, asks the service to purge them, removes them from everything that is kept
//! here, and searches for what is left.
//!
//! In reading order: [`request`] (whom), [`linked`] (who belongs to them), [`archive`] (their records in archived
//! pages), [`plan`], [`journal`] (what an interrupted erasure goes on with), [`purge`] (the service), [`apply`] (the
//! steps, in one function), [`verify`] (the search), [`receipt`] (the proof), [`vanished`] (those whom the service
//! purged by itself). It holds no SQL and knows no table.

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
pub use verify::{HardLinked, Place, Verified};
