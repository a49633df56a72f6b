//! What the attached file and its tables are called in SQL.

use crate::schema::quote_identifier;

/// Key and value of what the file knows of itself.
pub(super) const META_TABLE: &str = "_studysync";
/// Under which name the file is attached.
pub(super) const CATALOG: &str = "warehouse";

/// The name of one of our tables as SQL.
pub(super) fn qualified(table: &str) -> String {
    format!("{CATALOG}.main.{}", quote_identifier(table))
}
