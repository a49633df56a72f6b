//! Rows as people write them, right and wrong.

use serde_json::json;

use super::*;

fn rows(read: impl FnOnce(&mut Take<'_>) -> Result<(), InputError>) -> Vec<Result<Upsert, SetAside>> {
    let mut rows = Vec::new();
    read(&mut |row: Row| {
        assert_eq!(row.number, rows.len() as u64 + 1);
        rows.push(row.read);
        true
    })
    .unwrap();
    rows
}

fn csv(text: &str) -> Vec<Result<Upsert, SetAside>> {
    rows(|take| read_csv(text.as_bytes(), take))
}

fn ndjson(text: &str) -> Vec<Result<Upsert, SetAside>> {
    rows(|take| read_ndjson(text.as_bytes(), take))
}

fn reason(row: &serde_json::Value) -> String {
    ndjson(&row.to_string()).pop().unwrap().unwrap_err().reason
}

#[test]
fn the_same_row_is_the_same_content_in_every_form() {
    let from_csv = csv("\u{feff}userId,email,attributes.plan,attributes.seats:integer,attributes.vip:boolean,events\n\
        u1,a@b.c,pro,007,TRUE,\"[{\"\"event\"\":\"\"login\"\",\"\"timestamp\"\":\"\"1970-01-01T00:00:01Z\"\"}]\"\n");
    let nested = json!({"userId": "u1", "email": "a@b.c", "events": [{"timestamp": 1000, "event": "login"}],
        "attributes": {"vip": true, "seats": 7, "plan": "pro", "gone": null}});
    let flat = json!({"attributes.vip": true, "attributes": "{\"plan\":\"pro\"}", "attributes.seats": 7, "userId": "u1",
        "email": "a@b.c", "events": "[{\"event\":\"login\",\"timestamp\":1000}]"});
    let from_json = ndjson(&format!("{nested}\n\n{flat}"));
    let upsert = from_csv[0].clone().unwrap();
    let body = r#"{"userId":"u1","email":"a@b.c","attributes":{"plan":"pro","seats":7,"vip":true},"events":[{"event":"login","timestamp":1000}]}"#;
    assert_eq!(String::from_utf8(upsert.body(true)).unwrap(), body);
    assert!(!String::from_utf8(upsert.body(false)).unwrap().contains("events"));
    for row in &from_json {
        let row = row.clone().unwrap();
        assert_eq!((row.content_key(), &row), (upsert.content_key(), &upsert));
    }
    let other = Upsert { events: Vec::new(), ..upsert.clone() };
    assert_ne!(other.content_key(), upsert.content_key());
}

#[test]
fn a_row_that_the_service_would_refuse_is_set_aside_with_its_reason() {
    let attributes =
        |count: usize| (0..count).map(|at| (format!("a{at}"), json!(1))).collect::<serde_json::Map<_, _>>();
    assert!(ndjson(&json!({"userId": "u", "attributes": attributes(100)}).to_string())[0].is_ok());
    for (row, expected) in [
        (json!({"email": "a@b"}), "no userId"),
        (json!({"userId": ""}), "no userId"),
        (json!({"userId": 5}), "userId is a number"),
        (json!([1]), "no JSON object"),
        (json!({"userId": "u", "email": "nowhere"}), "'nowhere' is no e-mail address"),
        (json!({"userId": "u", "attributes": attributes(101)}), "at most 100"),
        (json!({"userId": "u", "attributes": {"a": 1.5}}), "'a' is 1.5"),
        (json!({"userId": "u", "attributes": {"a": [1]}}), "'a' is a list"),
        (json!({"userId": "u", "attributes": {"a": 9_223_372_036_854_775_808_u64}}), "too large"),
        (json!({"userId": "u", "attributes": {"": 1}}), "without a name"),
        (json!({"userId": "u", "attributes": {"a": 1}, "attributes.a": 2}), "stands twice"),
        (json!({"userId": "u", "attributes": "text"}), "attributes are a text"),
        (json!({"userId": "u", "plan": "pro"}), "no column 'plan'"),
        (json!({"userId": "u", "events": {}}), "events are an object"),
        (json!({"userId": "u", "events": [{"event": "e"}]}), "event 1 has no timestamp"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": 1}, {"timestamp": 1}]}), "event 2 has no name"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": 1, "count": 2}]}), "has 'count'"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": "2026-01-31T08:00:00"}]}), "no zone"),
    ] {
        assert!(reason(&row).contains(expected), "{row}: {}", reason(&row));
    }
    assert!(ndjson("{\"userId\":\"u\"").pop().unwrap().unwrap_err().reason.contains("no JSON"));
}

#[test]
fn cells_are_held_to_the_type_of_their_column() {
    let found = csv(
        "userId,attributes.n:integer,attributes.b:boolean,attributes.a:b\nu1,x,,\nu2,,maybe,\nu3,,,007\nu4\n,1,,\n",
    );
    let reasons: Vec<Option<String>> = found.iter().map(|row| row.clone().err().map(|aside| aside.reason)).collect();
    assert!(reasons[0].as_deref().unwrap().contains("'x' in the column attributes.n is no integer"));
    assert!(reasons[1].as_deref().unwrap().contains("neither true nor false"));
    assert_eq!(found[2].clone().unwrap().attributes["a:b"], AttributeValue::Text("007".into()), "a text by default");
    assert!(reasons[3].as_deref().unwrap().contains("1 cells, and there are 4 columns"));
    assert_eq!(found[3].clone().unwrap_err().user_id.as_deref(), Some("u4"));
    assert!(reasons[4].as_deref().unwrap().contains("no userId"));
}

#[test]
fn wrong_columns_are_refused_before_any_row_is_read() {
    for (header, expected) in [
        ("", "empty"),
        ("email,attributes.x\n", "no column userId"),
        ("userId,plan\nu,p\n", "no column 'plan'"),
        ("userId,attributes.a,attributes.a:integer\n", "stands twice"),
        ("userId,attributes.\n", "without a name"),
    ] {
        let refused = read_csv(header.as_bytes(), &mut |_| panic!("a row was read")).unwrap_err();
        assert!(refused.to_string().contains(expected), "{header}: {refused}");
    }
}

#[test]
fn p8_a_row_without_an_end_takes_no_memory_without_an_end() {
    let endless = || std::io::Read::take(std::io::repeat(b'x'), 1 << 30);
    let header = b"userId\n\"".as_slice();
    let refused = read_csv(std::io::Read::chain(header, endless()), &mut |_| true).unwrap_err();
    assert!(matches!(refused, InputError::RowTooLong { row: 1 }), "{refused}");
    let end = b"\n{\"userId\":\"u\"}\n".as_slice();
    let endless = std::io::Read::take(std::io::repeat(b'x'), 1 << 24);
    let found = rows(|take| read_ndjson(std::io::Read::chain(endless, end), take));
    assert!(found[0].clone().unwrap_err().reason.contains("longer than 1048576 bytes"));
    assert_eq!((found.len(), found[1].clone().unwrap().user_id), (2, "u".to_owned()));
}
