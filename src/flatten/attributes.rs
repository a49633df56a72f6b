//! Rows of objects that map names to values, one row per name: attributes of people and snapshots, keys of custom
//! metadata.

use super::{
    drift::json_type,
    matrix_and_ranks::{LabelledValue, labelled_values},
    scalar::text_or_json,
    table_builder::TableBuilder,
};
use crate::json::{self, Entry};

/// Appends a row for each name in the object `raw`, with the last value of a repeated name. The object may be JSON
/// inside a string. Appends nothing if `raw` is not an object, and no further rows to a full table. `begin_row` fills
/// the columns before the name. `entries` is a buffer.
pub(super) fn append_attributes<'a>(
    table: &mut TableBuilder,
    record: i64,
    raw: Option<&'a str>,
    entries: &mut Vec<Entry<'a>>,
    begin_row: impl Fn(&mut TableBuilder),
) {
    if let Some(object) = raw.and_then(json::json_in_string) {
        return append_attributes(table, record, Some(&object), &mut Vec::new(), begin_row);
    }
    entries.clear();
    if raw.and_then(|raw| json::read_entries(raw, entries)).is_none() {
        return;
    }
    for LabelledValue { label, value, .. } in labelled_values(entries) {
        if table.is_full() {
            return;
        }
        begin_row(table);
        table.text("name", Some(&label));
        table.text("value_text", text_or_json(value).as_deref());
        table.double("value_number", json::read_number(value));
        table.boolean("value_bool", json::read_boolean(value));
        table.text("json_type", Some(json_type(value)));
        table.end_row(record);
    }
}
