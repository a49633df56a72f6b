//! Envelopes in every form that a service may answer with; no network.

use super::*;

fn page(text: &str) -> Envelope {
    parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> PageError {
    parse(text.as_bytes()).expect_err(text)
}

#[test]
fn p3_only_a_null_missing_or_empty_cursor_is_the_end() {
    let ended = |end, list| Envelope { rows: 0, next: None, end: Some(end), list, broken: 0 };
    assert_eq!(page(r#"{"cursor":null,"data":[]}"#), ended(EndStyle::Null, 22..24));
    assert_eq!(page(r#"{"data":[]}"#), ended(EndStyle::Missing, 8..10));
    assert_eq!(page(r#"{"data":[],"cursor":""}"#), ended(EndStyle::EmptyText, 8..10));
    for text in [
        r#"{"cursor":false,"data":[]}"#,
        r#"{"cursor":[],"data":[]}"#,
        r#"{"cursor":{},"data":[]}"#,
        r#"{"cursor":"\ud83d","data":[]}"#,
    ] {
        assert_eq!(error(text), PageError::BadToken);
    }
}

#[test]
fn p3_an_empty_page_with_a_token_is_not_the_end() {
    let empty = page(r#"{"data":[],"cursor":"MTIz"}"#);
    assert_eq!(empty, Envelope { rows: 0, next: Some(PageToken("MTIz".into())), end: None, list: 8..10, broken: 0 });
}

#[test]
fn p3_a_page_with_a_broken_record_keeps_its_token_and_its_end() {
    let broken = |end, next| Envelope { rows: 2, next, end, list: 8..25, broken: 1 };
    assert_eq!(page(r#"{"data":[{"a":NaN},{}   ],"cursor":null}"#), broken(Some(EndStyle::Null), None));
    let next = Some(PageToken("a\n".into()));
    assert_eq!(page("{\"data\":[{\"a\":\"\n\"},{}   ],\"cursor\":\"a\\n\"}"), broken(None, next));
    assert_eq!(error(r#"{"data":[{"a":NaN},{}   ],"cursor":{}}"#), PageError::BadToken);
    // Without a cursor nobody knows that this is all.
    assert!(matches!(error(r#"{"data":[{"a":NaN}]}"#), PageError::NotJson { .. }));
    assert!(matches!(parse(b"{\"data\":[{\"a\":\"\xff\"}]"), Err(PageError::NotUtf8 { at: 15 })));
}

#[test]
fn a_token_keeps_its_text_whatever_it_holds() {
    let token = |text: &str| page(text).next.unwrap().0;
    assert_eq!(token(r#"{"data":[1],"cursor":"a\u002b\/=\n\u00e9"}"#), "a+/=\né");
    assert_eq!(token(r#"{"data":[1],"cursor":12345678901234567890123}"#), "12345678901234567890123");
    assert_eq!(token(r#"{"data":[1],"cursor":-1.50}"#), "-1.50");
    let long = format!(r#"{{"data":[],"cursor":"{}"}}"#, "x".repeat(TOKEN_BYTES_MAX + 1));
    assert_eq!(error(&long), PageError::TokenTooLong);
}

#[test]
fn rows_are_counted_whatever_they_are() {
    let text = r#" {"total":{"data":[1,2]},"data":[{"a":[1,{}]}, null, "x", [], 1e400, {"data":[]}],"cursor":null} "#;
    assert_eq!(page(text).rows, 6);
}

#[test]
fn p1_a_deep_row_does_not_fail_its_page() {
    let deep = format!(r#"{{"data":[{{"response":{}{}}},1],"cursor":null}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(page(&deep).rows, 2);
    let deep_object = format!(r#"{{"data":[{}1{}]}}"#, r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    assert_eq!(page(&deep_object).rows, 1);
}

#[test]
fn deep_nesting_outside_records_never_crashes() {
    let lists = "[".repeat(500_000);
    assert!(matches!(error(&lists), PageError::NotJson { .. }));
    assert!(matches!(error(&format!(r#"{{"cursor":{lists}"#)), PageError::NotJson { .. }));
    let closed = format!(r#"{{"cursor":{lists}{},"data":[]}}"#, "]".repeat(500_000));
    assert_eq!(error(&closed), PageError::BadToken);
}

#[test]
fn p3_an_invalid_page_is_never_an_empty_page() {
    assert_eq!(error(r#"{"cursor":null}"#), PageError::NoData);
    assert_eq!(error("{}"), PageError::NoData);
    for data in ["null", "{}", r#"{"a":[1]}"#, r#""[]""#, "1", "-1", "1.5", "true"] {
        assert_eq!(error(&format!(r#"{{"data":{data},"cursor":null}}"#)), PageError::DataNotAList, "{data}");
    }
    // Values that no number and no text can hold are JSON all the same.
    for text in [r#"{"data":1e999}"#, r#"{"data":"\ud800"}"#, r#"{"data":{"\ud800":1}}"#] {
        assert_eq!(error(text), PageError::DataNotAList, "{text}");
    }
    assert_eq!(error(r#"{"data":[],"data":1e999}"#), PageError::Duplicate { field: "data" });
    for text in ["[]", "[1,[2]]", "null", "1", r#""text""#, "true"] {
        assert_eq!(error(text), PageError::NotAnObject, "{text}");
    }
}

#[test]
fn p1_a_field_name_that_is_no_text_is_ignored() {
    // Half of a surrogate pair: JSON's grammar allows it, no text can hold it. Found by the fuzzer.
    let read = page(r#"{"data":[{"a":1}],"\u0064ata\ude0cursor":null,"\ud800":[1],"curso\u0072":"x"}"#);
    assert_eq!((read.rows, read.next), (1, Some(PageToken("x".into()))));
    assert_eq!(error(r#"{"data":[],"d\u0061ta":[],"cursor":null}"#), PageError::Duplicate { field: "data" });
}

#[test]
fn a_cut_page_is_no_page() {
    let whole = r#"{"cursor":"MTIz","data":[{"a":"b"},{"a":"c"}]}"#;
    for cut in 0..whole.len() {
        assert!(matches!(error(&whole[..cut]), PageError::NotJson { .. }), "cut at {cut}");
    }
    assert!(matches!(error(&format!("{whole}x")), PageError::NotJson { .. }));
    assert!(matches!(error(&format!("{whole}{whole}")), PageError::NotJson { .. }));
}

#[test]
fn a_field_that_stands_twice_is_an_error_even_if_both_agree() {
    assert_eq!(error(r#"{"data":[],"data":[]}"#), PageError::Duplicate { field: "data" });
    assert_eq!(error(r#"{"cursor":"a","data":[],"cursor":null}"#), PageError::Duplicate { field: "cursor" });
    assert_eq!(error(r#"{"cursor":null,"data":[],"cursor":null}"#), PageError::Duplicate { field: "cursor" });
    assert_eq!(page(r#"{"x":1,"x":2,"data":[]}"#).rows, 0);
}

#[test]
fn bytes_that_are_no_text_are_named() {
    assert_eq!(parse(b"{\"data\":[\"\xff\"]}"), Err(PageError::NotUtf8 { at: 10 }));
}
