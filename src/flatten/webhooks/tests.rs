//! The kind of a body, the deliveries of one event, and the storage of all bytes.

use arrow::array::{Array as _, AsArray as _};

use super::*;
use crate::model::EventKind;

fn delivery(body: &str) -> Delivery {
    Delivery { id: 1, received_ms: 1_769_846_400_000, body: body.as_bytes().to_vec() }
}

fn cell(body: &str, column: &str) -> Option<String> {
    cells(&events(body), column).pop().unwrap()
}

fn events(body: &str) -> RecordBatch {
    flatten_deliveries(&[delivery(body)], None).unwrap().flat.events
}

fn cells(rows: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let column = rows.column_by_name(column).unwrap_or_else(|| panic!("no {column}"));
    let text = |row| arrow::util::display::array_value_to_string(column, row).unwrap();
    (0..column.len()).map(|row| column.is_valid(row).then(|| text(row))).collect()
}

#[test]
fn the_content_of_a_body_decides_its_kind() {
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
        assert_eq!(summarize_body(body.as_bytes()).kind, kind, "{body}");
    }
    assert_eq!(summarize_body(b"{\"action\":\"\xff\"}").kind, EventKind::NotJson);
}

#[test]
fn an_event_has_one_key_however_its_json_is_written() {
    let body = r#"{"id":1,"question":"Which?","responseGroupUid":"g","surveyId":7,"response":"[\"a\", \"b\"]","timestamp":1769846400123}"#;
    let again = r#"{ "timestamp": "1769846400123", "surveyId": "7", "responseGroupUid": "g", "question": "Which?", "response": ["a", "b"], "id": "1" }"#;
    assert_eq!(cell(body, "event_key"), cell(again, "event_key"));
    for other in [
        body.replace("\\\"a\\\"", "\\\"c\\\""),
        body.replace("0123", "0124"),
        body.replace("Which", "What"),
        body.replace("\"g\"", "\"h\""),
        body.replace("\"id\":1", "\"id\":2"),
    ] {
        assert_ne!(cell(body, "event_key"), cell(&other, "event_key"), "{other}");
    }
}

#[test]
fn json_inside_strings_is_parsed_and_stored_exactly_too() {
    let body = r#"{"question":"Which?","responseGroupUid":"g","response":"[\"a\"]","customMetadata":"{\"x\":1}","selectedIndexes":"[0, 2]"}"#;
    assert_eq!(cell(body, "response_json").as_deref(), Some(r#""[\"a\"]""#));
    assert_eq!(cell(body, "response_parsed_json").as_deref(), Some(r#"["a"]"#));
    assert_eq!(cell(body, "response_text"), None);
    assert_eq!(cell(body, "custom_metadata").as_deref(), Some(r#"{"x":1}"#));
    assert_eq!(cell(body, "raw").as_deref(), Some(body));
    for (sent, read) in [("2", vec![2]), ("\"2\"", vec![2]), ("[1,3]", vec![1, 3]), ("\"[1,3]\"", vec![1, 3])] {
        let body = format!(r#"{{"selectedIndexes":{sent}}}"#);
        let read = format!("[{}]", read.iter().map(i64::to_string).collect::<Vec<_>>().join(", "));
        assert_eq!(cell(&body, "selected_indexes"), Some(read), "{sent}");
    }
    // A text that only looks like JSON is a text.
    let open = r#"{"question":"Why?","responseGroupUid":"g","response":"[sic] it is slow"}"#;
    assert_eq!(cell(open, "response_text").as_deref(), Some("[sic] it is slow"));
    assert_eq!(cell(open, "response_parsed_json"), None);
}

#[test]
fn p1_an_open_answer_that_looks_like_json_is_a_text() {
    let body = |question_type: &str, response: &str| {
        format!(
            r#"{{"question":"Why?","questionType":"{question_type}","responseGroupUid":"g","response":{response}}}"#
        )
    };
    for question_type in ["open", "OPEN", "multiplechoice"] {
        for (response, text) in [
            (r#""[1, 2]""#, "[1, 2]"),
            (r#""{\"a\": 1}""#, r#"{"a": 1}"#),
            (r#"" [] ""#, " [] "),
            ("7", "7"),
            (r#""""#, ""),
        ] {
            let body = body(question_type, response);
            assert_eq!(cell(&body, "response_text").as_deref(), Some(text), "{body}");
            assert_eq!(cell(&body, "response_parsed_json"), None, "{body}");
        }
        let list = body(question_type, "[1]");
        assert_eq!((cell(&list, "response_text"), cell(&list, "response_parsed_json")), (None, Some("[1]".to_owned())));
    }
    let choices = body("multipleselect", r#""[\"a\"]""#);
    assert_eq!(cell(&choices, "response_parsed_json").as_deref(), Some(r#"["a"]"#));
    assert_eq!(cell(&choices, "response_text"), None);
    let score = body("nps", "9");
    assert_eq!((cell(&score, "response_text"), cell(&score, "response_number")), (None, Some("9.0".to_owned())));
}

#[test]
fn p2_a_session_id_in_capitals_or_braces_is_the_same() {
    let body = |id: &str| {
        format!(
            r#"{{"id":1,"question":"Why?","surveyId":7,"response":"x","timestamp":1769846400123,
                "responseGroupUid":"{id}","visitorId":"{id}","environmentId":"{id}"}}"#
        )
    };
    let id = "2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162";
    for spelled in [id.to_owned(), id.to_uppercase(), format!("{{{id}}}"), format!("{{{}}}", id.to_uppercase())] {
        let sent = body(&spelled);
        for column in ["response_group_uid", "visitor_id", "environment_id"] {
            assert_eq!(cell(&sent, column).as_deref(), Some(id), "{column}: {spelled}");
        }
        assert_eq!(cell(&sent, "event_key"), cell(&body(id), "event_key"), "{spelled}");
        for own in [id.to_owned(), id.to_uppercase()] {
            assert_eq!(summarize_body(sent.as_bytes()).kind_for(Some(&own)), EventKind::AnswerSubmitted, "{spelled}");
        }
        let submitted = format!(r#"{{"action":"completed","responseGroupUid":"{spelled}","questions":[{{}}]}}"#);
        let questions = flatten_deliveries(&[delivery(&submitted)], None).unwrap().flat.questions.unwrap();
        assert_eq!(cells(&questions, "response_group_uid"), [Some(id.to_owned())], "{spelled}");
    }
    // Other ids are compared letter by letter.
    for other in ["Session-1", "ABCDEF", "{x}", "2F1C9D6E0B7A4C559A401D2E3F405162"] {
        assert_eq!(cell(&body(other), "response_group_uid").as_deref(), Some(other));
    }
}

#[test]
fn p1_a_body_that_is_not_utf8_is_stored() {
    let body = b"\xff\x00{".to_vec();
    let rows = flatten_deliveries(&[Delivery { body: body.clone(), ..delivery("") }], None).unwrap().flat.events;
    let stored = rows.column_by_name("raw_base64").unwrap().as_string::<i32>().value(0).to_owned();
    assert_eq!(STANDARD.decode(stored).unwrap(), body);
    assert!(rows.column_by_name("raw").unwrap().is_null(0));
}

#[test]
fn only_a_body_without_a_time_has_a_subject() {
    let change = r#"{"surveyId":7,"oldStatus":"PAUSED","status":"IN_PROGRESS"}"#;
    assert_eq!(summarize_body(change.as_bytes()).timeless_subject.as_deref(), Some("survey 7"));
    let key_at = |received_ms| {
        WebhookBody::parse(change.as_bytes())
            .event_key(EventKind::StudyStatusChanged, &Delivery { received_ms, ..delivery(change) })
    };
    assert_eq!(key_at(1), key_at(1));
    assert_ne!(key_at(1), key_at(2), "the same change on another day");
    let timed = r#"{"surveyId":7,"oldStatus":"PAUSED","status":"IN_PROGRESS","timestamp":1769846400123}"#;
    assert_eq!(summarize_body(timed.as_bytes()).timeless_subject, None);
    assert_eq!(summarize_body(br#"{"question":"?","responseGroupUid":"g"}"#).timeless_subject, None);
}

#[test]
fn a_delivery_of_another_environment_has_its_own_kind() {
    let body = r#"{"environmentId":"b","surveyId":7,"oldStatus":"PAUSED","status":"ARCHIVED","eventName":"x"}"#;
    for (ours, kind) in [
        (None, EventKind::StudyStatusChanged),
        (Some("b"), EventKind::StudyStatusChanged),
        (Some("a"), EventKind::OtherEnvironment),
    ] {
        assert_eq!(summarize_body(body.as_bytes()).kind_for(ours), kind);
        let rows = flatten_deliveries(&[delivery(body)], ours).unwrap().flat.events;
        assert_eq!(rows.column_by_name("kind").unwrap().as_string::<i32>().value(0), kind.name());
        assert_eq!(rows.column_by_name("environment_id").unwrap().as_string::<i32>().value(0), "b");
    }
    // A body without an environment, and an environment as a number.
    assert_eq!(
        summarize_body(br#"{"surveyId":7,"oldStatus":"A","status":"B"}"#).kind_for(Some("a")),
        EventKind::StudyStatusChanged
    );
    assert_eq!(
        summarize_body(br#"{"environmentId":12,"themename":"x"}"#).kind_for(Some("12")),
        EventKind::ThemeIdentified
    );
    assert_eq!(
        summarize_body(br#"{"environmentId":"b","eventType":"TEST"}"#).kind_for(Some("a")),
        EventKind::OtherEnvironment
    );
}

#[test]
fn a_list_is_read_like_a_list_inside_a_string() {
    let body = |response: &str| format!(r#"{{"question":"Which?","responseGroupUid":"g","response":{response}}}"#);
    for sent in [r#"["a", "b"]"#, r#""[\"a\", \"b\"]""#] {
        assert_eq!(cell(&body(sent), "response_parsed_json").as_deref(), Some(r#"["a", "b"]"#), "{sent}");
        assert_eq!(cell(&body(sent), "response_text"), None, "{sent}");
        assert_eq!(cell(&body(sent), "response_json").as_deref(), Some(sent));
    }
    assert_eq!(cell(&body(r#"{"x": 1}"#), "response_parsed_json").as_deref(), Some(r#"{"x": 1}"#));
    assert_eq!(cell(&body("7"), "response_parsed_json"), None);
}

#[test]
fn question_types_are_also_stored_as_the_streams_spell_them() {
    for (sent, export) in [("multipleselect", "MULTIPLESELECT"), ("OPEN", "OPEN"), ("aiDynamic", "AIDYNAMIC")] {
        let body = format!(r#"{{"question":"?","responseGroupUid":"g","questionType":"{sent}"}}"#);
        assert_eq!(cell(&body, "question_type").as_deref(), Some(sent));
        assert_eq!(cell(&body, "export_question_type").as_deref(), Some(export));
    }
}

#[test]
fn p1_a_value_without_a_column_is_in_extra_and_is_drift() {
    let body = r#"{"action":"sent","visitorId":"v","battery":{"level":7},"surveyId":"x7","eventDate":"soon","userId":["u"],"productId":17,
        "isUserInterviews":"maybe","questions":[{"question":"A?","order":1,"weight":2},{"question":["B?"]},7]}"#;
    let flat = flatten_deliveries(&[delivery(body)], None).unwrap();
    let extra: serde_json::Value =
        serde_json::from_str(&cells(&flat.flat.events, "extra")[0].clone().unwrap()).unwrap();
    let expected = serde_json::json!({
        "battery": {"level": 7}, "surveyId": "x7", "eventDate": "soon", "userId": ["u"], "isUserInterviews": "maybe",
    });
    assert_eq!(extra, expected);
    assert_eq!(cells(&flat.flat.events, "product_id"), [Some("17".to_owned())], "the service documents both types");
    let questions = flat.flat.questions.unwrap();
    assert_eq!(cells(&questions, "extra"), [Some(r#"{"weight":2}"#.into()), Some(r#"{"question":["B?"]}"#.into())]);
    let reported: Vec<(String, &str)> =
        flat.drift.entries().map(|entry| (entry.place.clone(), entry.kind.title())).collect();
    let expected = [
        ("webhooks.battery", "new field"),
        ("webhooks.questions[].weight", "new field"),
        ("webhooks.eventDate", "type clash"),
        ("webhooks.isUserInterviews", "type clash"),
        ("webhooks.questions[].question", "type clash"),
        ("webhooks.surveyId", "type clash"),
        ("webhooks.userId", "type clash"),
    ];
    assert_eq!(reported, expected.map(|(place, kind)| (place.to_owned(), kind)));
    // Unknown fields of a test body are no drift.
    let test = flatten_deliveries(&[delivery(r#"{"eventType":"TEST","battery":7}"#)], None).unwrap();
    assert!(test.drift.is_empty());
    assert_eq!(cells(&test.flat.events, "extra"), [Some(r#"{"battery":7}"#.to_owned())]);
}

#[test]
fn each_question_of_a_body_has_a_row() {
    let submitted = r#"{"action":"completed","surveyId":7,"responseGroupUid":"g","timestamp":1,"questions":
        [{"question":"Why?","response":"[\"a\"]","order":0},{"question":"How much?","response":9,"order":1}]}"#;
    let changed = r#"{"oldStatus":"NEW","status":"PAUSED","surveyId":8,"questions":"[{\"question\":\"Why?\",\"questionTypeId\":\"nps\"}]"}"#;
    let none = r#"{"themename":"Price","questions":"none"}"#;
    let flat = flatten_deliveries(&[delivery(submitted), delivery(none), delivery(changed)], None).unwrap().flat;
    let rows = flat.questions.unwrap();
    let keys = cells(&flat.events, "event_key");
    let column = |name: &str| cells(&rows, name).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
    assert_eq!(cells(&rows, "event_key"), [keys[0].clone(), keys[0].clone(), keys[2].clone()]);
    assert_eq!(column("question_ordinal"), ["1", "2", "1"]);
    assert_eq!(column("question_text"), ["Why?", "How much?", "Why?"]);
    assert_eq!(column("question_order"), ["0", "1", ""]);
    assert_eq!(column("response_parsed_json"), [r#"["a"]"#, "", ""]);
    assert_eq!(column("response_number"), ["", "9.0", ""]);
    assert_eq!(column("export_question_type"), ["", "", "NPS"]);
    assert_eq!(column("survey_id"), ["7", "7", "8"]);
    assert_eq!(column("response_group_uid"), ["g", "g", ""]);
}

#[test]
fn a_long_text_is_not_repeated_for_every_question() {
    for (bytes, is_repeated) in [(256, true), (257, false)] {
        let session = "s".repeat(bytes);
        let body = format!(r#"{{"action":"completed","responseGroupUid":"{session}","questions":[{{}},{{}}]}}"#);
        let flat = flatten_deliveries(&[delivery(&body)], None).unwrap().flat;
        let repeated = is_repeated.then(|| session.clone());
        assert_eq!(cells(&flat.questions.unwrap(), "response_group_uid"), [repeated.clone(), repeated]);
        assert_eq!(cells(&flat.events, "response_group_uid"), [Some(session)]);
    }
}

#[test]
fn stored_events_flatten_to_the_same_rows_again() {
    let bodies = [
        r#"{"action":"completed","surveyId":7,"responseGroupUid":"g","timestamp":1,"questions":[{"question":"Why?"}]}"#,
        r#"{"environmentId":"b","oldStatus":"NEW","status":"PAUSED","surveyId":8}"#,
        "[1",
    ];
    let mut deliveries: Vec<Delivery> = bodies.iter().map(|body| delivery(body)).collect();
    deliveries.push(Delivery { body: b"\xff{".to_vec(), ..delivery("") });
    let first = flatten_deliveries(&deliveries, Some("a")).unwrap().flat;
    let again = flatten_stored_events(&first.events).unwrap();
    assert_eq!((again.events, again.questions), (first.events, first.questions));
}
