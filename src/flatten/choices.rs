//! `response_choices`: chosen options of MULTIPLECHOICE and MULTIPLESELECT answers.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{answer_key::AnswerKey, table_builder::TableBuilder};
use crate::model::TableBatch;

#[derive(Debug)]
pub(super) struct Choices {
    table: TableBuilder,
}

impl Choices {
    pub(super) fn new() -> Result<Self, ArrowError> {
        Ok(Self { table: TableBuilder::new("response_choices", 0)? })
    }

    /// Appends a row for each chosen option. Labels and indexes are paired only if both lists have the same length;
    /// otherwise the longer list alone makes the rows.
    pub(super) fn append(&mut self, key: &AnswerKey, labels: &[Option<Cow<str>>], indexes: &[i64]) {
        let (labels, indexes) = match labels.len().cmp(&indexes.len()) {
            std::cmp::Ordering::Equal => (labels, indexes),
            std::cmp::Ordering::Greater => (labels, [].as_slice()),
            std::cmp::Ordering::Less => ([].as_slice(), indexes),
        };
        for at in 0..labels.len().max(indexes.len()) {
            if self.table.is_full() {
                return;
            }
            key.begin_row(&mut self.table);
            self.table.bigint("choice_ordinal", Some(at as i64 + 1));
            self.table.bigint("selected_index", indexes.get(at).copied());
            self.table.text("label", labels.get(at).and_then(|label| label.as_deref()));
            self.table.end_row(key.record);
        }
    }

    pub(super) fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        self.table.finish_into(batches)
    }
}
