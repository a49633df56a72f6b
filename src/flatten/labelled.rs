//! `response_matrix_cells` and `response_ranks`: answers that are objects from a label to a value.
//!
//! A label that was sent twice has one row, that of its last value; `answer_json` has both.

use std::{borrow::Cow, collections::HashSet};

use arrow::error::ArrowError;

use super::{answer_key::AnswerKey, met::Met, scalar::label, table_builder::TableBuilder};
use crate::{
    json::{self, Entry},
    model::TableBatch,
};

/// The rows of MATRIX answers.
#[derive(Debug)]
pub(super) struct MatrixCells {
    table: TableBuilder,
}

impl MatrixCells {
    pub(super) fn new() -> Result<Self, ArrowError> {
        Ok(Self { table: TableBuilder::new("response_matrix_cells", 0)? })
    }

    /// Appends a row for each row of the matrix. True if no row has an answer. A cell that is no text has its JSON as
    /// its label.
    pub(super) fn append(&mut self, key: &AnswerKey, entries: &[Entry]) -> bool {
        for (at, (name, value)) in labelled(entries) {
            if self.table.is_full() {
                break;
            }
            let column_label = label(value);
            key.begin_row(&mut self.table);
            self.table.text("row_label", Some(&name));
            self.table.bigint("row_ordinal", Some(at as i64 + 1));
            self.table.text("column_label", column_label.as_deref());
            self.table.bigint("column_number", column_label.as_deref().and_then(leading_integer));
            self.table.end_row(key.record);
        }
        entries.iter().all(|entry| entry.value == "null")
    }

    pub(super) fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        self.table.finish_into(batches)
    }
}

/// The rows of RANKORDER answers.
#[derive(Debug)]
pub(super) struct Ranks {
    table: TableBuilder,
}

impl Ranks {
    pub(super) fn new() -> Result<Self, ArrowError> {
        Ok(Self { table: TableBuilder::new("response_ranks", 0)? })
    }

    /// Appends a row for each option. True if no option has a rank. A rank that is no integer is NULL, and drift.
    pub(super) fn append<'a>(
        &mut self,
        key: &AnswerKey,
        entries: &[Entry<'a>],
        drift: &mut Vec<(&'static str, Met<'a>)>,
    ) -> bool {
        for (_, (name, value)) in labelled(entries) {
            if self.table.is_full() {
                break;
            }
            key.begin_row(&mut self.table);
            self.table.text("option_label", Some(&name));
            let rank = json::read_integer(value);
            if rank.is_none() && value != "null" {
                drift.push(("", Met::clash("response[]", value)));
            }
            self.table.bigint("rank", rank);
            self.table.end_row(key.record);
        }
        entries.iter().all(|entry| entry.value == "null")
    }

    pub(super) fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        self.table.finish_into(batches)
    }
}

/// The members of an object by decoded name, each name once with its last value, in the order sent and with their
/// places, from 0.
pub(super) fn labelled<'a>(entries: &[Entry<'a>]) -> Vec<(usize, (Cow<'a, str>, &'a str))> {
    let mut members: Vec<_> =
        entries.iter().map(|entry| (json::unescaped(entry.key).text, entry.value)).enumerate().collect();
    if has_duplicates(&members) {
        let mut later = HashSet::new();
        members.reverse();
        members.retain(|(_, (name, _))| later.insert(name.clone()));
        members.reverse();
    }
    members
}

fn has_duplicates(members: &[(usize, (Cow<str>, &str))]) -> bool {
    /// Up to so many names, comparing each with each is cheaper than hashing them.
    const COMPARED_MAX: usize = 12;
    let names = || members.iter().map(|(_, (name, _))| name.as_ref());
    if members.len() <= COMPARED_MAX {
        return names().enumerate().any(|(at, name)| names().take(at).any(|earlier| earlier == name));
    }
    let mut seen = HashSet::with_capacity(members.len());
    !names().all(|name| seen.insert(name))
}

/// The integer that a label begins with: 4 of `4 - Agree`, 10 of `10`, -2 of `-2 (worse)`. A label that begins with a
/// number that is no integer (`4.5`, `1,000`) has none.
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
