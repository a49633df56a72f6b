//! Who a record, a text or a file speaks of: finds a person's identifiers in the fields of a record and in bytes of any
//! spelling, and keeps those who asked to be forgotten out of what the service still sends.
//!
//! In reading order: [`records`] (which fields identify somebody, by the contracts), [`pages`] (a page without some of
//! its records), [`decoded`] and [`identifier_matcher`] (identifiers in texts and bytes), [`keyed`] (hashes in the
//! place of identifiers), [`suppression`] (the list).
//! It does not decide who belongs together, and deletes nothing: that is `erase`'s.

mod decoded_text;
mod error;
mod identifier_matcher;
mod identifying_fields;
mod keyed_hash;
mod patterns;
mod redacted_page;
mod suppression;

pub use error::SuppressionError;
pub use identifier_matcher::{ERASED, IdentifierMatcher};
pub use identifying_fields::{IdentifyingFields, identifying_columns, identifying_fields, identifying_fields_of_table};
pub use keyed_hash::{IdentifierKey, KeyedHash, SealedBytes};
pub use redacted_page::{RedactedPage, remove_records};
pub use suppression::{Expired, Over, SUPPRESSION_MARGIN_MS, Suppression, SuppressionEntry, SuppressionList};
