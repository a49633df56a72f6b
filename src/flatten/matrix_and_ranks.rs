//! `response_matrix_cells` and `response_ranks`: answers that are objects from a label to a value.
//!
//! A label that was sent twice has one row, with the last value sent. `answer_json` contains both values.

use std::{borrow::Cow, collections::HashSet};

use super::{
    answer_key::AnswerKey,
    field_drift::{AnswerDrift, FieldDrift},
    scalar::text_or_json,
    table_builder::TableBuilder,
};
use crate::json::{self, Entry};

/// A member of an object that maps labels to values.
#[derive(Debug)]
pub(super) struct LabelledValue<'a> {
    /// Index of the member in its object, from 0.
    pub index: usize,
    /// The decoded name.
    pub label: Cow<'a, str>,
    /// The exact text of the value.
    pub value: &'a str,
}

/// Appends a row for each row of a MATRIX answer. Returns true if no row of the matrix has an answer. If the chosen
/// column is not a text, `column_label` is its JSON.
pub(super) fn append_matrix_cells(table: &mut TableBuilder, key: &AnswerKey, entries: &[Entry]) -> bool {
    for LabelledValue { index, label, value } in labelled_values(entries) {
        if table.is_full() {
            break;
        }
        let column_label = text_or_json(value);
        key.begin_row(table);
        table.text("row_label", Some(&label));
        table.bigint("row_ordinal", Some(index as i64 + 1));
        table.text("column_label", column_label.as_deref());
        table.bigint("column_number", column_label.as_deref().and_then(leading_integer));
        table.end_row(key.record);
    }
    entries.iter().all(|entry| entry.value == "null")
}

/// Appends a row for each option of a RANKORDER answer. Returns true if no option has a rank. A rank that is no integer
/// becomes NULL and is drift.
pub(super) fn append_ranks<'a>(
    table: &mut TableBuilder,
    key: &AnswerKey,
    entries: &[Entry<'a>],
    drift: &mut Vec<AnswerDrift<'a>>,
) -> bool {
    for LabelledValue { label, value, .. } in labelled_values(entries) {
        if table.is_full() {
            break;
        }
        key.begin_row(table);
        table.text("option_label", Some(&label));
        let rank = json::read_integer(value);
        if rank.is_none() && value != "null" {
            drift.push(("", FieldDrift::type_clash("response[]", value)));
        }
        table.bigint("rank", rank);
        table.end_row(key.record);
    }
    entries.iter().all(|entry| entry.value == "null")
}

/// Returns the members of an object in the order sent. Of members with the same name only the last one is returned.
pub(super) fn labelled_values<'a>(entries: &[Entry<'a>]) -> Vec<LabelledValue<'a>> {
    let labelled = |(index, entry): (usize, &Entry<'a>)| LabelledValue {
        index,
        label: json::unescaped(entry.key).text,
        value: entry.value,
    };
    let mut values: Vec<_> = entries.iter().enumerate().map(labelled).collect();
    if has_duplicates(&values) {
        let mut later = HashSet::new();
        values.reverse();
        values.retain(|value| later.insert(value.label.clone()));
        values.reverse();
    }
    values
}

/// Returns true if two members have the same label.
fn has_duplicates(values: &[LabelledValue]) -> bool {
    /// Up to this many labels, comparing each pair is cheaper than hashing.
    const PAIRWISE_MAX: usize = 12;
    let labels = || values.iter().map(|value| value.label.as_ref());
    if values.len() <= PAIRWISE_MAX {
        return labels().enumerate().any(|(index, label)| labels().take(index).any(|earlier| earlier == label));
    }
    let mut seen = HashSet::with_capacity(values.len());
    !labels().all(|label| seen.insert(label))
}

/// Returns the integer at the start of a label: 4 of `4 - Agree`, 10 of `10`, -2 of `-2 (worse)`. Returns `None` if the
/// label starts with another kind of number (`4.5`, `1,000`).
fn leading_integer(label: &str) -> Option<i64> {
    let label = label.trim_start();
    let unsigned = label.strip_prefix(['-', '+']).unwrap_or(label);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let (_, rest) = unsigned.split_at_checked(digits)?;
    if digits == 0
        || rest.strip_prefix(['.', ',']).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()))
    {
        return None;
    }
    label.get(..label.len() - rest.len())?.parse().ok()
}

#[cfg(test)]
mod tests;
