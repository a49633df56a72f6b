//! Parses a page of which some records are not JSON. All records that are JSON are read as usual.
//!
//! Everything outside of the records must be JSON, up to the last byte of the page. A page that was cut off is refused.
//! A page is also refused if the apparent end of its list could be text inside a broken record: the page may have been
//! cut off there, and later records would be lost.

use std::borrow::Cow;

use memchr::memchr2_iter;
use serde::de::IgnoredAny;

use super::parts::{DATA, PageParts, PageRecord, scan};
use crate::json::Scanner;

/// Replaces a byte that is not UTF-8. The mask is a control character, so the record stays invalid JSON.
const MASK: u8 = 1;
/// Maximum broken records of a page for which the end of the record is found by searching for the next record.
const SEARCHES_MAX: usize = 64;
/// Maximum bytes that are examined to find the ends of records, as a multiple of the bytes of the page.
const EXAMINED_PAGES_MAX: usize = 32;

/// Parses a page with records that are not JSON. Returns `None` if the ends of these records are not certain, if the
/// page lacks `cursor` or has no single list `data`, or if anything outside of the list is not JSON.
pub(super) fn parse(body: &[u8]) -> Option<PageParts> {
    let text = masked(body)?;
    let mut finder = RecordFinder { text: &text, bytes_left: body.len().saturating_mul(EXAMINED_PAGES_MAX) };
    let parts = scan(&text, &[DATA], |scanner| {
        let (records, end) = finder.list(scanner.position())?;
        scanner.go_to(end);
        Some(records)
    })?;
    let (Some(cursor), [list], None) = (&parts.cursor, parts.lists.as_slice(), parts.duplicate) else { return None };
    // If the page token comes before the list, a page that was cut inside a record can look complete. So each broken
    // record must end at its closing bracket.
    let is_closed =
        |record: &PageRecord| !record.is_broken || container_end(&text, record.range.start) == Some(record.range.end);
    let is_certain = cursor.start > list.range.end || list.records.iter().all(is_closed);
    is_certain.then_some(parts)
}

/// Returns the text of a page, with [`MASK`] for each byte that is not UTF-8.
fn masked(body: &[u8]) -> Option<Cow<'_, str>> {
    if let Ok(text) = std::str::from_utf8(body) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        bytes.extend_from_slice(chunk.valid().as_bytes());
        bytes.resize(bytes.len() + chunk.invalid().len(), MASK);
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Finds the ends of records. A method returns `None` if the end is not certain, or if too many bytes were examined.
struct RecordFinder<'a> {
    text: &'a str,
    /// Bytes that may still be examined.
    bytes_left: usize,
}

/// The part of a page after a record.
enum AfterRecord {
    /// Another record, which begins at this position.
    Record(usize),
    /// The end of the list. The rest of the page begins at this position.
    RestOfPage(usize),
}

impl RecordFinder<'_> {
    /// Returns the records of the list that begins at `start`, and the position after its `]`. `None` if no list begins
    /// there, or if the list cannot be read with certainty.
    fn list(&mut self, start: usize) -> Option<(Vec<PageRecord>, usize)> {
        if self.byte(start)? != b'[' {
            return None;
        }
        let first = self.skip_spaces(start + 1);
        match self.byte(first)? {
            b']' => Some((Vec::new(), first + 1)),
            _ => self.records(first, 0),
        }
    }

    /// Returns the records from `start` on, and the end of the list. `searches` is the number of calls of
    /// [`Self::records_by_search`] so far.
    fn records(&mut self, mut start: usize, searches: usize) -> Option<(Vec<PageRecord>, usize)> {
        let mut records = Vec::new();
        loop {
            let json = self.json_end(start).and_then(|end| Some((end, self.after_record(end)?)));
            let is_broken = json.is_none();
            let closed = json.or_else(|| {
                let end = self.container_end(start)?;
                Some((end, self.after_broken_record(end)?))
            });
            let Some((end, after)) = closed else { return self.records_by_search(start, records, searches) };
            records.push(PageRecord { range: start..end, is_broken });
            match after {
                AfterRecord::Record(next) => start = next,
                AfterRecord::RestOfPage(rest) => return self.is_rest_of_page(rest).then_some((records, rest)),
            }
        }
    }

    /// Returns `records`, which are the records before `start`, followed by the records from `start` on; and the end of
    /// the list. The record at `start` is broken, and its brackets do not show its end. It ends at the first comma or
    /// `]` after which the rest of the list and of the page can be read. The record after the comma must be a JSON
    /// object.
    fn records_by_search(
        &mut self,
        start: usize,
        mut records: Vec<PageRecord>,
        searches: usize,
    ) -> Option<(Vec<PageRecord>, usize)> {
        if searches >= SEARCHES_MAX {
            return None;
        }
        let text = self.text;
        for end in memchr2_iter(b',', b']', text.as_bytes().get(start..)?).map(|offset| start + offset) {
            self.count_examined(1)?;
            let following = match self.after_record(end)? {
                AfterRecord::RestOfPage(rest) => self.is_rest_of_page(rest).then(|| (Vec::new(), rest)),
                AfterRecord::Record(next) if self.byte(next) == Some(b'{') && self.json_end(next).is_some() => {
                    self.records(next, searches + 1)
                }
                AfterRecord::Record(_) => None,
            };
            if let Some((following, list_end)) = following {
                let end = start + text.get(start..end)?.trim_end().len();
                records.push(PageRecord { range: start..end, is_broken: true });
                records.extend(following);
                return Some((records, list_end));
            }
        }
        None
    }

    /// Returns the end of the value at `start` if the value is JSON.
    fn json_end(&mut self, start: usize) -> Option<usize> {
        let mut scanner = Scanner::starting_at(self.text, start);
        let is_json = scanner.value().is_some();
        let end = scanner.position();
        self.count_examined(end.saturating_sub(start))?;
        if is_json {
            return Some(end);
        }
        // The scanner refuses deep nesting, which serde_json reads.
        self.count_examined(end.saturating_sub(start))?;
        let mut values = serde_json::Deserializer::from_str(self.text.get(start..)?).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        Some(start + values.byte_offset())
    }

    /// Calls [`container_end`] and counts the examined bytes.
    fn container_end(&mut self, start: usize) -> Option<usize> {
        let end = container_end(self.text, start);
        self.count_examined(end.unwrap_or(self.text.len()).saturating_sub(start))?;
        end
    }

    /// Returns what follows a record that ends at `end`.
    fn after_record(&self, end: usize) -> Option<AfterRecord> {
        let position = self.skip_spaces(end);
        match self.byte(position)? {
            b',' => Some(AfterRecord::Record(self.skip_spaces(position + 1))),
            b']' => Some(AfterRecord::RestOfPage(position + 1)),
            _ => None,
        }
    }

    /// Returns what follows a broken record whose closing bracket is before `end`: an object or the rest of the page.
    /// `None` if neither follows, because the end of the record is then uncertain.
    fn after_broken_record(&mut self, end: usize) -> Option<AfterRecord> {
        let after = self.after_record(end)?;
        let is_certain = match after {
            AfterRecord::Record(next) => self.byte(next) == Some(b'{'),
            AfterRecord::RestOfPage(rest) => self.is_rest_of_page(rest),
        };
        is_certain.then_some(after)
    }

    /// Returns true if the text from `start` on is the rest of a page after its list.
    fn is_rest_of_page(&mut self, start: usize) -> bool {
        let mut scanner = Scanner::starting_at(self.text, start);
        let is_rest = scanner.rest_of_object().is_some() && scanner.is_at_end();
        self.count_examined(scanner.position().saturating_sub(start)).is_some() && is_rest
    }

    /// Counts examined bytes. Returns `None` if they exceed the limit.
    fn count_examined(&mut self, bytes: usize) -> Option<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes)?;
        Some(())
    }

    fn byte(&self, position: usize) -> Option<u8> {
        self.text.as_bytes().get(position).copied()
    }

    fn skip_spaces(&self, position: usize) -> usize {
        Scanner::starting_at(self.text, position).position()
    }
}

/// Returns the end of the list, object or string at `start`, found by its brackets and quotes alone. Brackets inside
/// strings do not count. `None` for another value, if the brackets do not match, or if the text ends before.
fn container_end(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut open, mut position) = (Vec::new(), start);
    loop {
        match *bytes.get(position)? {
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            close @ (b'}' | b']') if open.pop() != Some(close) => return None,
            b'"' => {
                position += 1;
                while *bytes.get(position)? != b'"' {
                    position += if bytes.get(position) == Some(&b'\\') { 2 } else { 1 };
                }
            }
            _ => {}
        }
        position += 1;
        if open.is_empty() {
            return (position > start + 1).then_some(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::escape_invalid_utf8;
    use proptest::{prelude::*, sample::select};

    /// Records that are not JSON.
    const BROKEN: [&[u8]; 16] = [
        b"{\"a\":NaN}",
        b"{\"a\":Infinity,\"list\":[{\"x\":1},{\"y\":2},3]}",
        b"{\"a\":\"two\nlines\"}",
        b"{\"a\":\"a \x01 bell\"}",
        b"{\"a\":\"caf\xe9\"}",
        b"{\"a\":\"\xff},{\"}",
        b"{\"a\":\"bad \\x escape\"}",
        b"{\"a\":1,}",
        b"{\"a\":01}",
        b"{'a':1}",
        b"{a:[1,{\"b\":2}]}",
        b"{\"a\":undefined,\"b\":{\"c\":[]}}",
        // Brackets are not closed.
        b"{\"a\":1,\"b\":\"tex",
        b"{\"a\":1,\"b\":[1,2",
        b"{\"a\":1,\"b\":{\"c\":",
        b"{\"a\":\"a \"quote\", and more\"}",
    ];

    fn parts(body: &[u8]) -> Option<Vec<(Vec<u8>, bool)>> {
        let page = parse(body)?;
        Some(page.records().map(|record| (body[record.range.clone()].to_vec(), record.is_broken)).collect())
    }

    fn page(records: &[&[u8]]) -> Vec<u8> {
        [b"{\"data\": [".as_slice(), &records.join(b",".as_slice()), b"], \"cursor\": \"x\"}\n"].concat()
    }

    #[test]
    fn p1_a_broken_record_does_not_affect_its_neighbours() {
        let good: &[u8] = br#"{"a":"}],{","b":[{"c":null},{"d":"\u00e9"}]}"#;
        for broken in BROKEN {
            for at in 0..3 {
                let mut records = vec![good; 2];
                records.insert(at, broken);
                let expected = records.iter().map(|record| (record.to_vec(), *record == broken)).collect();
                let text = String::from_utf8_lossy(broken);
                assert_eq!(parts(&page(&records)), Some(expected), "{text} at {at}");
            }
            assert_eq!(parts(&page(&[broken])), Some(vec![(broken.to_vec(), true)]));
        }
    }

    #[test]
    fn p3_a_page_that_was_cut_off_is_refused() {
        let records: Vec<&[u8]> = vec![
            br#"{"a":[1,2],"b":"x"}"#,
            br#"{"a":{"b":[3]},"c":[{"d":[]}]}"#,
            b"{\"a\":NaN,\"b\":[[1],[2]]}",
            br#"{"e":[{"f":1}]}"#,
        ];
        let list = records.join(b",".as_slice());
        for page in [
            [b"{\"cursor\":null,\"data\":[".as_slice(), &list, b"]}"].concat(),
            [b"{\"data\":[".as_slice(), &list, b"],\"cursor\":null}"].concat(),
        ] {
            assert_eq!(parts(&page).unwrap().len(), 4);
            for end in 0..page.len() {
                assert_eq!(parts(&page[..end]), None, "{}", String::from_utf8_lossy(&page[..end]));
            }
        }
        // The last bracket could close the record instead of the page.
        assert_eq!(parts(br#"{"cursor":null,"data":[{"a":1},{"b":[1,2]}"#), None);
        // Without a token the page may have been cut off.
        assert_eq!(parts(b"{\"data\":[{\"a\":NaN}]}"), None);
        for broken_elsewhere in [
            b"{\"data\":[{\"a\":NaN}],\"cursor\":NaN}".as_slice(),
            b"{\"data\":[{\"a\":NaN}],\"cursor\":null,\"cursor\":null}",
            b"{\"data\":[{\"a\":NaN}],\"data\":[],\"cursor\":null}",
            b"{\"data\":{\"a\":NaN},\"cursor\":null}",
            b"[{\"a\":NaN}]",
            b"",
            b"\xff",
        ] {
            assert_eq!(parts(broken_elsewhere), None, "{}", String::from_utf8_lossy(broken_elsewhere));
        }
    }

    #[test]
    fn p8_a_hostile_page_costs_little() {
        for hostile in
            [b"{,{".repeat(100_000), b"[{\"a\":".repeat(100_000), b"{},".repeat(200_000), b"],[".repeat(100_000)]
        {
            let body = [b"{\"data\":[{\"a\":NaN,".as_slice(), &hostile, b"\"b\":,],\"cursor\":1,}"].concat();
            assert_eq!(parts(&body), None);
        }
        assert_eq!(
            parts("\u{feff}{\"data\":[{\"a\":NaN}],\"cursor\":1}".as_bytes()),
            Some(vec![(b"{\"a\":NaN}".to_vec(), true)])
        );
        assert_eq!(escape_invalid_utf8(b"caf\xe9 \xf0\x9f\x98\x80\xff"), "caf\\xe9 \u{1f600}\\xff");
    }

    proptest! {
        #[test]
        fn p1_good_records_around_broken_ones_are_found(records in proptest::collection::vec(
            prop_oneof![
                3 => select(vec![br#"{"a":1}"#.to_vec(), br#"{"b":[{},{"c":"],{"}]}"#.to_vec(), "{\"é\":{}}".as_bytes().to_vec()]),
                // The brackets of these records show their ends.
                1 => select(BROKEN[..12].iter().map(|broken| broken.to_vec()).collect::<Vec<_>>()),
            ],
            1..20,
        )) {
            let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            let is_broken = |record: &[u8]| serde_json::from_slice::<serde_json::Value>(record).is_err();
            let expected: Vec<_> = records.iter().map(|record| (record.clone(), is_broken(record))).collect();
            prop_assert_eq!(parts(&page(&slices)), Some(expected));
        }
    }
}
