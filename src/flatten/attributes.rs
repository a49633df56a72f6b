//! Rows of objects that map names to values, one row per name: attributes of people and snapshots, keys of custom
//! metadata.

use super::{drift::json_type, labelled::labelled, scalar::label, table_builder::TableBuilder};
use crate::json::{self, Entry, Shape};

/// Appends a row for each name, with the last value of a repeated name. `begin` fills the columns before the name. A
/// value that is not an object has no names.
pub(super) fn append_attributes<'a>(
    rows: &mut TableBuilder,
    record: i64,
    raw: Option<&'a str>,
    entries: &mut Vec<Entry<'a>>,
    begin: impl Fn(&mut TableBuilder),
) {
    let Some(raw) = raw.filter(|raw| json::shape(raw) == Shape::Object) else { return };
    entries.clear();
    // The text has been parsed as a part of its record, and is an object.
    let _ = json::read_entries(raw, entries);
    for (_, (name, value)) in labelled(entries) {
        if rows.is_full() {
            return;
        }
        begin(rows);
        rows.text("name", Some(&name));
        rows.text("value_text", label(value).as_deref());
        rows.double("value_number", json::read_number(value));
        rows.boolean("value_bool", json::read_boolean(value));
        rows.text("json_type", Some(json_type(value)));
        rows.end_row(record);
    }
}
