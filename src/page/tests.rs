//! The scanner and serde_json find the same parts of a page.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// The parts of a page as texts: the page token, and each list with its records.
fn shown(text: &str, lists: &[&str]) -> (Option<String>, Vec<Vec<String>>) {
    let parts = PageParts::parse(text.as_bytes(), lists).unwrap();
    let slice = |range: &Range<usize>| text[range.clone()].to_owned();
    let of_list = |list: &RecordList| -> Vec<String> {
        [slice(&list.range)].into_iter().chain(list.records.iter().map(|record| slice(&record.range))).collect()
    };
    (parts.cursor.as_ref().map(slice), parts.lists.iter().map(of_list).collect())
}

#[test]
fn ranges_exclude_the_whitespace_around_a_part() {
    let text = "\u{feff}\u{feff} { \"data\" : [ {\"a\":1} , \"é\" ,2 ] , \"cursor\" : \"x\" }\n";
    let list = ["[ {\"a\":1} , \"é\" ,2 ]", "{\"a\":1}", "\"é\"", "2"];
    assert_eq!(shown(text, &[DATA]), (Some("\"x\"".to_owned()), vec![list.map(str::to_owned).to_vec()]));
    assert_eq!(parse_with_serde(text, &[DATA]), PageParts::parse(text.as_bytes(), &[DATA]));
}

#[test]
fn only_requested_lists_have_records() {
    let text = r#"{"absent":["a"],"data":[1],"refused":{},"more":[2],"abs\u0065nt":[]}"#;
    let lists = |lists: &[&str]| shown(text, lists).1;
    assert_eq!(lists(&[DATA]), [["[1]", "1"]]);
    assert_eq!(lists(&[DATA, "absent", "refused"]), [vec!["[\"a\"]", "\"a\""], vec!["[1]", "1"], vec!["[]"]]);
    assert!(lists(&[]).is_empty());
}

#[test]
fn every_list_data_is_read_and_a_second_one_is_reported() {
    let parts = PageParts::parse(br#"{"data":[1],"d\u0061ta":[2,3]}"#, &[DATA]).unwrap();
    assert_eq!((parts.records().count(), parts.duplicate, parts.check_data()), (3, Some(DATA), Ok(())));
    let parts = PageParts::parse(br#"{"data":[1],"data":{}}"#, &[DATA]).unwrap();
    assert_eq!((parts.duplicate, parts.check_data()), (Some(DATA), Err(PageError::DataNotAList)));
    let parts = PageParts::parse(br#"{"cursor":[1],"\ud800":1,"\ud800":1}"#, &[DATA]).unwrap();
    assert_eq!((parts.duplicate, parts.check_data()), (None, Err(PageError::NoData)));
}

fn pages() -> impl Strategy<Value = String> {
    let name = select(vec!["data", "cursor", "absent", "d\\u0061ta", "\\ud800", ""]);
    let value = select(vec![
        "[]",
        "[ ]",
        "[1 , {\"a\":[]},\"]\"]",
        "null",
        "\"x\"",
        "{\"data\":[1]}",
        "1e999",
        "[[",
        "[1}",
        "",
    ]);
    let space = select(vec!["", " ", "\n\t"]);
    let member =
        (name, space.clone(), value).prop_map(|(name, space, value)| format!("\"{name}\"{space}:{space}{value}"));
    (vec(member, 0..4), space, select(vec!["", "\u{feff}", "x"])).prop_map(|(members, space, before)| {
        format!("{before}{{{space}{}{space}}}{space}", members.join(&format!("{space},{space}")))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn p1_the_scan_finds_what_serde_json_finds(text in pages()) {
        let lists = [DATA, "absent"];
        prop_assert_eq!(scan(&text, &lists, read_ranges), parse_with_serde(&text, &lists).ok(), "{}", text);
    }
}
