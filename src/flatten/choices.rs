//! `response_choices`: chosen options of MULTIPLECHOICE and MULTIPLESELECT answers.

use std::{borrow::Cow, cmp::Ordering};

use super::{answer_key::AnswerKey, table_builder::TableBuilder};

/// Appends a row for each chosen option. Labels and indexes are paired only if both lists have the same length;
/// otherwise the longer list alone fills the rows.
pub(super) fn append_choices(table: &mut TableBuilder, key: &AnswerKey, labels: &[Option<Cow<str>>], indexes: &[i64]) {
    let (labels, indexes) = match labels.len().cmp(&indexes.len()) {
        Ordering::Equal => (labels, indexes),
        Ordering::Greater => (labels, [].as_slice()),
        Ordering::Less => ([].as_slice(), indexes),
    };
    for index in 0..labels.len().max(indexes.len()) {
        if table.is_full() {
            return;
        }
        key.begin_row(table);
        table.bigint("choice_ordinal", Some(index as i64 + 1));
        table.bigint("selected_index", indexes.get(index).copied());
        table.text("label", labels.get(index).and_then(|label| label.as_deref()));
        table.end_row(key.record);
    }
}
