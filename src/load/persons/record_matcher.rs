//! Tests whether the JSON text of a complete record, as `rejects` and `webhook_events` store it, contains an identifier
//! of a set.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::identifier_set::{ACE_PREFIX, IdentifierSet};
use crate::{
    model::Stream,
    person::{IdentifyingFields, can_hide_value, identifying_fields, identifying_fields_of_table, must_be_escaped},
    schema::table,
};

/// Tests whether the JSON text of a record contains a wanted identifier.
pub(super) struct RecordMatcher<'a> {
    /// The identifiers to find.
    pub wanted: &'a IdentifierSet,
    /// Searches a text for the bytes of all identifiers, for the quick test. If the search could not be built, this is
    /// `None` and every record passes the quick test.
    bytes: Option<AhoCorasick>,
    /// True if a wanted identifier contains a character that JSON must escape: a quote, a backslash or a control
    /// character.
    has_escaped: bool,
}

impl<'a> RecordMatcher<'a> {
    /// Creates a matcher for these identifiers.
    pub fn new(wanted: &'a IdentifierSet) -> Self {
        let values = || wanted.iter().map(|identifier| identifier.value.as_str());
        // A record can have a UUID without hyphens.
        let without_hyphens =
            values().filter(|value| uuid::Uuid::try_parse(value).is_ok()).map(|value| value.replace('-', ""));
        let bytes: Vec<String> =
            values().map(str::to_owned).chain(without_hyphens).chain([ACE_PREFIX.to_owned()]).collect();
        Self {
            wanted,
            bytes: AhoCorasick::builder().ascii_case_insensitive(true).build(bytes).ok(),
            has_escaped: values().any(|value| value.contains(must_be_escaped)),
        }
    }

    /// Returns true if a field of the record contains a wanted identifier. The text is read as a record of each stream
    /// and as a webhook, because the caller does not know which it is.
    pub fn matches(&self, record: &str) -> bool {
        static EVENTS: LazyLock<IdentifyingFields> =
            LazyLock::new(|| table("webhook_events").map(identifying_fields_of_table).unwrap_or_default());
        // `any` returns true at the first field with a wanted identifier.
        let is_match =
            |fields: &IdentifyingFields| fields.any(record, &mut |found| self.wanted.contains(&found.identifier));
        self.may_match(record) && Stream::ALL.into_iter().map(identifying_fields).chain([&*EVENTS]).any(is_match)
    }

    /// Returns false only if the record has no wanted identifier. In an ASCII text without escapes, an identifier
    /// stands as it is, in upper or lower case. Exceptions are UUIDs without hyphens and domains in Punycode, so this
    /// quick test searches for both too.
    fn may_match(&self, record: &str) -> bool {
        if self.wanted.is_empty() {
            return false;
        }
        !record.is_ascii()
            || can_hide_value(record.as_bytes(), self.has_escaped)
            || self.bytes.as_ref().is_none_or(|bytes| bytes.is_match(record))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Identifier, IdentifierKind};

    fn identifiers() -> Vec<Identifier> {
        let named = [
            (IdentifierKind::UserId, "u-1"),
            (IdentifierKind::UserId, "K 1"),
            (IdentifierKind::UserId, "zo\u{eb}"),
            (IdentifierKind::UserId, "a\"b\\c/d"),
            (IdentifierKind::Email, "anna@example.com"),
            (IdentifierKind::Email, "anna@exämple.de"),
            (IdentifierKind::VisitorId, "17"),
            (IdentifierKind::VisitorUuid, "2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162"),
            (IdentifierKind::Session, "3f1c9d6e-0b7a-4c55-9a40-1d2e3f405162"),
            (IdentifierKind::Session, "s-1"),
            (IdentifierKind::AnonymousId, "p/1"),
        ];
        named.into_iter().map(|(kind, text)| Identifier::read(kind, text).unwrap()).collect()
    }

    /// Tests every field, without the quick test.
    fn has_field(record: &str, identifier: &Identifier) -> bool {
        let events = identifying_fields_of_table(table("webhook_events").unwrap());
        let has = |fields: &IdentifyingFields| fields.any(record, &mut |found| found.identifier == *identifier);
        has(&events) || Stream::ALL.into_iter().map(identifying_fields).any(has)
    }

    #[test]
    fn p9_records_match_in_every_spelling_of_an_identifier() {
        let fields = ["externalUserId", "visitorId", "visitorUuid", "email", "responseGroupUid", "anonymousId", "id"];
        let values = [
            "\"u-1\"",
            "\"U-1\"",
            "\"u-12\"",
            "\"\u{212a} 1\"",
            r#""zo\u00eb""#,
            r#""zo\xeb""#,
            "\"zoe\u{308}\"",
            r#""a\"b\\c\/d""#,
            "\" ANNA@example.com.\"",
            r#""\tanna@example.com\n""#,
            "\"anna@ｅｘａｍｐｌｅ．com\"",
            "\"anna@XN--EXMPLE-CUA.de\"",
            "17",
            "\"+017\"",
            "18",
            "\"2F1C9D6E0B7A4C559A401D2E3F405162\"",
            "\"{2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162}\"",
            "\"urn:uuid:3F1C9D6E-0b7a-4c55-9a40-1d2e3f405162\"",
            r#""S\u002D1""#,
            "\"p/1\"",
            r#""p\/1""#,
        ];
        let mut found = 0;
        for (field, value) in fields.iter().flat_map(|field| values.map(|value| (field, value))) {
            for record in [format!("{{\"{field}\":{value}}}"), format!("{{\"{field}\":{value}, broken")] {
                for identifier in identifiers() {
                    let wanted = IdentifierSet::of([&identifier]);
                    let is_match = has_field(&record, &identifier);
                    assert_eq!(RecordMatcher::new(&wanted).matches(&record), is_match, "{record} {identifier:?}");
                    found += u32::from(is_match);
                }
            }
        }
        assert!(found > 40, "{found}");
    }

    #[test]
    fn the_quick_test_rejects_most_other_records() {
        let identifiers = [identifiers().swap_remove(0), identifiers().swap_remove(7)];
        let wanted = IdentifierSet::of(&identifiers);
        let test = RecordMatcher::new(&wanted);
        let others =
            r#"{"responseGroupUid":"698547a7-d566-4c55-9a40-1d2e3f405162","response":"a \"b\"\n","visitorId":18}"#;
        assert!(!test.may_match(others) && !test.matches(others));
        let nobody = IdentifierSet::default();
        assert!(!RecordMatcher::new(&nobody).matches("\u{212a}"));
    }

    proptest! {
        #[test]
        fn p9_the_quick_test_has_no_false_negatives_for_records(
            text in prop_oneof!["[a-cA-C/\\\\\"\u{212a}Kk1-]{0,8}", "\\PC{0,8}"],
            field in prop::sample::select(vec!["userId", "email", "visitorUuid", "responseGroupUid"]),
            escape in any::<bool>(),
        ) {
            let mut value = serde_json::to_string(&text).unwrap();
            if escape {
                value = value.replace('k', "\\u006b").replace('/', "\\/");
            }
            let record = format!("{{\"{field}\":{value}}}");
            for kind in IdentifierKind::ALL {
                let Some(identifier) = Identifier::read(kind, &text) else { continue };
                let wanted = IdentifierSet::of([&identifier]);
                prop_assert_eq!(RecordMatcher::new(&wanted).matches(&record), has_field(&record, &identifier));
            }
        }
    }
}
