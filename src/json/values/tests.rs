//! Parsed values are those of serde_json, also for texts that serde_json refuses.

use proptest::prelude::*;

use super::*;

#[test]
fn lone_surrogates_are_replaced_and_reported() {
    for (raw, text, is_exact) in [
        (r#""\ud83d\ude00""#, "😀", true),
        (r#""\ud800""#, "\u{FFFD}", false),
        (r#""\udc00 x""#, "\u{FFFD} x", false),
        (r#""\ud800\ud800\udc00""#, "\u{FFFD}\u{10000}", false),
        (r#""\ud800\n""#, "\u{FFFD}\n", false),
        (r#""a\u0000b""#, "a\0b", true),
        (r#""\"\\\/\b\f\n\r\t\u00e9""#, "\"\\/\u{8}\u{c}\n\r\té", true),
    ] {
        assert_eq!(read_text(raw), Some(DecodedText { text: text.into(), is_exact }), "{raw}");
    }
    assert_eq!(read_text("5"), None);
}

#[test]
fn only_exact_64_bit_integers_are_read() {
    for (raw, integer) in [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("-0.0", Some(0)),
        ("0e999999999999999999999", Some(0)),
        ("12.0", Some(12)),
        ("-12.000", Some(-12)),
        ("1e3", Some(1000)),
        ("1.25e2", Some(125)),
        ("1200e-2", Some(12)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775807.0", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("-9223372036854775808.0", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("1e400", None),
        ("1e-1", None),
        ("1.5", None),
        ("1e99999999999999999999", None),
        ("\"12\"", None),
        ("true", None),
    ] {
        assert_eq!(read_integer(raw), integer, "{raw}");
    }
}

#[test]
fn only_a_string_of_digits_is_read_as_an_integer() {
    assert_eq!(read_digits(r#""17""#), Some(17));
    assert_eq!(read_digits(r#""-3""#), Some(-3));
    for raw in [r#""""#, r#""-""#, r#"" 17""#, r#""17.0""#, r#""+17""#, r#""9223372036854775808""#, "17"] {
        assert_eq!(read_digits(raw), None, "{raw}");
    }
}

#[test]
fn a_number_that_is_infinite_as_a_double_is_none() {
    assert_eq!(read_number("1e308"), Some(1e308));
    assert_eq!(read_number("9007199254740993"), Some(9_007_199_254_740_992.0));
    assert_eq!(read_number("1e400"), None);
    assert_eq!(read_number("-1e400"), None);
    assert_eq!(read_number("\"1\""), None);
}

#[test]
fn a_container_with_only_whitespace_is_empty() {
    assert!(is_empty_container("[ \n]") && is_empty_container("{}"));
    assert!(!is_empty_container("[0]") && !is_empty_container("\"\""));
}

proptest! {
    #[test]
    fn a_string_decodes_as_by_serde_json(text in any::<String>()) {
        let raw = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(read_text(&raw), Some(DecodedText { text: text.into(), is_exact: true }));
    }

    #[test]
    fn escaped_units_are_decoded_as_utf16(units in prop::collection::vec(any::<u16>(), 0..6)) {
        let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
        let raw = format!("\"{escapes}\"");
        let read = read_text(&raw).unwrap();
        prop_assert_eq!(read.text.as_ref(), String::from_utf16_lossy(&units));
        prop_assert_eq!(read.is_exact, String::from_utf16(&units).is_ok());
    }

    #[test]
    fn an_integer_with_a_moved_point_is_the_same(number in any::<i64>(), decimals in 0..19_usize) {
        let (sign, digits) = if number < 0 { ("-", number.unsigned_abs()) } else { ("", number.unsigned_abs()) };
        let digits = format!("{digits:020}");
        let (integer, fraction) = digits.split_at(20 - decimals);
        let raw = format!("{sign}{}.{fraction}0e{decimals}", integer.trim_start_matches('0').to_owned() + if integer.trim_start_matches('0').is_empty() { "0" } else { "" });
        prop_assert_eq!(read_integer(&raw), Some(number), "{}", raw);
    }

    #[test]
    fn no_text_causes_a_panic(raw in "\\PC{0,12}") {
        let _ = (read_text(&raw), read_integer(&raw), read_digits(&raw), read_number(&raw), read_items(&raw));
        let _ = (is_empty_container(&raw), read_entries(&raw, &mut Vec::new()));
    }
}
