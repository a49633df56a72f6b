//! Finds identifiers in every spelling, and nothing else.

use super::*;

fn matcher(named: &[(IdentifierKind, &str)]) -> IdentifierMatcher {
    let identifiers: Vec<_> =
        named.iter().map(|(kind, text)| Identifier::read(*kind, text).expect("names somebody")).collect();
    IdentifierMatcher::new(&identifiers)
}

const MAIL: (IdentifierKind, &str) = (IdentifierKind::Email, "zoë+a@example.com");

#[test]
fn p9_every_spelling_is_found_in_a_text() {
    let matcher = matcher(&[MAIL, (IdentifierKind::VisitorUuid, "2F1C9D6E-0B7A-4C55-9A40-1D2E3F405162")]);
    for text in [
        "zoë+a@example.com",
        "write to ZOË+A@Example.COM.",
        r#"{"mail":"zo\u00eb\u002ba@example.com"}"#,
        r#"{"mail":"\nzo\u00EB+a@example.com"}"#,
        r#"{"attributes":"{\"mail\":\"zo\\u00EB+a@example.com\"}"}"#,
        r#"{"a":"{\"b\":\"{\\\"mail\\\":\\\"zo\\\\u00EB%2Ba@example.com\\\"}\"}"}"#,
        r"a reject: zo\xeb+a@example.com",
        "https://x.example/?m=zo%C3%AB%2Ba%40example.com&b=1",
        r"https:\/\/x.example\/?m=zo%c3%ab%2Ba@example.com",
        "連絡はzoë+a@example.comまで",
        "v=2f1c9d6e-0B7A-4c55-9a40-1d2e3f405162",
    ] {
        assert!(matcher.is_in_text(text.as_bytes()) && matcher.may_be_in(text.as_bytes()), "{text}");
        let redacted = matcher.redacted(text).unwrap();
        assert!(redacted.contains(ERASED) && !matcher.is_in_text(redacted.as_bytes()), "{text}: {redacted}");
    }
}

#[test]
fn p9_an_identifier_with_control_characters_is_found() {
    let matcher = matcher(&[(IdentifierKind::UserId, "bob\t77\n")]);
    for text in [r#"{"userId":"bob\t77\n"}"#, r#"{"userId":"bob\u000977\u000A"}"#, r"of bob\t77\n"] {
        assert!(matcher.may_be_a_field(text.as_bytes()) && matcher.may_be_in(text.as_bytes()), "{text}");
        assert!(matcher.is_in_text(text.as_bytes()), "{text}");
        assert!(matcher.count_in_raw(text.as_bytes()).unwrap().0 > 0, "{text}");
    }
}

#[test]
fn p9_an_identifier_in_latin1_is_found_and_all_other_bytes_stay() {
    let matcher = matcher(&[MAIL]);
    let text = b"\xe9: ZO\xcb+a@example.com, zo\xc3\xab+a@example.com \xff";
    assert!(matcher.may_be_in(text) && matcher.is_in_text(text));
    assert_eq!(matcher.redacted_bytes(text).unwrap(), b"\xe9: [erased], [erased] \xff");
    assert_eq!(matcher.redacted_bytes(b"\xe9: Zo\xe9+a@example.com"), None);
}

#[test]
fn p9_composed_and_decomposed_letters_are_found() {
    let matcher = matcher(&[
        (IdentifierKind::Email, "jürgen.öz@exämple.de"),
        (IdentifierKind::UserId, "Tiến-4711"),
        (IdentifierKind::Email, "νίκος@x.gr"),
    ]);
    for (text, rest) in [
        ("to JÜRGEN.öz@Exämple.de!", "to [erased]!"),
        ("to ju\u{308}rgen.O\u{308}z@exa\u{308}mple.de, b", "to [erased], b"),
        ("to jürgen.öz@xn--exmple-cua.de.", "to [erased]."),
        ("to jürgen.o\u{308}z@XN--EXMPLE-CUA.DE/", "to [erased]/"),
        (r#"{"a":"ju\u0308rgen.o\u0308z@xn--exmple-cua.de"}"#, r#"{"a":"[erased]"}"#),
        (r#"{"a":"j\u00fcrgen.o\u0308z@exa\u0308mple.de\n"}"#, r#"{"a":"[erased]\n"}"#),
        ("?m=ju%CC%88rgen.%c3%b6z%40exa%cc%88mple.de&b", "?m=[erased]&b"),
        ("Tie\u{302}\u{301}n-4711 or Ti\u{ea}\u{301}n-4711.", "[erased] or [erased]."),
        ("ΝΊΚΟΣ@x.gr", "[erased]"),
    ] {
        let is_a_field = matcher.may_be_a_field(text.as_bytes()) || text.starts_with('?');
        assert!(matcher.may_be_in(text.as_bytes()) && is_a_field, "{text}");
        assert_eq!(matcher.redacted(text).as_deref(), Some(rest), "{text}");
    }
    for text in [
        "jurgen.oz@example.de",
        "TIẾN-4711",
        "Tien-4711",
        "ti\u{1ebf}n-4711",
        "ajürgen.öz@exämple.de",
        "jürgen.öz@exämple.dex",
    ] {
        assert_eq!(matcher.redacted(text), None, "{text}");
    }
}

#[test]
fn p9_the_fast_test_of_fields_knows_every_parsed_spelling() {
    let uuid = "2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162";
    for (kind, value, written) in [
        (IdentifierKind::VisitorUuid, uuid, "2F1C9D6E0B7A4C559A401D2E3F405162"),
        (IdentifierKind::Session, uuid, "{2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162}"),
        (IdentifierKind::UserId, "K-1", "\u{212a}-1"),
        (IdentifierKind::UserId, "a;b", "a\u{37e}b"),
    ] {
        let identifier = Identifier::read(kind, written).unwrap();
        assert_eq!(Some(&identifier), Identifier::read(kind, value).as_ref(), "{written}");
        let field = format!(r#"{{"id":"{written}"}}"#);
        assert!(IdentifierMatcher::new(&[identifier]).may_be_a_field(field.as_bytes()), "{written}");
    }
    // The table contains all letters that are composed to ASCII, and no others.
    let composed: Vec<String> =
        ('\u{80}'..=char::MAX).map(String::from).filter(|letter| crate::model::composed(letter).is_ascii()).collect();
    assert_eq!(composed.len(), COMPOSED_TO_ASCII.len(), "{composed:?}");
    assert!(COMPOSED_TO_ASCII.iter().all(|letter| composed.iter().any(|found| found == letter)));
}

#[test]
fn p9_raw_bytes_are_searched_for_every_spelling() {
    let mail = Identifier::read(IdentifierKind::Email, "jürgen@exämple.de").unwrap();
    let odd = "ju\u{308}rgen@ｅｘämple.de";
    let spellings = Spellings::from([(mail.clone(), [odd.to_owned()].into())]);
    let matcher = IdentifierMatcher::with_spellings(&[mail], &spellings);
    for text in [
        "jürgen@exämple.de",
        "ju\u{308}rgen@exa\u{308}mple.de",
        "JU\u{308}RGEN@XN--EXMPLE-CUA.DE",
        "jürgen@xn--exmple-cua.de",
        r"ju\u0308rgen@exa\u0308mple.de",
        "ju%cc%88rgen%40xn--exmple-cua.de",
        odd,
    ] {
        assert_eq!(matcher.count_in_raw(text.as_bytes()).unwrap().0, 1, "{text}");
    }
}

#[test]
fn p9_a_longer_identifier_of_another_person_is_not_found() {
    let matcher = matcher(&[
        (IdentifierKind::Email, "a@x.de"),
        (IdentifierKind::UserId, "user-000123"),
        (IdentifierKind::UserId, "b7"),
        (IdentifierKind::VisitorId, "5"),
    ]);
    for text in ["maria@x.de", "j.a@x.de", "a@x.des", "a@x.de.example", "user-0001234", "User-000123", "b7 5", "5"] {
        assert!(!matcher.is_in_text(text.as_bytes()), "{text}");
        assert_eq!(matcher.redacted(text), None);
    }
    for text in ["a@x.de", "<a@x.de>, b", "user-000123-b", "b7", r#"{"id":"b7"}"#] {
        assert!(matcher.is_in_text(text.as_bytes()), "{text}");
    }
    assert_eq!(matcher.redacted("to a@x.de, a@x.de and maria@x.de").unwrap(), "to [erased], [erased] and maria@x.de");
}

#[test]
fn p9_identifiers_that_overlap_are_replaced_together() {
    let matcher = matcher(&[
        (IdentifierKind::UserId, "anna.smith"),
        (IdentifierKind::Email, "anna.smith@example.org"),
        (IdentifierKind::UserId, "example.org:7"),
        (IdentifierKind::UserId, "shop:anna.smith"),
    ]);
    for (text, rest) in [
        ("to anna.smith@example.org, anna.smith.", "to [erased], [erased]."),
        ("anna.smith@example.org:7 left", "[erased] left"),
        (r#"{"id":"shop:anna.smith@example.org"}"#, r#"{"id":"[erased]"}"#),
        ("?u=anna.smith%40example.org&v", "?u=[erased]&v"),
    ] {
        assert_eq!(matcher.redacted(text).as_deref(), Some(rest), "{text}");
        assert!(!matcher.is_in_text(rest.as_bytes()), "{rest}");
    }
}

#[test]
fn p9_numbers_and_service_words_do_not_match_in_texts() {
    let matcher = matcher(&[
        (IdentifierKind::UserId, "4711000"),
        (IdentifierKind::UserId, "responseGroupUid"),
        (IdentifierKind::UserId, "true"),
        (IdentifierKind::UserId, "annamaria"),
    ]);
    let page = r#"{"data":[{"response":4711000,"responseGroupUid":"g","is":true,"note":"4711000"}]}"#;
    assert_eq!(matcher.redacted(page), None);
    assert_eq!((matcher.not_in_texts(), matcher.not_in_bytes()), (3, 4));
    assert!(matcher.may_be_a_field(page.as_bytes()), "fields are searched for numbers");
    assert!(matcher.is_in_text(b"annamaria") && matcher.count_in_raw(&b"annamaria"[..]).unwrap().0 == 0);
}

#[test]
fn p9_raw_bytes_are_searched_across_reads() {
    let matcher = matcher(&[MAIL, (IdentifierKind::UserId, "short")]);
    let spelled = ["zoë+a@example.com", r"zo\u00EB+a@example.com", "zo%C3%AB%2Ba%40example.com"];
    for spelling in spelled {
        let mut bytes = vec![0xffu8; READ_BYTES - 7];
        bytes.extend(spelling.as_bytes());
        bytes.extend([0; 100]);
        bytes.extend(spelling.as_bytes());
        let length = bytes.len() as u64;
        assert_eq!(matcher.count_in_raw(bytes.as_slice()).unwrap(), (2, length), "{spelling}");
        // The same with small reads.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let count = self.0.len().min(5).min(into.len());
                let (now, later) = self.0.split_at(count);
                into[..count].copy_from_slice(now);
                self.0 = later;
                Ok(count)
            }
        }
        let tail = &bytes[READ_BYTES - 50..];
        assert_eq!(matcher.count_in_raw(Slow(tail)).unwrap().0, 2, "{spelling}");
    }
    assert_eq!((matcher.not_in_bytes(), matcher.count_in_raw(&b"short"[..]).unwrap().0), (1, 0));
}
