//! Normal forms, by which two spellings of the same identifier become equal: composed letters, case-folded mail
//! addresses, and domains in Unicode.
//!
//! Letters are composed by canonical equivalence (NFC) and never by compatibility (NFKC). So `ﬁ` and `fi`, or `①` and
//! `1`, stay different: as user ids they may name two people. Only domains are mapped further, by UTS 46: full-width
//! letters, soft hyphens and `xn--` labels name the same host.
//!
//! Detects characters that change how a screen shows a text. Text from outside must not reach a screen with such
//! characters.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

/// Returns the text with composed letters (NFC).
pub fn composed(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfc().collect() }
}

/// Returns the text with decomposed letters (NFD), as some systems write it.
pub fn decomposed(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfd().collect() }
}

/// Returns the text in lower case with composed letters. A final sigma (`ς`) becomes a plain sigma (`σ`).
pub fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let lower = text.nfc().flat_map(char::to_lowercase).map(|letter| if letter == 'ς' { 'σ' } else { letter });
    // A lower-case letter can have a composed form although its upper-case letter has none.
    lower.nfc().collect()
}

/// Returns a UUID in lower case and without braces, as the lists of the service send it. Any other text is unchanged,
/// also the digits of a UUID without hyphens, which may be another kind of id.
pub fn uuid_in_normal_form(text: Cow<'_, str>) -> Cow<'_, str> {
    const HYPHENATED_LENGTH: usize = 36;
    if text.len() == HYPHENATED_LENGTH && !text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return text;
    }
    match uuid::Uuid::try_parse(&text) {
        Ok(uuid) if text.contains('-') => Cow::Owned(uuid.hyphenated().to_string()),
        _ => text,
    }
}

/// Returns a mail address in its normal form; `None` if the text is not a mail address.
pub fn mail_address(text: &str) -> Option<String> {
    let (local, domain) = text.trim().rsplit_once('@')?;
    let domain = unicode_domain(domain);
    (is_local_part(local) && is_domain(&domain)).then(|| format!("{}@{domain}", folded(local)))
}

/// Returns a mail address with its domain in ASCII (`xn--`); `None` if the domain is ASCII already or has no ASCII
/// form.
pub fn mail_address_in_ascii(address: &str) -> Option<String> {
    let (local, domain) = address.rsplit_once('@')?;
    if domain.is_ascii() {
        return None;
    }
    idna::domain_to_ascii(domain).ok().map(|domain| format!("{local}@{domain}"))
}

/// Returns a domain, or a label of one, in Unicode and without a final dot. A text that is not a domain is case-folded.
pub fn unicode_domain(text: &str) -> String {
    let mapped = match idna::domain_to_unicode(text) {
        (mapped, Ok(())) => mapped,
        (_, Err(_)) => folded(text),
    };
    mapped.strip_suffix('.').map(str::to_owned).unwrap_or(mapped)
}

/// Returns true if the text can be the part of an address before the `@`. A text in quotes may have all characters
/// except control characters. Without quotes, white space and some ASCII characters are not allowed either.
fn is_local_part(text: &str) -> bool {
    if text.len() > 2 && text.starts_with('"') && text.ends_with('"') {
        return !text.chars().any(char::is_control);
    }
    let is_special = |letter: char| letter.is_whitespace() || letter.is_control() || "()<>,;:\\\"[]@".contains(letter);
    !text.is_empty() && !text.chars().any(is_special)
}

/// Returns true if the text can be the part of an address after the `@`: a host name, or an IP address in brackets.
fn is_domain(text: &str) -> bool {
    if let Some(literal) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return !literal.is_empty()
            && literal.chars().all(|letter| letter.is_ascii_alphanumeric() || ".:-".contains(letter));
    }
    let is_label_letter = |letter: char| match letter.is_ascii() {
        true => letter.is_ascii_alphanumeric() || "-_".contains(letter),
        false => !letter.is_whitespace() && !letter.is_control(),
    };
    let is_visible = |letter: char| letter.is_alphanumeric() || !letter.is_ascii();
    let is_label = |label: &str| label.chars().any(is_visible) && label.chars().all(is_label_letter);
    text.split('.').all(is_label)
}

/// Returns true if a character controls the display instead of being shown. Terminals obey control characters, and
/// direction marks make a text look different from what it is.
pub fn is_display_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_all_spellings_of_an_address_have_one_normal_form() {
        let same = |address: &str, others: &[&str]| {
            for other in others {
                assert_eq!(mail_address(other).as_deref(), Some(address), "{other:?}");
            }
        };
        same(
            "jürgen@exämple.de",
            &[
                "jürgen@exämple.de",
                "ju\u{308}rgen@exa\u{308}mple.de",
                "JÜRGEN@EXÄMPLE.DE",
                " jürgen@xn--exmple-cua.de\t",
                "JU\u{308}RGEN@XN--EXMPLE-CUA.DE",
                "jürgen@exämple.de.",
                "jürgen@exämple。de",
                "jürgen@ｅｘämple.de",
            ],
        );
        same("anna@example.com", &["ANNA@example.com.", "anna@ｅｘａｍｐｌｅ．ｃｏｍ", "anna@exam\u{ad}ple.com"]);
        // Several marks on one letter; a final sigma; a letter whose capital has no composed form.
        same("ti\u{1ebf}n@x.vn", &["ti\u{ea}\u{301}n@x.vn", "tie\u{302}\u{301}n@X.vn", "TI\u{1ebe}N@x.vn"]);
        same("νικοσ@x.gr", &["νικος@x.gr", "ΝΙΚΟΣ@x.gr"]);
        same("\u{1f0}@x.de", &["J\u{30c}@x.de", "\u{1f0}@x.de"]);
        // Compatibility forms before the @ are different letters, and so are `ß` and `ss`.
        for (left, right) in [
            ("ﬁa@x.de", "fia@x.de"),
            ("ａnna@x.de", "anna@x.de"),
            ("groß@x.de", "gross@x.de"),
            ("a@straße.de", "a@strasse.de"),
        ] {
            assert_ne!(mail_address(left), mail_address(right), "{left}");
        }
    }

    #[test]
    fn p9_a_text_that_is_not_an_address_is_not_normalized() {
        for text in [
            "",
            " ",
            "7",
            "on file",
            "n/a",
            "unknown",
            "anna",
            "@",
            "redacted@",
            "@example.com",
            "a b@example.com",
            "a@b c",
            "a@b@c.de",
            "Anna <anna@x.de>",
            "anna@x..de",
            "anna@.de",
            "a@-",
            "a@n/a",
            "a,b@x.de",
            "a@x.de;b@x.de",
            "a@[]",
        ] {
            assert_eq!(mail_address(text), None, "{text:?}");
        }
        for text in [
            "a@b",
            "o'neil+x@sub.example.co",
            "\"a b\"@x.de",
            "a@[192.168.0.1]",
            "a_b@x_y.de",
            "名前@例え.jp",
            "i@😀.ws",
            "7@7.de",
        ] {
            assert!(mail_address(text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn an_address_with_a_unicode_domain_has_an_ascii_form() {
        assert_eq!(mail_address_in_ascii("jürgen@exämple.de").as_deref(), Some("jürgen@xn--exmple-cua.de"));
        assert_eq!(mail_address_in_ascii("jürgen@example.de"), None);
    }

    #[test]
    fn letters_of_any_script_are_not_display_controls() {
        assert!("aé日本😀\u{301}שלום\u{200d}".chars().all(|letter| !is_display_control(letter)));
        assert!("\0\u{1b}\n\u{7f}\u{9b}\u{202e}\u{2066}".chars().all(is_display_control));
    }
}
