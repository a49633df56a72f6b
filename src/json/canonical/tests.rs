//! Texts of one value have one canonical spelling; texts of different values have different spellings.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn canonical(raw: &str) -> String {
    let mut out = Vec::new();
    write_canonical(raw, &[], &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn p4_texts_of_one_value_have_one_spelling() {
    for (texts, spelling) in [
        (&["9", "9.0", "9.00", "90e-1", "0.9E1", "9e0", "9E+0"][..], "9"),
        (&["10", "1e1", "1E+1", "10.0", "100e-1"], "10"),
        (&["0", "-0", "0.0", "-0.0e5", "0e999999999999999999999"], "0"),
        (&["1.5", "1.50", "15e-1", "0.15e1"], "1.5"),
        (&["-0.25", "-25e-2", "-0.250"], "-0.25"),
        (&["0.000001", "1e-6"], "0.000001"),
        (&["1e400", "10e399", "1.0E400"], "1e400"),
        (&[r#""é""#, r#""\u00e9""#, r#""\u00E9""#], r#""é""#),
        (&[r#""a/b""#, r#""a\/b""#], r#""a/b""#),
        (&[r#""😀""#, r#""\ud83d\ude00""#, r#""\uD83D\uDE00""#], r#""😀""#),
        (&[r#""\n\t\"\\""#, r#""\u000a\u0009\u0022\u005C""#], r#""\n\t\"\\""#),
        (&[r#""\u0001\u001f""#, r#""\u0001\u001F""#], r#""\u0001\u001f""#),
        (&[r#""\ud800x""#, r#""\uD800x""#], r#""\ud800x""#),
        (
            &[r#"{"a":1,"b":[2,{"c":3,"d":4}]}"#, "{ \"b\" : [ 2.0 , {\"d\":4,\n\"\\u0063\":3} ],\t\"a\":1e0 }"],
            r#"{"a":1,"b":[2,{"c":3,"d":4}]}"#,
        ),
        (&["[]", "[ ]", " [\n]"], "[]"),
        (&["{}", "{ }"], "{}"),
        (&["null"], "null"),
    ] {
        for text in texts {
            assert_eq!(canonical(text), spelling, "{text}");
        }
        assert!(is_canonical(spelling, &[]), "{spelling}");
    }
}

#[test]
fn p4_different_values_have_different_spellings() {
    for (one, other) in [
        ("[1,2]", "[2,1]"),
        (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        ("9", r#""9""#),
        (r#""9""#, r#""9.0""#),
        ("18446744073709551616", "18446744073709551617"),
        ("100000000000000000000000000000000000000000000000000000000000000000000001", "1e71"),
        ("1e400", "1e401"),
        ("0.1", "0.10000000000000001"),
        ("null", "false"),
        (r#""\ud800""#, r#""\ufffd""#),
        (r#""e\u0301""#, r#""é""#),
        (r#"{"a":null}"#, "{}"),
        ("1e9223372036854775808", "1e9223372036854775809"),
        (r#"{"a":{"b":1}}"#, r#"{"a":1,"b":1}"#),
    ] {
        assert!(!is_same_value(one, other, &[]), "{one} and {other}");
    }
    assert!(is_same_value("100000000000000000000000000000000000000000000000000000000000000000000000", "1e71", &[]));
}

#[test]
fn a_text_that_is_no_json_stays_as_it_is() {
    for text in ["", "Wonderful, 10/10", "{\"a\":", "01", "[1,]", "1 2", "\"a\" b", "nul"] {
        assert_eq!(canonical(text), text);
    }
}

#[test]
fn p8_deep_nesting_is_compared_by_its_text() {
    let deep = |levels: usize, blank: &str| format!("{}{blank}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(is_same_value(&deep(64, ""), &deep(64, " "), &[]));
    assert!(!is_same_value(&deep(65, ""), &deep(65, " "), &[]));
    assert_eq!(canonical(&deep(200_000, "")), deep(200_000, ""));
}

#[test]
fn p4_a_new_signature_of_a_link_is_no_other_value() {
    let links = ["downloadUrl".to_owned()];
    let recording = |link: &str, text: &str| format!(r#"{{"text":"{text}","downloadUrl":"{link}"}}"#);
    let is_same = |one: &str, other: &str| is_same_value(one, other, &links);
    assert!(is_same(&recording("https://m/d?sig=1", "what?"), &recording("https://m/d?sig=2&at=9", "what?")));
    assert!(is_same(&recording("https://m/d?sig=1", "what?"), &recording("https://m/d", "what?")));
    assert!(!is_same(&recording("https://m/d?sig=1", "what?"), &recording("https://m/e?sig=1", "what?")));
    assert!(!is_same(&recording("https://m/d?sig=1", "what?"), &recording("https://m/d?sig=1", "what? 2")));
    assert!(!is_same(r#"{"a":{"downloadUrl":"m?1"}}"#, r#"{"a":{"downloadUrl":"m?2"}}"#));
    assert!(is_same(r#"{"downloadUrl":null}"#, r#"{ "downloadUrl" : null }"#));
    assert_eq!(without_query("https://m/d?sig=1?2"), "https://m/d");
}

/// A JSON value, with integers and texts.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c\"\\\\\n/é😀]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-cé\"]{0,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes a value with other whitespace, escapes, notations and orders, chosen by the bits of `random`.
fn respelled(value: &Value, random: &mut u64) -> String {
    let mut choose = || {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*random >> 33).is_multiple_of(2)
    };
    let blank = if choose() { " \n" } else { "" };
    match value {
        Value::Number(number) if choose() => format!("{blank}{number}0.00e-1"),
        Value::String(text) if choose() => {
            let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            format!("{blank}\"{escaped}\"")
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| respelled(item, random)).collect();
            format!("{blank}[{}]", items.join(&format!("{blank},")))
        }
        Value::Object(members) => {
            let is_reversed = choose();
            let mut members: Vec<_> = members
                .iter()
                .map(|(name, value)| {
                    let name = respelled(&Value::from(name.as_str()), random);
                    format!("{name}{blank}:{}", respelled(value, random))
                })
                .collect();
            if is_reversed {
                members.reverse();
            }
            format!("{blank}{{{}}}{blank}", members.join(","))
        }
        other => format!("{blank}{other}"),
    }
}

proptest! {
    #[test]
    fn p4_the_canonical_spelling_is_that_of_the_value(value in values(), other in values(), random in any::<u64>()) {
        let text = value.to_string();
        let mut random = random;
        let again = respelled(&value, &mut random);
        prop_assert_eq!(canonical(&text), canonical(&again), "{} and {}", text, again);
        prop_assert_eq!(serde_json::from_str::<Value>(&canonical(&again)).unwrap(), value.clone());
        prop_assert_eq!(canonical(&canonical(&again)), canonical(&again));
        prop_assert_eq!(is_same_value(&text, &other.to_string(), &[]), value == other);
    }
}
