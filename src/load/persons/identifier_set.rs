//! A set of identifiers, with a quick test that rejects nearly all texts that are not in the set.

use foldhash::HashSet;

use crate::{
    model::{Identifier, IdentifierKind},
    person::may_have_ace_label,
};

/// Lengths in bytes of UUIDs that are not written in the usual way: without hyphens, in braces, as a URN.
const OTHER_UUID_BYTES: [usize; 3] = [32, 38, 45];

/// A set of identifiers.
#[derive(Clone, Debug, Default)]
pub(super) struct IdentifierSet {
    identifiers: HashSet<Identifier>,
    /// The values of the identifiers, with ASCII letters in lower case, for the quick test.
    lowercase: HashSet<Vec<u8>>,
    /// The visitor numbers among the identifiers, for columns of numbers.
    numbers: HashSet<i64>,
    /// The kinds that occur among the identifiers.
    kinds: HashSet<IdentifierKind>,
}

impl IdentifierSet {
    /// Creates the set of these identifiers.
    pub fn of<'a>(identifiers: impl IntoIterator<Item = &'a Identifier>) -> Self {
        let mut wanted = Self::default();
        for identifier in identifiers {
            wanted.lowercase.insert(identifier.value.to_ascii_lowercase().into_bytes());
            if identifier.kind == IdentifierKind::VisitorId {
                wanted.numbers.extend(identifier.value.parse::<i64>().ok());
            }
            wanted.kinds.insert(identifier.kind);
            wanted.identifiers.insert(identifier.clone());
        }
        wanted
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.identifiers.is_empty()
    }

    /// Returns the identifiers, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Identifier> {
        self.identifiers.iter()
    }

    /// Returns true if the set contains this identifier.
    pub fn contains(&self, identifier: &Identifier) -> bool {
        self.identifiers.contains(identifier)
    }

    /// Returns true if the set contains a visitor number.
    pub fn has_numbers(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Returns true if the set contains this visitor number.
    pub fn contains_number(&self, number: i64) -> bool {
        self.numbers.contains(&number)
    }

    /// Removes identifiers from the set. Identifiers that are not in the set are ignored.
    pub fn remove(&mut self, removed: &HashSet<Identifier>) {
        *self = Self::of(self.identifiers.iter().filter(|identifier| !removed.contains(*identifier)));
    }

    /// Returns true if a text column for identifiers of this kind can contain an identifier of the set. A column for
    /// visitors can contain visitor numbers and visitor UUIDs.
    pub fn has_any_of(&self, kind: IdentifierKind) -> bool {
        self.kinds.contains(&kind) || (is_visitor(kind) && self.kinds.iter().copied().any(is_visitor))
    }

    /// Returns true if the text, read as an identifier of this kind, is in the set. `lowercase` is a buffer that
    /// callers reuse.
    pub fn contains_text(&self, kind: IdentifierKind, text: &str, lowercase: &mut LowercaseBuffer) -> bool {
        self.may_contain_text(kind, text, lowercase)
            && Identifier::read(kind, text).is_some_and(|identifier| self.identifiers.contains(&identifier))
    }

    /// Returns false only if the set does not contain the text. The quick test compares the text in lower case with the
    /// values of the set. The quick test returns true for each text of which [`Identifier::read`] may change more than
    /// the case.
    fn may_contain_text(
        &self,
        kind: IdentifierKind,
        text: &str,
        LowercaseBuffer(lowercase): &mut LowercaseBuffer,
    ) -> bool {
        let bytes = text.as_bytes();
        // Without a short circuit the compiler tests many bytes at once.
        let is_visible_ascii = bytes.iter().fold(true, |is_visible, byte| is_visible & byte.is_ascii_graphic());
        if !is_visible_ascii || may_be_normalized(kind, bytes) {
            return true;
        }
        lowercase.clear();
        lowercase.extend(bytes.iter().map(u8::to_ascii_lowercase));
        self.lowercase.contains(lowercase.as_slice())
    }
}

/// Buffer for a text in lower case. Reusing the buffer saves an allocation for each text.
#[derive(Debug, Default)]
pub(super) struct LowercaseBuffer(Vec<u8>);

/// Returns true if the kind identifies a visitor.
pub(super) fn is_visitor(kind: IdentifierKind) -> bool {
    matches!(kind, IdentifierKind::VisitorId | IdentifierKind::VisitorUuid)
}

/// Returns true if [`Identifier::read`] may change more than the case of this text. The text must consist of visible
/// ASCII characters. Examples are a UUID without hyphens, a number with leading zeros, and a domain in Punycode.
fn may_be_normalized(kind: IdentifierKind, bytes: &[u8]) -> bool {
    let may_be_uuid = || OTHER_UUID_BYTES.contains(&bytes.len());
    match kind {
        IdentifierKind::UserId | IdentifierKind::AnonymousId => false,
        IdentifierKind::Email => bytes.ends_with(b".") || may_have_ace_label(bytes),
        IdentifierKind::Session => may_be_uuid(),
        IdentifierKind::VisitorId | IdentifierKind::VisitorUuid => {
            let is_digit_or_sign = |byte: &u8| byte.is_ascii_digit() || b"+-".contains(byte);
            may_be_uuid() || bytes.iter().all(is_digit_or_sign)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Characters around a text, and texts.
    const AROUND: [&str; 10] = ["", " ", "  ", "\t", "\n", "\u{1f}", "\u{a0}", "\u{2003}", "\u{202f}", "\u{3000}"];
    const WORDS: [&str; 37] = [
        "",
        "-7",
        "+7",
        "7",
        "007",
        "00000000000000000000000000000000000007",
        "1-2",
        "A b",
        "~",
        "\u{301}zoe",
        "zo\u{eb}",
        "Zoe\u{308}",
        "名前",
        "\u{37e}",
        ";",
        "698547A7-d566-4",
        "698547A7-d566-4C55-9a40-1d2e3f405162",
        "698547A7d5664C559a401d2e3f405162",
        "{698547A7-d566-4C55-9a40-1d2e3f405162}",
        "urn:uuid:698547A7-d566-4C55-9a40-1d2e3f405162",
        "69854717-4566-4455-9140-142434405162",
        "69854717456644559140142434405162",
        "ȺȺ",
        "İ",
        "\u{212a}",
        "K",
        "n/a",
        "on file",
        "Anna@Example.com",
        "anna@example.com.",
        "anna@example.com..",
        "anna@ｅｘａｍｐｌｅ．com",
        "anna@exam\u{ad}ple.com",
        "JU\u{308}RGEN@xn--exmple-cua.de",
        "jürgen@Exämple.DE",
        "a@[192.168.0.1]",
        "redacted@",
    ];

    fn texts() -> Vec<String> {
        let around = |text: &str| AROUND.map(|after| format!("{text}{after}"));
        AROUND
            .iter()
            .flat_map(|before| WORDS.map(|word| format!("{before}{word}")))
            .flat_map(|text| around(&text))
            .collect()
    }

    /// Compares the set with `Identifier::read`, which decides whether a text names an identifier.
    #[test]
    fn p9_the_quick_test_has_no_false_negatives_for_texts() {
        let (texts, mut lowercase) = (texts(), LowercaseBuffer::default());
        for kind in IdentifierKind::ALL {
            let read: Vec<Option<Identifier>> = texts.iter().map(|text| Identifier::read(kind, text)).collect();
            for identifier in WORDS.iter().filter_map(|word| Identifier::read(kind, word)) {
                let wanted = IdentifierSet::of([&identifier]);
                for (text, read) in texts.iter().zip(&read) {
                    let is_equal = read.as_ref() == Some(&identifier);
                    assert_eq!(
                        wanted.contains_text(kind, text, &mut lowercase),
                        is_equal,
                        "{kind} {text:?} {identifier:?}"
                    );
                    assert!(wanted.has_any_of(kind) || !is_equal, "{kind} {text:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn p9_a_text_read_as_an_identifier_is_in_its_set(
            text in prop_oneof![
                "[ \\t\u{a0}]{0,2}[+-]?[0-9]{1,20}[ ]{0,1}",
                "[{]?[0-9a-fA-F]{8}-?[0-9a-f]{4}-?[0-9A-F]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}[}]?",
                "[a-zA-Zéß.+_-]{1,6}@([a-zA-Zäß0-9-]{1,6}[.。]){0,2}(xn--[a-z0-9-]{1,8}|[a-zA-Z]{1,3})[.]{0,2}",
                "\\PC{0,12}",
                any::<String>(),
            ],
            kind in prop::sample::select(IdentifierKind::ALL.to_vec()),
        ) {
            let mut lowercase = LowercaseBuffer::default();
            if let Some(identifier) = Identifier::read(kind, &text) {
                prop_assert!(IdentifierSet::of([&identifier]).contains_text(kind, &text, &mut lowercase));
                if identifier.kind == IdentifierKind::VisitorId {
                    prop_assert!(IdentifierSet::of([&identifier]).contains_number(identifier.value.parse().unwrap()));
                }
            }
        }
    }

    #[test]
    fn a_removed_identifier_is_not_in_the_set() {
        let read = |text| Identifier::read(IdentifierKind::UserId, text).unwrap();
        let mut wanted = IdentifierSet::of(&[read("a"), read("b")]);
        wanted.remove(&HashSet::from_iter([read("a")]));
        assert_eq!(wanted.iter().collect::<Vec<_>>(), [&read("b")]);
        assert!(wanted.contains(&read("b")) && !wanted.contains(&read("a")) && !wanted.is_empty());
        assert!(wanted.has_any_of(IdentifierKind::UserId) && !wanted.has_any_of(IdentifierKind::Email));
    }
}
