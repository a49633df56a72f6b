//! One form for texts that name the same: composed letters, mail addresses without regard to case, domains as Unicode.
//!
//! Letters are composed by canonical equivalence (NFC) and never by compatibility (NFKC): `ﬁ` and `fi`, or `①` and `1`,
//! are different texts, and as ids of a customer they may be two people. Domains alone are mapped further, by the rules
//! of their own (UTS 46): there full-width letters, soft hyphens and `xn--` name the same host.

use unicode_normalization::UnicodeNormalization;

/// The text in composed letters.
pub fn composed(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfc().collect() }
}

/// The text with each letter taken apart, as some systems write it.
pub fn decomposed(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfd().collect() }
}

/// The text in composed letters of lower case; a sigma at the end of a word is any other sigma.
pub fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let lower = text.nfc().flat_map(char::to_lowercase).map(|letter| if letter == 'ς' { 'σ' } else { letter });
    // Lower case can be composable where upper case is not.
    lower.nfc().collect()
}

/// A mail address in the form in which it is compared; `None` if the text cannot be an address.
pub fn mail_address(text: &str) -> Option<String> {
    let (local, domain) = text.trim().rsplit_once('@')?;
    let domain = unicode_domain(domain);
    (is_local_part(local) && is_domain(&domain)).then(|| format!("{}@{domain}", folded(local)))
}

/// The address with its domain in the ASCII form; `None` if that is the same address, or there is none.
pub fn mail_address_in_ascii(address: &str) -> Option<String> {
    let (local, domain) = address.rsplit_once('@')?;
    if domain.is_ascii() {
        return None;
    }
    idna::domain_to_ascii(domain).ok().map(|domain| format!("{local}@{domain}"))
}

/// A domain, or a label of one, with Unicode's letters and without the dot at its end.
pub fn unicode_domain(text: &str) -> String {
    let mapped = match idna::domain_to_unicode(text) {
        (mapped, Ok(())) => mapped,
        // What is no domain still has to be told from others.
        (_, Err(_)) => folded(text),
    };
    mapped.strip_suffix('.').map(str::to_owned).unwrap_or(mapped)
}

/// Whether this may stand before the `@`: any letters beyond ASCII, and of ASCII what may stand there without quotes.
/// Quoted, anything.
fn is_local_part(text: &str) -> bool {
    if text.len() > 2 && text.starts_with('"') && text.ends_with('"') {
        return !text.chars().any(char::is_control);
    }
    let is_special = |letter: char| letter.is_whitespace() || letter.is_control() || "()<>,;:\\\"[]@".contains(letter);
    !text.is_empty() && !text.chars().any(is_special)
}

/// Whether this may stand behind it: a host, with or without dots, or an address of the net in brackets.
fn is_domain(text: &str) -> bool {
    if let Some(literal) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return !literal.is_empty()
            && literal.chars().all(|letter| letter.is_ascii_alphanumeric() || ".:-".contains(letter));
    }
    let is_of_label = |letter: char| match letter.is_ascii() {
        true => letter.is_ascii_alphanumeric() || "-_".contains(letter),
        false => !letter.is_whitespace() && !letter.is_control(),
    };
    let is_letter = |letter: char| letter.is_alphanumeric() || !letter.is_ascii();
    let is_label = |label: &str| label.chars().any(is_letter) && label.chars().all(is_of_label);
    text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_an_address_is_the_same_however_it_is_written() {
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
        // Several marks on a letter, in any order that is canonical; a sigma at the end of a word; a letter without a
        // composed capital.
        same("ti\u{1ebf}n@x.vn", &["ti\u{ea}\u{301}n@x.vn", "tie\u{302}\u{301}n@X.vn", "TI\u{1ebe}N@x.vn"]);
        same("νικοσ@x.gr", &["νικος@x.gr", "ΝΙΚΟΣ@x.gr"]);
        same("\u{1f0}@x.de", &["J\u{30c}@x.de", "\u{1f0}@x.de"]);
        // Compatibility forms before the @ are other letters, and a sharp s is no double one.
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
    fn p9_what_cannot_be_an_address_is_none() {
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
    fn an_address_has_an_ascii_form_if_its_domain_has_another() {
        assert_eq!(mail_address_in_ascii("jürgen@exämple.de").as_deref(), Some("jürgen@xn--exmple-cua.de"));
        assert_eq!(mail_address_in_ascii("jürgen@example.de"), None);
    }
}
