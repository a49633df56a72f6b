//! Valid and invalid rows in every format.

use std::io::Read as _;

use serde_json::json;

use super::*;

fn rows(read: impl FnOnce(&mut RowSink<'_>) -> Result<(), InputError>) -> Vec<Result<Upsert, UnsendableRow>> {
    let mut rows = Vec::new();
    read(&mut |row: Row| {
        assert_eq!(row.number, rows.len() as u64 + 1);
        rows.push(row.read);
        true
    })
    .unwrap();
    rows
}

fn csv(text: &str) -> Vec<Result<Upsert, UnsendableRow>> {
    rows(|take| read_csv(text.as_bytes(), take))
}

fn ndjson(text: &str) -> Vec<Result<Upsert, UnsendableRow>> {
    rows(|take| read_ndjson(text.as_bytes(), take))
}

fn reason(row: &serde_json::Value) -> String {
    ndjson(&row.to_string()).pop().unwrap().unwrap_err().reason
}

#[test]
fn a_row_has_the_same_content_key_in_every_format() {
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
fn a_row_that_the_service_would_refuse_is_set_aside() {
    let attributes =
        |count: usize| (0..count).map(|at| (format!("a{at}"), json!(1))).collect::<serde_json::Map<_, _>>();
    assert!(ndjson(&json!({"userId": "u", "attributes": attributes(100)}).to_string())[0].is_ok());
    for (row, expected) in [
        (json!({"email": "a@b"}), "no userId"),
        (json!({"userId": ""}), "no userId"),
        (json!({"userId": 5}), "userId is a number"),
        (json!([1]), "not a JSON object"),
        (json!({"userId": "u", "email": "nowhere"}), "'nowhere' is not an e-mail address"),
        (json!({"userId": "u", "attributes": attributes(101)}), "at most 100"),
        (json!({"userId": "u", "attributes": {"": 1}}), "has no name"),
        (json!({"userId": "u", "attributes": {"a": 1}, "attributes.a": 2}), "occurs twice"),
        (json!({"userId": "u", "attributes": "text"}), "attributes are a text"),
        (json!({"userId": "u", "plan": "pro"}), "no column 'plan'"),
        (json!({"userId": "u", "events": {}}), "events are an object"),
        (json!({"userId": "u", "events": [{"event": "e"}]}), "event 1 has no valid timestamp: it is missing"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": 1}, {"timestamp": 1}]}), "event 2 has no name"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": 1, "count": 2}]}), "unknown member 'count'"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": "2026-01-31T08:00:00"}]}), "no time zone"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": 1_769_846_400}]}), "write 1769846400000"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": "1769846400"}]}), "write 1769846400000"),
        (json!({"userId": "u", "events": [{"event": "e", "timestamp": 1_769_846_400.5}]}), "not a whole number"),
        (json!({"userId": " u"}), "blanks around the userId ' u'"),
        (json!({"userId": "1002.0"}), "write 1002"),
        (json!({"userId": "1.23457E+15"}), "has rounded"),
        (json!({"userId": "#N/A"}), "an error value"),
        (json!({"userId": "a\nb"}), "line break"),
    ] {
        assert!(reason(&row).contains(expected), "{row}: {}", reason(&row));
    }
    for (line, expected) in [
        (r#"{"userId":"u""#, "line 1: the row is not valid JSON"),
        (r#"{"userId":"u1","userId":"u2"}"#, "'userId' occurs twice"),
        (r#"{"userId":"u","attributes":{"a":1,"a":2}}"#, "'a' occurs twice"),
        (r#"{"userId":"u","attributes":"{\"a\":1,\"a\":2}"}"#, "'a' occurs twice"),
        (r#"{"userId":"u","events":[{"event":"e","event":"f","timestamp":1}]}"#, "event 1: 'event' occurs twice"),
        ("{\"userId\":\"u\0\"}", "not valid JSON"),
    ] {
        let reason = ndjson(line).pop().unwrap().unwrap_err().reason;
        assert!(reason.contains(expected), "{line}: {reason}");
    }
}

#[test]
fn values_that_the_contract_does_not_mention_are_sent_unchanged() {
    let line =
        r#"{"userId":"u","attributes":{"a":1.50,"b":[1, {"c d": "e f"}],"c":9223372036854775808,"d":-0,"e":{}}}"#;
    let sent = String::from_utf8(ndjson(line).pop().unwrap().unwrap().body(true)).unwrap();
    let exact = r#"{"userId":"u","attributes":{"a":1.50,"b":[1,{"c d":"e f"}],"c":9223372036854775808,"d":-0,"e":{}}}"#;
    assert_eq!(sent, exact);
    let found = csv("userId,attributes.a:number,attributes.b:json\nu,1.50,\"[1, 2]\"\nv,\"1,5\",\nw,,{\n");
    assert_eq!(found[0].clone().unwrap().attributes["a"], AttributeValue::Json("1.50".into()));
    assert_eq!(found[0].clone().unwrap().attributes["b"], AttributeValue::Json("[1,2]".into()));
    assert!(found[1].clone().unwrap_err().reason.contains("'1,5' in the column attributes.a is not a number"));
    assert!(found[2].clone().unwrap_err().reason.contains("is not JSON"));
}

fn sent_of(rows: &[Result<Upsert, UnsendableRow>]) -> Vec<String> {
    let shown = |row: &Result<Upsert, UnsendableRow>| match row {
        Ok(upsert) => String::from_utf8(upsert.body(true)).unwrap(),
        Err(aside) => aside.reason.clone(),
    };
    rows.iter().map(shown).collect()
}

#[test]
fn tables_as_spreadsheets_write_them_are_read() {
    let expected = [
        r#"{"userId":"u1","email":"a@b.c","attributes":{"n":5,"plan":" pro "}}"#,
        r#"{"userId":"ü2","attributes":{"n":-7}}"#,
    ];
    let plain = "userId,email,attributes.plan,attributes.n:integer,,\r\n u1\u{a0}, a@b.c , pro ,5.0,,\r\n,,,,,\r\n\u{feff}ü2,,,-7,,,,\r\n , ,,,,\r\n";
    let utf16 = |text: &str, unit: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(unit).collect::<Vec<u8>>();
    let mut forms = vec![plain.as_bytes().to_vec(), format!("\u{feff}{plain}").into_bytes()];
    for separator in [";", "\t", "|"] {
        let other = plain.replace(',', separator);
        forms.push(other.clone().into_bytes());
        forms.push(format!("sep={separator}\r\n{other}").into_bytes());
        forms.push(utf16(&format!("\u{feff}{other}"), u16::to_le_bytes));
        forms.push(utf16(&other, u16::to_be_bytes));
    }
    forms.push(plain.replace("\r\n", "\r").into_bytes());
    forms.push(format!("\n\n{plain}").into_bytes());
    for form in forms {
        let found = rows(|take| read_csv(form.as_slice(), take));
        assert_eq!(sent_of(&found), expected, "{}", String::from_utf8_lossy(&form));
    }
}

#[test]
fn errors_of_spreadsheets_are_reported_with_their_line() {
    let text = b"userId,attributes.plan,attributes.n:integer\n\
        1002.0,pro,1\n\n\
        u2,\"two\nlines\",2\n\
        u3;pro;3\n\
        u4,\"open,4\n\
        u5,\"x\",5\n\
        u6,\xe9,6\n\
        u7,nul\0,7\n\
        userId,attributes.plan,attributes.n:integer\n\
        u8,5\" disk,8\n\
        u9,,5.5\n\
        u10,ok,10,more\n\
        u11,\"never closed,11\n\
        u12,ok,12";
    let found = sent_of(&rows(|take| read_csv(text.as_slice(), take)));
    for (at, expected) in [
        "line 2: a program has changed the userId to the number '1002.0': write 1002",
        r#"{"userId":"u2","attributes":{"n":2,"plan":"two\nlines"}}"#,
        "line 6: it has 1 cells, separated by ',', but there are 3 columns",
        "line 7: the quote that begins cell 2 is not closed",
        r#"{"userId":"u5","attributes":{"n":5,"plan":"x"}}"#,
        "line 9: the cell of attributes.plan is not UTF-8: save the file as 'CSV UTF-8', or name its --encoding",
        "line 10: the cell of attributes.plan contains a NUL byte",
        "line 11: it repeats the header",
        "line 12: cell 2 contains a quote",
        "line 13: '5.5' in the column attributes.n is not an integer",
        "line 14: it has 4 cells",
        "line 15: the quote that begins cell 2 is not closed",
        r#"{"userId":"u12","attributes":{"n":12,"plan":"ok"}}"#,
    ]
    .into_iter()
    .enumerate()
    {
        assert!(found[at].starts_with(expected), "{}", found[at]);
    }
    assert_eq!(found.len(), 13);
}

#[test]
fn a_byte_order_mark_before_a_line_is_ignored() {
    let found = ndjson("\u{feff}{\"userId\":\"u1\"}\r\n\r\n\u{feff}{\"userId\":\"u2\"}\n{\n");
    assert_eq!(sent_of(&found)[..2], [r#"{"userId":"u1"}"#, r#"{"userId":"u2"}"#]);
    assert!(sent_of(&found)[2].starts_with("line 4: "), "{found:?}");
    let utf16: Vec<u8> = "{\"userId\":\"ü\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(sent_of(&rows(|take| read_ndjson(utf16.as_slice(), take))), [r#"{"userId":"ü"}"#]);
    assert!(ndjson("").is_empty());
}

#[test]
fn cells_must_fit_the_type_of_their_column() {
    let found = csv(
        "userId,attributes.n:integer,attributes.b:boolean,attributes.a:b\nu1,x,,\nu2,,maybe,\nu3,,,007\nu4\n,1,,\n",
    );
    let reasons: Vec<Option<String>> = found.iter().map(|row| row.clone().err().map(|aside| aside.reason)).collect();
    assert!(reasons[0].as_deref().unwrap().contains("'x' in the column attributes.n is not an integer"));
    assert!(reasons[1].as_deref().unwrap().contains("neither true nor false"));
    assert_eq!(found[2].clone().unwrap().attributes["a:b"], AttributeValue::Text("007".into()), "a text by default");
    assert!(reasons[3].as_deref().unwrap().contains("1 cells, separated by ',', but there are 4 columns"));
    assert_eq!(found[3].clone().unwrap_err().user_id.as_deref(), Some("u4"));
    assert!(reasons[4].as_deref().unwrap().contains("no userId"));
}

#[test]
fn wrong_columns_are_refused_before_any_row_is_read() {
    for (header, expected) in [
        ("", "empty"),
        ("email,attributes.x\n", "no column userId"),
        ("userId,plan\nu,p\n", "no column 'plan'"),
        ("userId,attributes.a,attributes.a:integer\n", "occurs twice"),
        ("userId,attributes.\n", "has no name"),
        ("\u{feff}", "empty"),
        ("sep=;\n", "empty"),
        (",,\n", "no column userId"),
        ("user;email\n", "no column 'user'"),
        ("userId,\"email\nu1,x\n", "line 1: the quote that begins cell 2 is not closed"),
    ] {
        let refused = read_csv(header.as_bytes(), &mut |_| panic!("a row was read")).unwrap_err();
        assert!(refused.to_string().contains(expected), "{header}: {refused}");
    }
}

#[test]
fn p8_an_endless_row_takes_limited_memory() {
    let endless = || std::io::Read::take(std::io::repeat(b'x'), 1 << 24);
    let header = b"userId\n\"".as_slice();
    let found = rows(|take| read_csv(std::io::Read::chain(header, endless()).chain(b"\nu\n".as_slice()), take));
    assert!(found[0].clone().unwrap_err().reason.contains("longer than 1048576 bytes"));
    assert_eq!((found.len(), found[1].clone().unwrap().user_id), (2, "u".to_owned()));
    let end = b"\n{\"userId\":\"u\"}\n".as_slice();
    let found = rows(|take| read_ndjson(std::io::Read::chain(endless(), end), take));
    assert!(found[0].clone().unwrap_err().reason.contains("longer than 1048576 bytes"));
    assert_eq!((found.len(), found[1].clone().unwrap().user_id), (2, "u".to_owned()));
}
