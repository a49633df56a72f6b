//! Pages in one pass and by serde_json: both find the same parts.

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
fn places_are_those_of_the_body_without_the_space_around() {
    let text = "\u{feff}\u{feff} { \"data\" : [ {\"a\":1} , \"é\" ,2 ] , \"cursor\" : \"x\" }\n";
    let list = ["[ {\"a\":1} , \"é\" ,2 ]", "{\"a\":1}", "\"é\"", "2"];
    assert_eq!(shown(text, &[DATA]), (Some("\"x\"".to_owned()), vec![list.map(str::to_owned).to_vec()]));
    assert_eq!(parse_with_serde(text, &[DATA]), PageParts::parse(text.as_bytes(), &[DATA]));
}

#[test]
fn only_lists_that_are_asked_for_have_records() {
    let text = r#"{"absent":["a"],"data":[1],"refused":{},"more":[2],"abs\u0065nt":[]}"#;
    let lists = |lists: &[&str]| shown(text, lists).1;
    assert_eq!(lists(&[DATA]), [["[1]", "1"]]);
    assert_eq!(lists(&[DATA, "absent", "refused"]), [vec!["[\"a\"]", "\"a\""], vec!["[1]", "1"], vec!["[]"]]);
    assert!(lists(&[]).is_empty());
}

#[test]
fn each_list_of_data_is_read_and_the_second_is_named() {
    let parts = PageParts::parse(br#"{"data":[1],"d\u0061ta":[2,3]}"#, &[DATA]).unwrap();
    assert_eq!((parts.records().count(), parts.duplicate, parts.check_data()), (3, Some(DATA), Ok(())));
    let parts = PageParts::parse(br#"{"data":[1],"data":{}}"#, &[DATA]).unwrap();
    assert_eq!((parts.duplicate, parts.check_data()), (Some(DATA), Err(PageError::DataNotAList)));
    let parts = PageParts::parse(br#"{"cursor":[1],"\ud800":1,"\ud800":1}"#, &[DATA]).unwrap();
    assert_eq!((parts.duplicate, parts.check_data()), (None, Err(PageError::NoData)));
}

/// Members of a page, and what is nearly a page.
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
    fn p1_one_pass_finds_what_serde_json_finds(text in pages()) {
        let lists = [DATA, "absent"];
        prop_assert_eq!(scan(&text, &lists, read_ranges), parse_with_serde(&text, &lists).ok(), "{}", text);
    }
}
