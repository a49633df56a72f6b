//! `response_maxdiff_items`: items of MAXDIFF answers, which are lists of rounds, each a list of items.

use std::borrow::Cow;

use super::{
    answer_key::AnswerKey,
    field_drift::{AnswerDrift, FieldDrift},
    table_builder::TableBuilder,
};
use crate::json::{self, Entry};

/// The fields of an item that have columns. A field of a wrong type is `None`; only `answer_json` contains its value.
#[derive(Debug, Default)]
struct MaxDiffItem<'a> {
    id: Option<i64>,
    option: Option<Cow<'a, str>>,
    /// The choice for this item, as text; `None` if it is null or of another type.
    selected: Option<Cow<'a, str>>,
    /// True if `selected` was sent and is not null, also if it is of another type.
    is_selected: bool,
}

/// Appends a row for each item of each round. Returns true if the answer is a list and no item was selected. Rounds and
/// items of a wrong shape have no row, but their positions count in the ordinals. A value of a wrong shape that is not
/// null counts as a selection.
pub(super) fn append_max_diff_items<'a>(
    table: &mut TableBuilder,
    key: &AnswerKey,
    response: &'a str,
    drift: &mut Vec<AnswerDrift<'a>>,
) -> bool {
    let Some(rounds) = json::read_items(response) else { return false };
    let mut is_skipped = true;
    let mut entries = Vec::new();
    for (round, items_json) in (1_i64..).zip(rounds) {
        let Some(items) = json::read_items(items_json) else {
            is_skipped &= !add_clash("response[]", items_json, drift);
            continue;
        };
        for (ordinal, item_json) in (1_i64..).zip(items) {
            entries.clear();
            if json::read_entries(item_json, &mut entries).is_none() {
                is_skipped &= !add_clash("response[][]", item_json, drift);
                continue;
            }
            let item = read_item(&entries, drift);
            is_skipped &= !item.is_selected;
            if !table.is_full() {
                key.begin_row(table);
                table.bigint("round", Some(round));
                table.bigint("item_ordinal", Some(ordinal));
                table.bigint("item_id", item.id);
                table.text("option", item.option.as_deref());
                table.text("selected", item.selected.as_deref());
                table.end_row(key.record);
            }
        }
    }
    is_skipped
}

/// Adds a value of a wrong shape to the drift. Returns false for null, which is no drift.
fn add_clash<'a>(path: &'static str, value: &'a str, drift: &mut Vec<AnswerDrift<'a>>) -> bool {
    let is_drift = value != "null";
    if is_drift {
        drift.push(("", FieldDrift::type_clash(path, value)));
    }
    is_drift
}

/// Reads the members of an item. Unknown members and members of a wrong type go to `drift`.
fn read_item<'a>(entries: &[Entry<'a>], drift: &mut Vec<AnswerDrift<'a>>) -> MaxDiffItem<'a> {
    const PREFIX: &str = "response[][].";
    let mut item = MaxDiffItem::default();
    let text = |raw| json::read_text(raw).map(|text| text.text);
    for entry in entries {
        let name = json::unescaped(entry.key).text;
        let clash = match name.as_ref() {
            "id" => {
                item.id = json::read_integer(entry.value);
                item.id.is_none().then_some("id")
            }
            "option" => {
                item.option = text(entry.value);
                item.option.is_none().then_some("option")
            }
            "selected" => {
                item.selected = text(entry.value);
                item.is_selected = entry.value != "null";
                item.selected.is_none().then_some("selected")
            }
            _ => {
                drift.push((PREFIX, FieldDrift::new_field(name, entry.value)));
                None
            }
        };
        if let Some(field) = clash.filter(|_| entry.value != "null") {
            drift.push((PREFIX, FieldDrift::type_clash(field, entry.value)));
        }
    }
    item
}
