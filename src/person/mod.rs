//! Finds a person's identifiers in records, texts and files, and recognizes the records of erased people.
//!
//! In reading order:
//! - [`mod@identifying_fields`]: the fields that identify a person, by the contracts
//! - [`redacted_page`]: a page without some records
//! - [`identifier_matcher`]: identifiers in texts and raw bytes
//! - [`keyed_hash`]: hashes of identifiers
//! - [`suppression_list`]: the erased people, and the end of their suppression for people who are back
//! - [`merge`]: the lists of several machines that write one warehouse
//! - [`suppression`]: keeps their records out of scans
//!
//! This module does not decide which identifiers belong to one person, and deletes nothing. `erase` does both.

mod decoded_text;
mod error;
mod identifier_matcher;
mod identifying_fields;
mod keyed_hash;
mod merge;
mod patterns;
mod redacted_page;
mod suppression;
mod suppression_list;

pub use decoded_text::{may_have_ace_label, text_of_bytes};
pub use error::SuppressionError;
pub use identifier_matcher::{ERASED, FieldTest, IdentifierMatcher};
pub use identifying_fields::{
    IdentifyingFields, any_email, identifying_columns, identifying_fields, identifying_fields_of_events,
};
pub use keyed_hash::{IdentifierKey, KeyedHash, SealedBytes};
pub use merge::{ErasureFiles, merge_erasures};
pub use redacted_page::{RedactedPage, remove_records};
pub use suppression::{ExpirableErasure, LateRecords, Suppression};
pub use suppression_list::{EndedSuppression, SUPPRESSION_MARGIN_MS, SuppressionEntry, SuppressionList};
