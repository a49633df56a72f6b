//! SQL names of the attached file and its tables.

use crate::schema::quote_identifier;

/// The table with the metadata of the file: pairs of key and value.
pub(super) const META_TABLE: &str = "_studysync";
/// Key of the metadata of a copy without personal data: the fingerprint of the rules by which it was made.
pub(super) const RULES_KEY: &str = "analyst_copy";
/// Catalog name under which the warehouse's file is attached to the engine.
pub(super) const CATALOG: &str = "warehouse";

/// Returns the SQL name of a table of this program in the attached file.
pub(super) fn qualified(table: &str) -> String {
    format!("{CATALOG}.main.{}", quote_identifier(table))
}
