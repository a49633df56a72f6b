//! Which kind a body is, which deliveries are one event, and that no bytes are lost.

use arrow::array::{Array as _, AsArray as _};

use super::*;

fn delivery(body: &str) -> Delivery {
    Delivery { id: 1, received_ms: 1_769_846_400_000, body: body.as_bytes().to_vec() }
}

fn cell(body: &str, column: &str) -> Option<String> {
    let rows = flatten_deliveries(&[delivery(body)], None).unwrap();
    let column = rows.column_by_name(column).unwrap();
    (!column.is_null(0)).then(|| column.as_string::<i32>().value(0).to_owned())
}

#[test]
fn the_kind_is_told_by_what_a_body_holds_and_not_by_its_names() {
    for (body, kind) in [
        (r#"{"action":"seen","eventName":"studySent","visitorId":"v"}"#, EventKind::StudySeen),
        (r#"{"action":"sent","eventName":"studySeen","visitorId":"v"}"#, EventKind::StudySent),
        (r#"{"action":"completed","questions":[]}"#, EventKind::StudySubmitted),
        (r#"{"oldStatus":"NEW","status":"PAUSED","eventType":"product_message"}"#, EventKind::StudyStatusChanged),
        (r#"{"themename":"Price","updatedAt":"2026-01-31"}"#, EventKind::ThemeIdentified),
        (r#"{"question":"Why?","responseGroupUid":"g","response":null}"#, EventKind::AnswerSubmitted),
        (r#"{"id":1,"surveyId":2,"eventType":"TEST"}"#, EventKind::Test),
        (r#"{"eventType":"something_new"}"#, EventKind::Unknown),
        ("[1]", EventKind::Unknown),
        ("\"text\"", EventKind::Unknown),
        (" 17 ", EventKind::Unknown),
        ("null", EventKind::Unknown),
        ("[1", EventKind::NotJson),
        ("{}x", EventKind::NotJson),
        ("", EventKind::NotJson),
    ] {
        assert_eq!(tell(body.as_bytes()).kind, kind, "{body}");
    }
    assert_eq!(tell(b"{\"action\":\"\xff\"}").kind, EventKind::NotJson);
}

#[test]
fn an_event_told_in_other_words_is_the_same_event() {
    let told = r#"{"id":1,"question":"Which?","responseGroupUid":"g","surveyId":7,"response":"[\"a\", \"b\"]","timestamp":1769846400123}"#;
    let again = r#"{ "timestamp": "1769846400123", "surveyId": "7", "responseGroupUid": "g", "question": "Which?", "response": ["a", "b"], "id": "1" }"#;
    assert_eq!(cell(told, "event_key"), cell(again, "event_key"));
    for other in [
        told.replace("\\\"a\\\"", "\\\"c\\\""),
        told.replace("0123", "0124"),
        told.replace("Which", "What"),
        told.replace("\"g\"", "\"h\""),
        told.replace("\"id\":1", "\"id\":2"),
    ] {
        assert_ne!(cell(told, "event_key"), cell(&other, "event_key"), "{other}");
    }
}

#[test]
fn json_inside_texts_is_read_beside_the_exact_body() {
    let body = r#"{"question":"Which?","responseGroupUid":"g","response":"[\"a\"]","customMetadata":"{\"x\":1}","selectedIndexes":"[0, 2]"}"#;
    assert_eq!(cell(body, "response_json").as_deref(), Some(r#""[\"a\"]""#));
    assert_eq!(cell(body, "response_parsed_json").as_deref(), Some(r#"["a"]"#));
    assert_eq!(cell(body, "response_text"), None);
    assert_eq!(cell(body, "custom_metadata").as_deref(), Some(r#"{"x":1}"#));
    assert_eq!(cell(body, "raw").as_deref(), Some(body));
    for (sent, read) in [("2", vec![2]), ("\"2\"", vec![2]), ("[1,3]", vec![1, 3]), ("\"[1,3]\"", vec![1, 3])] {
        let body = format!(r#"{{"selectedIndexes":{sent}}}"#);
        assert_eq!(Body::read(body.as_bytes()).indexes(), Some(read), "{sent}");
    }
    // A text that only looks like JSON is a text.
    let open = r#"{"question":"Why?","responseGroupUid":"g","response":"[sic] it is slow"}"#;
    assert_eq!(cell(open, "response_text").as_deref(), Some("[sic] it is slow"));
    assert_eq!(cell(open, "response_parsed_json"), None);
}

#[test]
fn p1_bytes_that_are_no_text_are_kept() {
    let body = b"\xff\x00{".to_vec();
    let rows = flatten_deliveries(&[Delivery { body: body.clone(), ..delivery("") }], None).unwrap();
    let kept = rows.column_by_name("raw_base64").unwrap().as_string::<i32>().value(0).to_owned();
    assert_eq!(STANDARD.decode(kept).unwrap(), body);
    assert!(rows.column_by_name("raw").unwrap().is_null(0));
}

#[test]
fn only_what_tells_no_time_has_a_subject() {
    let change = r#"{"surveyId":7,"oldStatus":"PAUSED","status":"IN_PROGRESS"}"#;
    assert_eq!(tell(change.as_bytes()).timeless_subject.as_deref(), Some("survey 7"));
    let key_at = |received_ms| {
        Body::read(change.as_bytes())
            .event_key(EventKind::StudyStatusChanged, &Delivery { received_ms, ..delivery(change) })
    };
    assert_eq!(key_at(1), key_at(1));
    assert_ne!(key_at(1), key_at(2), "the same change, another day");
    let timed = r#"{"surveyId":7,"oldStatus":"PAUSED","status":"IN_PROGRESS","timestamp":1769846400123}"#;
    assert_eq!(tell(timed.as_bytes()).timeless_subject, None);
    assert_eq!(tell(br#"{"question":"?","responseGroupUid":"g"}"#).timeless_subject, None);
}

#[test]
fn deliveries_of_another_environment_are_told_apart_by_kind() {
    let body = r#"{"environmentId":"b","surveyId":7,"oldStatus":"PAUSED","status":"ARCHIVED","eventName":"x"}"#;
    for (ours, kind) in [
        (None, EventKind::StudyStatusChanged),
        (Some("b"), EventKind::StudyStatusChanged),
        (Some("a"), EventKind::OtherEnvironment),
    ] {
        assert_eq!(tell(body.as_bytes()).kind_in(ours), kind);
        let rows = flatten_deliveries(&[delivery(body)], ours).unwrap();
        assert_eq!(rows.column_by_name("kind").unwrap().as_string::<i32>().value(0), kind.name());
        assert_eq!(rows.column_by_name("environment_id").unwrap().as_string::<i32>().value(0), "b");
    }
    // What names none, and a number for a text.
    assert_eq!(
        tell(br#"{"surveyId":7,"oldStatus":"A","status":"B"}"#).kind_in(Some("a")),
        EventKind::StudyStatusChanged
    );
    assert_eq!(tell(br#"{"environmentId":12,"themename":"x"}"#).kind_in(Some("12")), EventKind::ThemeIdentified);
    assert_eq!(tell(br#"{"environmentId":"b","eventType":"TEST"}"#).kind_in(Some("a")), EventKind::OtherEnvironment);
}
