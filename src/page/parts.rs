//! The parts of a page, and the one pass that finds them.

use std::{mem, ops::Range};

use crate::json::{Scanner, unescaped};

/// The list of records that a service sends.
pub const DATA: &str = "data";
/// The page token.
const CURSOR: &str = "cursor";

/// The parts of a page. All places are in bytes of the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageParts {
    /// The value of `cursor`.
    pub cursor: Option<Range<usize>>,
    /// The lists of records, in order.
    pub lists: Vec<List>,
    /// A member that occurs twice and must not: `cursor` or `data`.
    pub duplicate: Option<&'static str>,
    pub(super) has_data: bool,
    pub(super) is_data_no_list: bool,
}

/// A list of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The list with its brackets.
    pub place: Range<usize>,
    /// Its items, in order.
    pub records: Vec<Record>,
}

/// An item of such a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record without the space around it.
    pub place: Range<usize>,
    /// Whether the record is no JSON.
    pub is_broken: bool,
}

impl PageParts {
    /// The records of all lists, in order.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.lists.iter().flat_map(|list| &list.records)
    }

    /// Adds a member of the page; `records` if it is one of the lists.
    pub(super) fn add(&mut self, name: &str, place: Range<usize>, records: Option<Vec<Record>>) {
        match name {
            CURSOR if self.cursor.replace(place.clone()).is_some() => self.duplicate = Some(CURSOR),
            DATA => {
                self.is_data_no_list |= records.is_none();
                if mem::replace(&mut self.has_data, true) {
                    self.duplicate = Some(DATA);
                }
            }
            _ => {}
        }
        if let Some(records) = records {
            self.lists.push(List { place, records });
        }
    }
}

/// Takes a page apart in one pass. `read_list` reads each list of records, with the scanner at its bracket, and returns
/// the places of the records if somebody needs them. `None` if the scanner or `read_list` does not accept the text,
/// which may be a page all the same.
pub(crate) fn scan<'a>(
    text: &'a str,
    lists: &[&str],
    mut read_list: impl FnMut(&mut Scanner<'a>) -> Option<Vec<Record>>,
) -> Option<PageParts> {
    let (mut scanner, mut parts) = (Scanner::starting_at(text, mark_bytes(text)), PageParts::default());
    scanner.each_member(|scanner, name| {
        // Half of a surrogate pair becomes U+FFFD, and no name of a member that is looked for.
        let name = unescaped(name).text;
        let start = scanner.at();
        let is_list = scanner.peek() == Some(b'[') && lists.contains(&&*name);
        let records = match is_list {
            true => Some(read_list(scanner)?),
            false => scanner.value().map(|_| None)?,
        };
        let end = start + text.get(start..scanner.at())?.trim_ascii_end().len();
        parts.add(&name, start..end, records);
        Some(())
    })?;
    scanner.is_at_end().then_some(parts)
}

/// Bytes of the byte order marks before a text.
pub(super) fn mark_bytes(text: &str) -> usize {
    text.len() - text.trim_start_matches('\u{feff}').len()
}
