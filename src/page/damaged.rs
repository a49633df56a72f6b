//! Takes a page apart of which some records are no JSON. The other records are read as if nothing were wrong.
//!
//! Everything outside of the records must be JSON, up to the last byte of the page. A page that was cut is refused. So
//! is a page whose end could lie inside a record: the records behind it would be lost.

use std::borrow::Cow;

use memchr::memchr2_iter;
use serde::de::IgnoredAny;

use super::parts::{DATA, PageParts, Record, scan};
use crate::json::Scanner;

/// Replaces a byte that is no UTF-8: a control character, which is no JSON either.
const MASK: u8 = 1;
/// The most broken records of a page whose end is found by what follows them.
const SEARCHES_MAX: usize = 64;
/// The most bytes that are examined to find those ends, as a multiple of the page.
const EFFORT_MAX: usize = 32;

/// Takes a page apart that is no JSON because of some of its records; `None` where it is not certain which they are.
pub(super) fn parse(body: &[u8]) -> Option<PageParts> {
    let text = masked(body)?;
    let mut search = Search { text: &text, effort: body.len().saturating_mul(EFFORT_MAX) };
    let parts = scan(&text, &[DATA], |scanner| {
        let (records, end) = search.list(scanner.at())?;
        scanner.go_to(end);
        Some(records)
    })?;
    let (Some(cursor), [list], None) = (&parts.cursor, parts.lists.as_slice(), parts.duplicate) else { return None };
    // A page that was cut inside a record can look as if that were the end. Behind a list that comes first stands the
    // page token.
    let is_closed = |record: &Record| !record.is_broken || closed(&text, record.place.start) == Some(record.place.end);
    let is_sure = cursor.start > list.place.end || list.records.iter().all(is_closed);
    is_sure.then_some(parts)
}

/// The text of a page, with [`MASK`] for each byte that is no UTF-8.
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

struct Search<'a> {
    text: &'a str,
    /// Bytes that may still be examined.
    effort: usize,
}

/// What follows a record.
enum Behind {
    /// Another record, which begins here.
    Record(usize),
    /// The end of the list. The rest of the page begins here.
    Rest(usize),
}

impl Search<'_> {
    /// The records of the list that begins here, and where it ends.
    fn list(&mut self, start: usize) -> Option<(Vec<Record>, usize)> {
        if self.byte(start)? != b'[' {
            return None;
        }
        let first = self.skip_spaces(start + 1);
        match self.byte(first)? {
            b']' => Some((Vec::new(), first + 1)),
            _ => self.records(first, 0),
        }
    }

    /// The records from here on, and the end of the list.
    fn records(&mut self, mut at: usize, searches: usize) -> Option<(Vec<Record>, usize)> {
        let mut records = Vec::new();
        loop {
            let (end, behind, is_broken) = match self.json(at).and_then(|end| Some((end, self.behind(end)?))) {
                Some((end, behind)) => (end, behind, false),
                None => match self.closed(at).and_then(|end| Some((end, self.behind_broken(end)?))) {
                    Some((end, behind)) => (end, behind, true),
                    None => return self.searched(at, records, searches),
                },
            };
            records.push(Record { place: at..end, is_broken });
            match behind {
                Behind::Record(next) => at = next,
                Behind::Rest(rest) => return self.is_rest(rest).then_some((records, rest)),
            }
        }
    }

    /// The same if the record that begins here is broken and its brackets do not tell its end: it ends before the next
    /// text that can be read.
    fn searched(&mut self, at: usize, mut records: Vec<Record>, searches: usize) -> Option<(Vec<Record>, usize)> {
        if searches >= SEARCHES_MAX {
            return None;
        }
        let text = self.text;
        for end in memchr2_iter(b',', b']', text.as_bytes().get(at..)?).map(|found| at + found) {
            self.spend(1)?;
            let found = match self.behind(end)? {
                Behind::Rest(rest) => self.is_rest(rest).then(|| (Vec::new(), rest)),
                Behind::Record(next) if self.byte(next) == Some(b'{') && self.json(next).is_some() => {
                    self.records(next, searches + 1)
                }
                Behind::Record(_) => None,
            };
            if let Some((behind, list_end)) = found {
                let end = at + text.get(at..end)?.trim_end().len();
                records.push(Record { place: at..end, is_broken: true });
                records.extend(behind);
                return Some((records, list_end));
            }
        }
        None
    }

    /// The end of the value that begins here, if it is JSON.
    fn json(&mut self, at: usize) -> Option<usize> {
        let mut scanner = Scanner::starting_at(self.text, at);
        let is_read = scanner.value().is_some();
        let (end, read) = (scanner.at(), scanner.at().saturating_sub(at));
        self.spend(read)?;
        if is_read {
            return Some(end);
        }
        // The scanner refuses deep nesting, which serde_json reads.
        self.spend(read)?;
        let mut values = serde_json::Deserializer::from_str(self.text.get(at..)?).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        Some(at + values.byte_offset())
    }

    /// The end of the container that begins here, by its brackets alone; what is in its texts does not count.
    fn closed(&mut self, at: usize) -> Option<usize> {
        let end = closed(self.text, at);
        self.spend(end.unwrap_or(self.text.len()).saturating_sub(at))?;
        end
    }

    /// What follows the record that ends here.
    fn behind(&self, end: usize) -> Option<Behind> {
        let at = self.skip_spaces(end);
        match self.byte(at)? {
            b',' => Some(Behind::Record(self.skip_spaces(at + 1))),
            b']' => Some(Behind::Rest(at + 1)),
            _ => None,
        }
    }

    /// What follows a record that ends by its brackets alone: it must be another object, or the rest of the page.
    fn behind_broken(&mut self, end: usize) -> Option<Behind> {
        let behind = self.behind(end)?;
        let is_likely = match behind {
            Behind::Record(next) => self.byte(next) == Some(b'{'),
            Behind::Rest(rest) => self.is_rest(rest),
        };
        is_likely.then_some(behind)
    }

    /// Whether this is the rest of a page, from behind its list on.
    fn is_rest(&mut self, at: usize) -> bool {
        let mut scanner = Scanner::starting_at(self.text, at);
        let is_rest = scanner.rest_of_object().is_some() && scanner.is_at_end();
        self.spend(scanner.at().saturating_sub(at)).is_some() && is_rest
    }

    /// Counts examined bytes; `None` if they were too many.
    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.effort = self.effort.checked_sub(bytes)?;
        Some(())
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn skip_spaces(&self, at: usize) -> usize {
        Scanner::starting_at(self.text, at).at()
    }
}

/// The end of the container that begins here, by its brackets alone; what is in its texts does not count.
fn closed(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut open, mut place) = (Vec::new(), at);
    loop {
        match *bytes.get(place)? {
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            close @ (b'}' | b']') if open.pop() != Some(close) => return None,
            b'"' => {
                place += 1;
                while *bytes.get(place)? != b'"' {
                    place += if bytes.get(place) == Some(&b'\\') { 2 } else { 1 };
                }
            }
            _ => {}
        }
        place += 1;
        if open.is_empty() {
            return (place > at + 1).then_some(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::shown;
    use proptest::{prelude::*, sample::select};

    /// Records that are no JSON.
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
        // Not closed.
        b"{\"a\":1,\"b\":\"tex",
        b"{\"a\":1,\"b\":[1,2",
        b"{\"a\":1,\"b\":{\"c\":",
        b"{\"a\":\"a \"quote\", and more\"}",
    ];

    fn parts(body: &[u8]) -> Option<Vec<(Vec<u8>, bool)>> {
        let page = parse(body)?;
        Some(page.records().map(|record| (body[record.place.clone()].to_vec(), record.is_broken)).collect())
    }

    fn page(records: &[&[u8]]) -> Vec<u8> {
        [b"{\"data\": [".as_slice(), &records.join(b",".as_slice()), b"], \"cursor\": \"x\"}\n"].concat()
    }

    #[test]
    fn p1_a_broken_record_stands_alone_wherever_it_is() {
        let good: &[u8] = br#"{"a":"}],{","b":[{"c":null},{"d":"\u00e9"}]}"#;
        for broken in BROKEN {
            for at in 0..3 {
                let mut records = vec![good; 2];
                records.insert(at, broken);
                let expected = records.iter().map(|record| (record.to_vec(), *record == broken)).collect();
                let shown = String::from_utf8_lossy(broken);
                assert_eq!(parts(&page(&records)), Some(expected), "{shown} at {at}");
            }
            assert_eq!(parts(&page(&[broken])), Some(vec![(broken.to_vec(), true)]));
        }
    }

    #[test]
    fn p3_a_page_that_was_cut_is_not_taken_apart() {
        let records: Vec<&[u8]> = vec![
            br#"{"a":[1,2],"b":"x"}"#,
            br#"{"a":{"b":[3]},"c":[{"d":[]}]}"#,
            b"{\"a\":NaN,\"b\":[[1],[2]]}",
            br#"{"e":[{"f":1}]}"#,
        ];
        let list = records.join(b",".as_slice());
        for whole in [
            [b"{\"cursor\":null,\"data\":[".as_slice(), &list, b"]}"].concat(),
            [b"{\"data\":[".as_slice(), &list, b"],\"cursor\":null}"].concat(),
        ] {
            assert_eq!(parts(&whole).unwrap().len(), 4);
            for end in 0..whole.len() {
                assert_eq!(parts(&whole[..end]), None, "{}", String::from_utf8_lossy(&whole[..end]));
            }
        }
        // The end could be that of the record.
        assert_eq!(parts(br#"{"cursor":null,"data":[{"a":1},{"b":[1,2]}"#), None);
        // Without a token nobody knows whether this is all.
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
    fn p8_a_page_that_means_harm_costs_little() {
        for harm in
            [b"{,{".repeat(100_000), b"[{\"a\":".repeat(100_000), b"{},".repeat(200_000), b"],[".repeat(100_000)]
        {
            let body = [b"{\"data\":[{\"a\":NaN,".as_slice(), &harm, b"\"b\":,],\"cursor\":1,}"].concat();
            assert_eq!(parts(&body), None);
        }
        assert_eq!(
            parts("\u{feff}{\"data\":[{\"a\":NaN}],\"cursor\":1}".as_bytes()),
            Some(vec![(b"{\"a\":NaN}".to_vec(), true)])
        );
        assert_eq!(shown(b"caf\xe9 \xf0\x9f\x98\x80\xff"), "caf\\xe9 \u{1f600}\\xff");
    }

    proptest! {
        #[test]
        fn p1_good_records_around_broken_ones_are_found(records in proptest::collection::vec(
            prop_oneof![
                3 => select(vec![br#"{"a":1}"#.to_vec(), br#"{"b":[{},{"c":"],{"}]}"#.to_vec(), "{\"é\":{}}".as_bytes().to_vec()]),
                // Their brackets tell where they end.
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
