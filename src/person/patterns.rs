//! Searches for a set of patterns in large texts, ignoring the case of ASCII letters.
//!
//! The spellings of an identifier in the raw bytes of a file: composed and decomposed, in upper and lower case, plain
//! and escaped.

use std::{collections::BTreeSet, ops::Range};

use aho_corasick::{AhoCorasick, MatchKind};
use regex::bytes::{Regex, RegexBuilder};

use crate::model::{Identifier, IdentifierKind, Spellings};

/// Maximum number of patterns in the regular expression. With more, the expression is large and not faster.
const REGEX_PATTERNS_MAX: usize = 64;

/// A set of patterns. Without patterns, no search finds anything.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    /// Finds all occurrences. `None` without patterns.
    automaton: Option<AhoCorasick>,
    /// Tests for any occurrence, ten times faster than the automaton: if case is ignored, only the regular expression
    /// skips several bytes at a time. `None` for too many patterns.
    regex: Option<Regex>,
}

impl Patterns {
    /// Compiles the patterns, which are plain texts.
    pub fn new(patterns: &[String]) -> Patterns {
        if patterns.is_empty() {
            return Patterns::default();
        }
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            // A prefilter searches for rare bytes. The bytes of identifiers are not rare in texts.
            .prefilter(false)
            .build(patterns);
        let expression = || patterns.iter().map(|pattern| regex::escape(pattern)).collect::<Vec<_>>().join("|");
        let is_small = patterns.len() <= REGEX_PATTERNS_MAX;
        let regex = is_small.then(|| RegexBuilder::new(&expression()).case_insensitive(true).unicode(false).build());
        Patterns {
            // Fails only for more than 2^32 patterns.
            automaton: automaton.ok(),
            // Fails if the expression is too large.
            regex: regex.and_then(Result::ok),
        }
    }

    /// Returns true if the text contains a pattern.
    pub fn any_in(&self, bytes: &[u8]) -> bool {
        match &self.regex {
            Some(regex) => regex.is_match(bytes),
            None => self.automaton.as_ref().is_some_and(|automaton| automaton.is_match(bytes)),
        }
    }

    /// Calls `found` for each occurrence, including overlapping ones, with the pattern's index and the range in the
    /// text.
    pub fn each_in(&self, bytes: &[u8], mut found: impl FnMut(usize, Range<usize>)) {
        if let Some(automaton) = self.automaton.as_ref().filter(|_| self.any_in(bytes)) {
            automaton.find_overlapping_iter(bytes).for_each(|hit| found(hit.pattern().as_usize(), hit.range()));
        }
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hits(patterns: &Patterns, text: &str) -> Vec<(usize, Range<usize>)> {
        let mut hits = Vec::new();
        patterns.each_in(text.as_bytes(), |pattern, range| hits.push((pattern, range)));
        hits
    }

    proptest! {
        #[test]
        fn the_fast_test_misses_no_pattern(
            named in prop::collection::vec("[a-cA-Cé.+|\\\\(\\[*$-]{1,4}", 1..5),
            text in "[a-cA-Cé.+|\\\\(\\[*$-]{0,40}",
        ) {
            let patterns = Patterns::new(&named);
            prop_assert!(patterns.regex.is_some());
            let fold = |text: &str| text.to_ascii_lowercase();
            let is_in = named.iter().any(|pattern| fold(&text).contains(&fold(pattern)));
            prop_assert_eq!(patterns.any_in(text.as_bytes()), is_in);
            prop_assert_eq!(!hits(&patterns, &text).is_empty(), is_in);
        }
    }

    #[test]
    fn many_patterns_are_found_too() {
        let named: Vec<String> = (0..1000).map(|number| format!("user-{number:04}")).collect();
        let patterns = Patterns::new(&named);
        assert!(patterns.regex.is_none() && !patterns.any_in(b"user-1000"));
        assert_eq!(hits(&patterns, "a USER-0999 b"), [(999, 2..11)]);
        assert!(!Patterns::new(&[]).any_in(b"anything"));
    }
}
