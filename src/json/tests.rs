//! The scanner accepts only what serde_json accepts, and returns the same slices.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::value::RawValue;

use super::*;

/// Scans a text that contains one value.
fn scanned(text: &str) -> Option<&str> {
    let mut scanner = Scanner::new(text);
    let value = scanner.value()?;
    scanner.is_at_end().then_some(value)
}

fn parsed(text: &str) -> Option<&str> {
    serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
}

/// Scans a container and returns its values with the names of members.
fn scanned_parts(text: &str) -> Option<Vec<(&str, &str)>> {
    let (mut scanner, mut parts) = (Scanner::new(text), Vec::new());
    if scanner.peek()? == b'[' {
        scanner.each_item(|scanner| scanner.value().map(|value| parts.push(("", value))))?;
    } else {
        scanner.each_member(|scanner, name| scanner.value().map(|value| parts.push((name, value))))?;
    }
    scanner.is_at_end().then_some(parts)
}

#[test]
fn values_are_returned_as_written() {
    for text in [
        "0",
        "-0",
        "10",
        "-1.50",
        "1e3",
        "1E+0",
        "0.0e-10",
        "true",
        "false",
        "null",
        r#""""#,
        r#""a""#,
        r#""\"\\\/\b\f\n\r\t""#,
        r#""\u00e9\ud800""#,
        "\"\u{7f}é😀\"",
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "[1]",
        "[[],{},[{}]]",
        r#"{"a":1}"#,
        r#"{"a":{"b":[1,2]},"a":2}"#,
        "[\n1 ,\t2\r\n]",
        r#"{ "" : [ null , "]}" ] }"#,
        "\"a b\"",
    ] {
        assert_eq!(scanned(text), Some(text), "{text}");
        assert_eq!(parsed(text), Some(text), "{text}");
        assert_eq!(scanned(&format!(" \n{text}\t ")), Some(text), "{text}");
    }
}

#[test]
fn invalid_json_is_refused() {
    for text in [
        "",
        " ",
        "-",
        "01",
        "-01",
        "1.",
        ".5",
        "-.5",
        "1.e5",
        "1e",
        "1e+",
        "+1",
        "0x1",
        "1 2",
        "tru",
        "truex",
        "nul",
        "nan",
        "'a'",
        "\"",
        "\"a",
        r#""\"#,
        r#""\""#,
        r#""\x""#,
        r#""\u00""#,
        r#""\u00g0""#,
        r#""\u123"#,
        "\"a\nb\"",
        "\"\u{0}\"",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[,]",
        "[1 2]",
        "[1}",
        "{",
        "}",
        "{]",
        "{,}",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a" 1}"#,
        "{1:2}",
        r#"{a:1}"#,
        r#"{"a":1]"#,
        "[{]",
        r#"[{"a":[}]"#,
        "[] []",
        "{}x",
        "\u{a0}1",
        "[1\u{b}]",
        "[:]",
        r#"["a":1]"#,
    ] {
        assert_eq!(scanned(text), None, "{text}");
        assert_eq!(parsed(text), None, "{text}");
        assert_eq!(scanned_parts(text), None, "{text}");
    }
}

#[test]
fn nesting_deeper_than_64_levels_is_refused() {
    let nested = |depth: usize, open: &str, close: &str| format!("{}{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in [("[", "]"), (r#"{"a":["#, "]}")] {
        let levels = DEPTH_MAX as usize / open.matches(['[', '{']).count();
        let (most, more) = (nested(levels, open, close), nested(levels + 1, open, close));
        assert_eq!(scanned(&most), Some(most.as_str()));
        assert_eq!(scanned(&more), None);
        assert!(parsed(&more).is_some());
    }
    // A container that is read member by member does not count as a level.
    let more = nested(DEPTH_MAX as usize + 1, "[", "]");
    assert_eq!(scanned_parts(&more), Some(vec![("", &more[1..more.len() - 1])]));
}

/// Concatenated pieces of JSON, which are seldom valid JSON.
fn pieces() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\n",
        "\u{1}",
        "\"",
        "\\",
        "\\u",
        "00e9",
        "a",
        "é",
        "\"a\"",
        "\"a\":",
        "\"\\n\"",
        "0",
        "1",
        "-",
        ".",
        "e",
        "+",
        "12.5e3",
        "true",
        "null",
        "false",
        "nul",
        "[1,2]",
        "{\"b\":[]}",
        "\"\\ud800\"",
    ]);
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Valid JSON with various whitespace.
fn json() -> impl Strategy<Value = String> {
    let leaf = select(vec!["null", "true", "-1.5e3", "0", "\"\"", "\"a\\\"b\"", "\"é\\u0041\"", "\"]\"", "\"{,:\""])
        .prop_map(str::to_owned);
    let space = select(vec!["", "", " ", "\n\t"]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let (inner, other) = (inner.clone(), inner);
        prop_oneof![
            (vec(inner, 0..5), space.clone())
                .prop_map(|(items, space)| format!("[{space}{}{space}]", items.join(&format!("{space},{space}")))),
            (vec(other, 0..5), space.clone()).prop_map(|(values, space)| {
                let members: Vec<String> = values.iter().map(|value| format!("\"k\"{space}:{space}{value}")).collect();
                format!("{{{space}{}{space}}}", members.join(&format!("{space},{space}")))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn p1_the_scanner_accepts_what_serde_json_accepts(text in pieces()) {
        prop_assert_eq!(scanned(&text), parsed(&text), "{}", text);
    }

    #[test]
    fn p1_the_parts_of_a_container_are_those_of_serde_json(text in json()) {
        prop_assert_eq!(scanned(&text), parsed(&text));
        if text.starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(scanned_parts(&text).unwrap(), items.iter().map(|item| ("", item.get())).collect::<Vec<_>>());
        } else if text.starts_with('{') {
            let parts = scanned_parts(&text).unwrap();
            prop_assert!(parts.iter().all(|(name, value)| *name == "k" && parsed(value) == Some(*value)));
            let length = text.matches("\"k\"").count();
            prop_assert_eq!(parts.iter().map(|(_, value)| 1 + value.matches("\"k\"").count()).sum::<usize>(), length);
        }
    }

    #[test]
    fn special_bytes_are_found(chunk in any::<[u8; CHUNK_BYTES]>(), plain in any::<[bool; CHUNK_BYTES]>()) {
        let mut chunk = chunk;
        chunk.iter_mut().zip(plain).filter(|(_, plain)| *plain).for_each(|(byte, _)| *byte = b'a');
        prop_assert_eq!(special_bytes(&chunk), special_bytes::portable::special_bytes(&chunk));
    }

    #[test]
    fn p1_damage_is_detected_as_by_serde_json(text in json(), at in any::<prop::sample::Index>(), byte in prop::option::of(0_u8..128)) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        match byte {
            Some(byte) => bytes[at] = byte,
            None => drop(bytes.remove(at)),
        }
        if let Ok(text) = String::from_utf8(bytes) {
            prop_assert_eq!(scanned(&text), parsed(&text), "{}", text);
        }
    }
}
