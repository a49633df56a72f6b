//! Who a record, a text or a file speaks of: finds a person's identifiers in the fields of a record and in bytes of any
//! spelling, and keeps those who asked to be forgotten out of what the service still sends.
//!
//! In reading order: [`records`] (which fields identify somebody, by the contracts), [`pages`] (a page without some of
//! its records), [`decoded`] and [`identifier_matcher`] (identifiers in texts and bytes), [`keyed`] (hashes in the
//! place of identifiers), [`suppression`] (the list).
//! It does not decide who belongs together, and deletes nothing: that is `erase`'s.

mod decoded;
mod error;
mod identifier_matcher;
mod keyed;
mod pages;
mod patterns;
mod records;
mod suppression;

pub use error::PersonError;
pub use identifier_matcher::{ERASED, IdentifierMatcher, RAW_BYTES_MIN};
pub use keyed::{Key, KeyedHash, Sealed};
pub use pages::{RedactedPage, without_records};
pub use records::{RecordFields, fields_of_stream, fields_of_table, identifies};
pub use suppression::{Expired, Over, SUPPRESSION_MARGIN_MS, Suppressed, Suppression, SuppressionList};
