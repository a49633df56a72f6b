//! The identifiers that are looked for, and a cheap test that nearly no other text passes.

use foldhash::HashSet;

use crate::model::{Identifier, IdentifierKind};

/// How long a text is that names a UUID without being the UUID in its usual form: simple, in braces, as a URN.
const OTHER_UUID_BYTES: [usize; 3] = [32, 38, 45];
/// How the labels of domains begin that stand for letters beyond ASCII.
pub(super) const ACE_PREFIX: &str = "xn--";

/// A set of identifiers.
#[derive(Clone, Debug, Default)]
pub(super) struct IdentifierSet {
    identifiers: HashSet<Identifier>,
    /// Their values, with ASCII's letters in lower case.
    lowercase: HashSet<Vec<u8>>,
    /// The numbers of visitors among them.
    numbers: HashSet<i64>,
    kinds: HashSet<IdentifierKind>,
}

impl IdentifierSet {
    /// The set of these identifiers.
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

    /// Whether no identifier is wanted.
    pub fn is_empty(&self) -> bool {
        self.identifiers.is_empty()
    }

    /// The identifiers, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Identifier> {
        self.identifiers.iter()
    }

    /// Whether this identifier is wanted.
    pub fn contains(&self, identifier: &Identifier) -> bool {
        self.identifiers.contains(identifier)
    }

    /// Whether any number of a visitor is wanted.
    pub fn has_numbers(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Whether this number of a visitor is wanted.
    pub fn contains_number(&self, number: i64) -> bool {
        self.numbers.contains(&number)
    }

    /// Removes identifiers from the set.
    pub fn remove(&mut self, gone: &HashSet<Identifier>) {
        *self = Self::of(self.identifiers.iter().filter(|identifier| !gone.contains(*identifier)));
    }

    /// Whether a text column for identifiers of this kind may hold one of the set. A visitor's may hold the number or the UUID.
    pub fn has_any_of(&self, kind: IdentifierKind) -> bool {
        self.kinds.contains(&kind) || (is_visitor(kind) && self.kinds.iter().copied().any(is_visitor))
    }

    /// Whether the text, read as an identifier of this kind, is one of the set.
    pub fn contains_text(&self, kind: IdentifierKind, text: &str, lowercase: &mut LowercaseBuffer) -> bool {
        self.may_contain_text(kind, text, lowercase)
            && Identifier::read(kind, text).is_some_and(|identifier| self.identifiers.contains(&identifier))
    }

    /// The quick test: never wrong about "no". A text of which [`Identifier::read`] changes at most the case of letters is compared without
    /// regard to case; every other text passes.
    fn may_contain_text(
        &self,
        kind: IdentifierKind,
        text: &str,
        LowercaseBuffer(lowercase): &mut LowercaseBuffer,
    ) -> bool {
        let bytes = text.as_bytes();
        if !bytes.iter().all(u8::is_ascii_graphic) || is_read_otherwise(kind, bytes) {
            return true;
        }
        lowercase.clear();
        lowercase.extend(bytes.iter().map(u8::to_ascii_lowercase));
        self.lowercase.contains(lowercase.as_slice())
    }
}

/// Room for the text that is compared, used again for each text.
#[derive(Debug, Default)]
pub(super) struct LowercaseBuffer(Vec<u8>);

/// Whether identifiers of the kind are those of visitors.
pub(super) fn is_visitor(kind: IdentifierKind) -> bool {
    matches!(kind, IdentifierKind::VisitorId | IdentifierKind::VisitorUuid)
}

/// Whether reading may do more to a text of ASCII's visible letters than to change their case.
fn is_read_otherwise(kind: IdentifierKind, bytes: &[u8]) -> bool {
    let may_be_uuid = || OTHER_UUID_BYTES.contains(&bytes.len());
    match kind {
        IdentifierKind::UserId | IdentifierKind::AnonymousId => false,
        IdentifierKind::Email => {
            let is_ace = |some: &[u8]| some.eq_ignore_ascii_case(ACE_PREFIX.as_bytes());
            bytes.ends_with(b".") || bytes.windows(ACE_PREFIX.len()).any(is_ace)
        }
        IdentifierKind::Session => may_be_uuid(),
        IdentifierKind::VisitorId | IdentifierKind::VisitorUuid => {
            let is_of_number = |byte: &u8| byte.is_ascii_digit() || b"+-".contains(byte);
            may_be_uuid() || bytes.iter().all(is_of_number)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What stands around a text, and what may stand in it.
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

    /// Whether a text names an identifier is decided by `Identifier::read` alone.
    #[test]
    fn p9_the_quick_test_passes_every_text_that_names_somebody() {
        let (texts, mut lowercase) = (texts(), LowercaseBuffer::default());
        for kind in IdentifierKind::ALL {
            let read: Vec<Option<Identifier>> = texts.iter().map(|text| Identifier::read(kind, text)).collect();
            for identifier in WORDS.iter().filter_map(|word| Identifier::read(kind, word)) {
                let wanted = IdentifierSet::of([&identifier]);
                for (text, read) in texts.iter().zip(&read) {
                    let is_named = read.as_ref() == Some(&identifier);
                    assert_eq!(
                        wanted.contains_text(kind, text, &mut lowercase),
                        is_named,
                        "{kind} {text:?} {identifier:?}"
                    );
                    assert!(wanted.has_any_of(kind) || !is_named, "{kind} {text:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn p9_a_text_that_reads_as_an_identifier_names_it(
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
    fn an_identifier_that_was_removed_is_not_wanted() {
        let read = |text| Identifier::read(IdentifierKind::UserId, text).unwrap();
        let mut wanted = IdentifierSet::of(&[read("a"), read("b")]);
        wanted.remove(&HashSet::from_iter([read("a")]));
        assert_eq!(wanted.iter().collect::<Vec<_>>(), [&read("b")]);
        assert!(wanted.contains(&read("b")) && !wanted.contains(&read("a")) && !wanted.is_empty());
        assert!(wanted.has_any_of(IdentifierKind::UserId) && !wanted.has_any_of(IdentifierKind::Email));
    }
}
