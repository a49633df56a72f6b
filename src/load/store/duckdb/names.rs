//! SQL names of the attached file and its tables.

use crate::schema::quote_identifier;

/// The table of the file's metadata: keys and values.
pub(super) const META_TABLE: &str = "_studysync";
/// Catalog name of the attached file.
pub(super) const CATALOG: &str = "warehouse";

/// The SQL name of one of our tables.
pub(super) fn qualified(table: &str) -> String {
    format!("{CATALOG}.main.{}", quote_identifier(table))
}
