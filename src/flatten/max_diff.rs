//! `response_maxdiff_items`: items of MAXDIFF answers, which are lists of rounds, each a list of items.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{answer_key::AnswerKey, met::Met, table_builder::TableBuilder};
use crate::{
    json::{self, Entry},
    model::TableBatch,
};

#[derive(Debug)]
pub(super) struct MaxDiffItems {
    table: TableBuilder,
}

/// The fields of an item that have columns; one of a wrong type is NULL, and `answer_json` has it.
#[derive(Debug, Default)]
struct Item<'a> {
    id: Option<i64>,
    option: Option<Cow<'a, str>>,
    selected: Option<Cow<'a, str>>,
    is_selected: bool,
}

impl MaxDiffItems {
    pub(super) fn new() -> Result<Self, ArrowError> {
        Ok(Self { table: TableBuilder::new("response_maxdiff_items", 0)? })
    }

    /// Appends a row for each item of each round. True if the answer is a list of rounds and no item was selected.
    /// Rounds and items of a wrong shape keep their ordinal and have no row.
    pub(super) fn append<'a>(
        &mut self,
        key: &AnswerKey,
        response: &'a str,
        drift: &mut Vec<(&'static str, Met<'a>)>,
    ) -> bool {
        if json::shape(response) != json::Shape::List {
            return false;
        }
        let mut is_skipped = true;
        let mut entries = Vec::new();
        for (round_at, round) in json::read_items(response).unwrap_or_default().into_iter().enumerate() {
            let items = match json::shape(round) {
                json::Shape::List => json::read_items(round).unwrap_or_default(),
                json::Shape::Null => continue,
                _ => {
                    drift.push(("", Met::clash("response[]", round)));
                    is_skipped = false;
                    continue;
                }
            };
            for (item_at, item) in items.into_iter().enumerate() {
                entries.clear();
                if json::shape(item) != json::Shape::Object || json::read_entries(item, &mut entries).is_none() {
                    if item != "null" {
                        drift.push(("", Met::clash("response[][]", item)));
                        is_skipped = false;
                    }
                    continue;
                }
                let item = read_item(&entries, drift);
                is_skipped &= !item.is_selected;
                if !self.table.is_full() {
                    self.append_item(key, round_at, item_at, &item);
                }
            }
        }
        is_skipped
    }

    fn append_item(&mut self, key: &AnswerKey, round_at: usize, item_at: usize, item: &Item) {
        key.begin_row(&mut self.table);
        self.table.bigint("round", Some(round_at as i64 + 1));
        self.table.bigint("item_ordinal", Some(item_at as i64 + 1));
        self.table.bigint("item_id", item.id);
        self.table.text("option", item.option.as_deref());
        self.table.text("selected", item.selected.as_deref());
        self.table.end_row(key.record);
    }

    pub(super) fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        self.table.finish_into(batches)
    }
}

fn read_item<'a>(entries: &[Entry<'a>], drift: &mut Vec<(&'static str, Met<'a>)>) -> Item<'a> {
    const PREFIX: &str = "response[][].";
    let mut item = Item::default();
    let text = |raw| json::read_text(raw).map(|text| text.text);
    for entry in entries {
        let name = json::unescaped(entry.key).text;
        let clashes = match name.as_ref() {
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
                drift.push((PREFIX, Met::new_field(name, entry.value)));
                None
            }
        };
        if let Some(field) = clashes.filter(|_| entry.value != "null") {
            drift.push((PREFIX, Met::clash(field, entry.value)));
        }
    }
    item
}
