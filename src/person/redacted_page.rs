//! Removes records from a page, with the commas that would be left over. All other bytes of the page stay.

use std::ops::Range;

use super::text_of_bytes;
use crate::page::{DATA, PageParts, PageRecord, RecordList};

/// A page from which records were removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedPage {
    pub body: Vec<u8>,
    /// Number of removed records; at least 1.
    pub removed: u32,
}

/// The members of a page that contain records: the service's list, and the lists of users that were requested but not
/// returned. In the lists `absent` and `refused`, a record may be a bare user id.
const LISTS: [&str; 3] = [DATA, "absent", "refused"];

/// Removes the records for which `is_removed` returns true. Returns `None` if no record is removed, or if the body is
/// not a page. A bare user id is passed to `is_removed` as a record with the member `userId`.
pub fn remove_records(body: &[u8], mut is_removed: impl FnMut(&str) -> bool) -> Option<RedactedPage> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut removed = 0;
    for RecordList { records, .. } in PageParts::parse(body, &LISTS).ok()?.lists {
        let flags: Vec<bool> = records
            .iter()
            .map(|record| match &*text_of_bytes(body.get(record.range.clone()).unwrap_or_default()) {
                user_id if user_id.starts_with('"') => is_removed(&format!("{{\"userId\":{user_id}}}")),
                record => is_removed(record),
            })
            .collect();
        removed += flags.iter().filter(|is_removed| **is_removed).count();
        ranges.extend(cuts(&records, &flags));
    }
    if removed == 0 {
        return None;
    }
    let (mut redacted, mut done) = (Vec::with_capacity(body.len()), 0);
    for cut in ranges {
        redacted.extend_from_slice(body.get(done..cut.start).unwrap_or_default());
        done = cut.end;
    }
    redacted.extend_from_slice(body.get(done..).unwrap_or_default());
    Some(RedactedPage { body: redacted, removed: u32::try_from(removed).unwrap_or(u32::MAX) })
}

/// Returns the ranges of a list to cut out so that the rest is a valid list. A removed record loses the comma after it;
/// removed records at the end of the list lose the comma before them. `flags` says for each record whether it is
/// removed.
fn cuts(records: &[PageRecord], flags: &[bool]) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let mut last_kept_end = None;
    let mut open: Option<usize> = None;
    for (record, is_removed) in records.iter().zip(flags) {
        match (*is_removed, open) {
            (true, None) => open = Some(record.range.start),
            (false, Some(start)) => {
                cuts.push(start..record.range.start);
                open = None;
            }
            _ => {}
        }
        if !is_removed {
            last_kept_end = Some(record.range.end);
        }
    }
    if let (Some(start), Some(last)) = (open, records.last()) {
        cuts.push(last_kept_end.unwrap_or(start)..last.range.end);
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn without(body: &str, gone: &str) -> Option<(String, u32)> {
        let redacted = remove_records(body.as_bytes(), |record| record.contains(gone))?;
        Some((String::from_utf8(redacted.body).unwrap(), redacted.removed))
    }

    #[test]
    fn p9_the_other_bytes_of_a_page_stay() {
        let page = |data: &str| format!("{{ \"cursor\": \"x\\u0041\", \"data\": [{data}] }}\n");
        let page2 = |data: &str| format!("{{ \"data\": [{data}], \"cursor\": \"x\" }}");
        for (data, rest, removed) in [
            ("{\"a\":1}, {\"b\":2} ,\n{\"c\":3}", "{\"a\":1}, {\"c\":3}", 1),
            ("{\"b\":1}, {\"a\":2}", "{\"a\":2}", 1),
            ("{\"a\":1}, {\"b\":2} ", "{\"a\":1} ", 1),
            (" {\"b\":1},{\"b\":2}", " ", 2),
            ("{\"b\":1},{\"a\":2},{\"b\":3},{\"b\":4}", "{\"a\":2}", 3),
        ] {
            assert_eq!(without(&page(data), "\"b\""), Some((page(rest), removed)), "{data}");
        }
        assert_eq!(without(&page("{\"a\":1}"), "\"b\""), None);
        let odd_name = r#"{"\ud800":1,"data":[{"b":1}],"cursor":null}"#;
        assert_eq!(without(odd_name, "\"b\""), Some((r#"{"\ud800":1,"data":[],"cursor":null}"#.to_owned(), 1)));
        let people = r#"{"data":[{"userId":"a"}],"absent":["b","c"],"refused":[{"userId":"b","status":400}]}"#;
        let rest = r#"{"data":[{"userId":"a"}],"absent":["c"],"refused":[]}"#;
        assert_eq!(without(people, "{\"userId\":\"b\""), Some((rest.to_owned(), 2)));
        for broken in ["{\"b\":NaN}", "{\"b\":\"a\nline\"}", "{\"b\":\"cut"] {
            assert_eq!(without(&page2(&format!("{{\"a\":1}},{broken}")), "\"b\""), Some((page2("{\"a\":1}"), 1)));
            assert_eq!(without(&page2(&format!("{{\"b\":1}},{broken}")), "{\"b\":1}"), Some((page2(broken), 1)));
        }
        for odd in ["", "[1]", "{\"data\":7}", "{\"data\":[1", "\u{0}"] {
            assert_eq!(without(odd, "1"), None, "{odd}");
        }
        let latin1 = b"{\"data\":[{\"a\":\"zo\xeb\"},{\"b\":\"\xff\"}],\"cursor\":null}";
        let redacted = remove_records(latin1, |record| record.contains("zo\u{eb}")).unwrap();
        assert_eq!(redacted.body, b"{\"data\":[{\"b\":\"\xff\"}],\"cursor\":null}");
        assert_eq!(without(r#"{"d\u0061ta":[1]}"#, "1"), Some((r#"{"d\u0061ta":[]}"#.to_owned(), 1)));
    }

    proptest! {
        #[test]
        fn p9_a_redacted_page_has_all_other_records(gone in proptest::collection::vec(any::<bool>(), 0..12)) {
            let records: Vec<String> = gone.iter().enumerate().map(|(at, gone)| format!("{{\"at\":{at},\"gone\":{gone}}}")).collect();
            let body = format!("{{\"data\":[{}],\"cursor\":null}}", records.join(" , "));
            let redacted = remove_records(body.as_bytes(), |record| record.contains("true"));
            let kept: Vec<String> = records.into_iter().filter(|record| record.contains("false")).collect();
            let removed = gone.iter().filter(|gone| **gone).count();
            prop_assert_eq!(redacted.as_ref().map_or(0, |redacted| redacted.removed as usize), removed);
            if let Some(redacted) = redacted {
                let page: serde_json::Value = serde_json::from_slice(&redacted.body).unwrap();
                let left: Vec<String> = page["data"].as_array().unwrap().iter().map(ToString::to_string).collect();
                prop_assert_eq!(left, kept);
            }
        }
    }
}
