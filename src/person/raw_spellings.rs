//! The spellings of an identifier in the raw bytes of a file: composed and decomposed, in upper and lower case, plain
//! and escaped.

use std::collections::BTreeSet;

use crate::model::{Identifier, IdentifierKind, Spellings};

/// Minimum length of an identifier that raw bytes are searched for. Shorter ones occur in any file by chance.
const BYTES_MIN: usize = 6;
/// Minimum length of an identifier of ASCII letters only, because files contain words, such as names of columns.
const WORD_BYTES_MIN: usize = 12;

/// Returns true if the value is long enough that it does not occur in a file by chance.
pub(super) fn is_distinctive(value: &str) -> bool {
    let is_word = value.bytes().all(|byte| byte.is_ascii_alphabetic());
    value.len() >= if is_word { WORD_BYTES_MIN } else { BYTES_MIN }
}

/// Returns all spellings of the identifier, with ASCII letters in lower case. `spellings` are the known spellings of
/// identifiers.
pub(super) fn raw_spellings(identifier: &Identifier, spellings: &Spellings) -> BTreeSet<String> {
    let forms = identifier.all_forms(spellings);
    let cased = forms.iter().flat_map(|form| cases(form));
    let encoded = cased.flat_map(|form| encodings(identifier.kind, &form));
    encoded.map(|spelling| spelling.to_ascii_lowercase()).collect()
}

/// Returns a value as it is. If the value has letters beyond ASCII, also returns it in lower and in upper case: the
/// search ignores only the case of ASCII letters.
fn cases(value: &str) -> Vec<String> {
    match value.is_ascii() {
        true => vec![value.to_owned()],
        false => vec![value.to_owned(), value.to_lowercase(), value.to_uppercase()],
    }
}

/// Returns a value as plain text, in JSON with several sets of escaped characters, and percent-encoded.
fn encodings(kind: IdentifierKind, value: &str) -> Vec<String> {
    let escaped = |also: &[char]| {
        let letter = |letter: char| match letter {
            '"' | '\\' => format!("\\{letter}"),
            // With `also`, control characters are written as numbers.
            '\t' if also.is_empty() => "\\t".to_owned(),
            '\n' if also.is_empty() => "\\n".to_owned(),
            '\r' if also.is_empty() => "\\r".to_owned(),
            _ if !letter.is_ascii() || letter.is_control() || also.contains(&letter) => {
                let mut units = [0; 2];
                letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
            }
            _ => letter.to_string(),
        };
        value.chars().map(letter).collect::<String>()
    };
    let percent = |plain: &[u8]| {
        let byte = |byte: u8| match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) => {
                (byte as char).to_string()
            }
            byte => format!("%{byte:02x}"),
        };
        value.bytes().map(byte).collect::<String>()
    };
    let mut all = vec![value.to_owned(), escaped(&[]), escaped(&['+', '@', '/', '&', '<', '>', '\''])];
    all.extend([percent(b""), percent(b"@"), percent(b"@+"), value.replace('/', "\\/")]);
    if matches!(kind, IdentifierKind::VisitorUuid | IdentifierKind::Session) {
        all.push(value.replace('-', ""));
    }
    all
}
