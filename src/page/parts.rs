//! The parts of a page, and a scan that finds them in one pass.

use std::{mem, ops::Range};

use crate::json::{Scanner, unescaped};

/// The name of the list of records.
pub const DATA: &str = "data";
/// The name of the page token.
const CURSOR: &str = "cursor";

/// The parts of a page. All ranges are in bytes of the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageParts {
    /// The range of the value of `cursor`; `None` if the page has no `cursor`.
    pub cursor: Option<Range<usize>>,
    /// The lists of records, in order.
    pub lists: Vec<RecordList>,
    /// `cursor` or `data` if the page has that member twice.
    pub duplicate: Option<&'static str>,
    pub(super) has_data: bool,
    /// True if a member `data` is no list of records.
    pub(super) has_other_data: bool,
}

/// A list of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordList {
    /// The list with its brackets.
    pub range: Range<usize>,
    /// The items, in order.
    pub records: Vec<PageRecord>,
}

/// A record of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRecord {
    /// The record without the whitespace around it.
    pub range: Range<usize>,
    /// True if the record is not JSON.
    pub is_broken: bool,
}

impl PageParts {
    /// Returns the records of all lists, in order.
    pub fn records(&self) -> impl Iterator<Item = &PageRecord> {
        self.lists.iter().flat_map(|list| &list.records)
    }

    /// Adds a member of the page. `range` is that of the member's value. `records` is `Some` if the member is a list of
    /// records.
    pub(super) fn add(&mut self, name: &str, range: Range<usize>, records: Option<Vec<PageRecord>>) {
        match name {
            CURSOR if self.cursor.replace(range.clone()).is_some() => self.duplicate = Some(CURSOR),
            DATA => {
                self.has_other_data |= records.is_none();
                if mem::replace(&mut self.has_data, true) {
                    self.duplicate = Some(DATA);
                }
            }
            _ => {}
        }
        if let Some(records) = records {
            self.lists.push(RecordList { range, records });
        }
    }
}

/// Parses a page in one pass. Calls `read_list` with the scanner at the opening bracket of each list of records.
/// `read_list` returns the records, or an empty vector if the caller does not need them. Returns `None` if the scanner
/// or `read_list` does not accept the text; another parser may still accept it.
pub(crate) fn scan<'a>(
    text: &'a str,
    lists: &[&str],
    mut read_list: impl FnMut(&mut Scanner<'a>) -> Option<Vec<PageRecord>>,
) -> Option<PageParts> {
    let (mut scanner, mut parts) = (Scanner::starting_at(text, mark_bytes(text)), PageParts::default());
    scanner.each_member(|scanner, name| {
        // A lone surrogate becomes U+FFFD, which no searched name contains.
        let name = unescaped(name).text;
        let start = scanner.position();
        let is_list = scanner.peek() == Some(b'[') && lists.contains(&&*name);
        let records = match is_list {
            true => Some(read_list(scanner)?),
            false => scanner.value().map(|_| None)?,
        };
        let end = start + text.get(start..scanner.position())?.trim_ascii_end().len();
        parts.add(&name, start..end, records);
        Some(())
    })?;
    scanner.is_at_end().then_some(parts)
}

/// Returns the number of bytes of the byte order marks at the start of a text.
pub(super) fn mark_bytes(text: &str) -> usize {
    text.len() - text.trim_start_matches('\u{feff}').len()
}
