//! A page without some of its records. Every other byte of the page but the commas between records stays.

use std::{borrow::Cow, ops::Range};

use crate::{
    json::shown,
    page::{DATA, List, PageParts, Record},
};

/// A page that lost records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedPage {
    pub body: Vec<u8>,
    /// Records that were taken out; at least 1.
    pub removed: u32,
}

/// The lists of a page in which records stand: that of the service, and those in a page of people that say who was
/// asked for and is not there. There a record may be a bare user id.
const LISTS: [&str; 3] = [DATA, "absent", "refused"];

/// The page without the records for which `is_gone` holds; `None` if there are none. What is no page has no records.
pub fn remove_records(body: &[u8], mut is_gone: impl FnMut(&str) -> bool) -> Option<RedactedPage> {
    let mut cuts: Vec<Range<usize>> = Vec::new();
    let mut removed = 0;
    for List { records, .. } in PageParts::parse(body, &LISTS).ok()?.lists {
        let gone: Vec<bool> = records
            .iter()
            .map(|record| match &*text_of(body.get(record.place.clone()).unwrap_or_default()) {
                user_id if user_id.starts_with('"') => is_gone(&format!("{{\"userId\":{user_id}}}")),
                record => is_gone(record),
            })
            .collect();
        removed += gone.iter().filter(|is_gone| **is_gone).count();
        cuts.extend(cuts_of(&records, &gone));
    }
    if removed == 0 {
        return None;
    }
    let (mut redacted, mut done) = (Vec::with_capacity(body.len()), 0);
    for cut in cuts {
        redacted.extend_from_slice(body.get(done..cut.start).unwrap_or_default());
        done = cut.end;
    }
    redacted.extend_from_slice(body.get(done..).unwrap_or_default());
    Some(RedactedPage { body: redacted, removed: u32::try_from(removed).unwrap_or(u32::MAX) })
}

fn text_of(record: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(record).map_or_else(|_| shown(record).into(), Cow::Borrowed)
}

/// What to cut so that the rest is a list again:
/// with each record the comma behind it, and with the last of the list the comma before it.
fn cuts_of(records: &[Record], gone: &[bool]) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let mut last_kept_end = None;
    let mut open: Option<usize> = None;
    for (record, is_gone) in records.iter().zip(gone) {
        match (*is_gone, open) {
            (true, None) => open = Some(record.place.start),
            (false, Some(start)) => {
                cuts.push(start..record.place.start);
                open = None;
            }
            _ => {}
        }
        if !is_gone {
            last_kept_end = Some(record.place.end);
        }
    }
    if let (Some(start), Some(last)) = (open, records.last()) {
        cuts.push(last_kept_end.unwrap_or(start)..last.place.end);
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
    fn p9_the_rest_of_a_page_keeps_its_bytes() {
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
        assert_eq!(without(r#"{"d\u0061ta":[1]}"#, "1"), Some((r#"{"d\u0061ta":[]}"#.to_owned(), 1)));
    }

    proptest! {
        #[test]
        fn p9_what_is_left_is_the_list_without_them(gone in proptest::collection::vec(any::<bool>(), 0..12)) {
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
