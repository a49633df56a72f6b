//! Which fields of a record identify somebody, by the contracts, and what stands in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::LazyLock,
};

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::decoded_text::DecodedText;
use crate::{
    model::{IdentifierKind, Stream, WrittenIdentifier, is_email_attribute},
    schema::{Identifies, Table, tables},
    text::without_mark,
};

/// The contract misspells this name in one place, and services may send either.
const MISSPELLED: (&str, &str) = ("attribtues", "attributes");

/// The identifying fields of a record: by name, what stands there, or which of its members do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyingFields {
    members: BTreeMap<String, Member>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Member {
    kind: Option<IdentifierKind>,
    /// Members of the value that are named like mail addresses count as such.
    has_emails: bool,
    inside: IdentifyingFields,
}

/// The fields of a stream's records.
pub fn identifying_fields(stream: Stream) -> &'static IdentifyingFields {
    static FIELDS: LazyLock<BTreeMap<Stream, IdentifyingFields>> = LazyLock::new(|| {
        let of_stream = |stream: Stream| {
            let filled = tables().iter().filter(move |table| table.stream.as_deref() == Some(stream.name()));
            let fields = IdentifyingFields::of(filled);
            (stream, if stream == Stream::Users { fields.of_asked() } else { fields })
        };
        Stream::ALL.into_iter().map(of_stream).collect()
    });
    static NONE: IdentifyingFields = IdentifyingFields { members: BTreeMap::new() };
    FIELDS.get(&stream).unwrap_or(&NONE)
}

/// The fields of records from which one table is filled.
pub fn identifying_fields_of_table(table: &Table) -> IdentifyingFields {
    IdentifyingFields::of(std::iter::once(table))
}

/// The columns of a table that identify somebody, whole records left out.
pub fn identifying_columns(table: &Table) -> impl Iterator<Item = (&crate::schema::Column, IdentifierKind)> {
    table.columns.iter().filter_map(|column| Some((column, column.identifies?.kind()?)))
}

impl IdentifyingFields {
    fn of<'a>(filled: impl Iterator<Item = &'a Table>) -> IdentifyingFields {
        let mut fields = IdentifyingFields::default();
        for column in filled.flat_map(|table| &table.columns) {
            let Some(identifies) = column.identifies.filter(|_| column.named_by.is_none()) else { continue };
            let path: Vec<&str> = column.json.as_deref().map(|path| path.split('.').collect()).unwrap_or_default();
            fields.add(&path, identifies, column.column_type == crate::schema::ColumnType::Json);
            // Rejects of some kinds hold a row by the names of its columns.
            fields.add(&[&column.name], identifies, column.column_type == crate::schema::ColumnType::Json);
        }
        fields
    }

    /// The same for pages of people, which hold each answer beside the id that was asked for.
    fn of_asked(mut self) -> IdentifyingFields {
        let user = Member { inside: self.clone(), ..Member::default() };
        self.members.insert("user".to_owned(), user);
        self.add(&["userId"], Identifies::UserId, false);
        self
    }

    fn add(&mut self, path: &[&str], identifies: Identifies, is_object: bool) {
        let Some((first, rest)) = path.split_first() else { return };
        let member = self.members.entry((*first).to_owned()).or_default();
        match (rest, is_object) {
            ([], true) => member.has_emails |= identifies == Identifies::Email,
            ([], false) => member.kind = member.kind.or(identifies.kind()),
            (rest, _) => member.inside.add(rest, identifies, is_object),
        }
    }

    /// Whether such records identify nobody.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Hands each identifier of a record to `each`, until that answers `false`. What is no object has none. Of an
    /// object that is no JSON, whatever is spelled like one of these fields counts, wherever it stands.
    pub fn for_each(&self, record: &str, each: &mut dyn FnMut(WrittenIdentifier) -> bool) -> bool {
        let mut goes_on = true;
        let is_read = for_each_member(without_mark(record), &mut |name, value| {
            let known = self
                .members
                .get(name)
                .or_else(|| (name == MISSPELLED.0).then(|| self.members.get(MISSPELLED.1)).flatten());
            let Some(member) = known.filter(|_| goes_on) else { return };
            if let Some(identifier) = member.kind.and_then(|kind| read(kind, value)) {
                goes_on = each(identifier);
            }
            if goes_on && member.has_emails {
                for_each_member(value, &mut |name, value| {
                    let email = is_email_attribute(name).then(|| read(IdentifierKind::Email, value)).flatten();
                    if let Some(email) = email.filter(|_| goes_on) {
                        goes_on = each(email);
                    }
                });
            }
            if goes_on && !member.inside.members.is_empty() {
                goes_on = member.inside.for_each(value, each);
            }
        });
        if goes_on && !is_read && record.trim_start().starts_with('{') {
            goes_on = for_each_spelled(record, &mut |name, value| {
                let identifiers = self.kinds_of(name).into_iter().filter_map(|kind| read(kind, value));
                identifiers.into_iter().all(&mut *each)
            });
        }
        goes_on
    }

    /// What a field of this name may identify somebody by, at any depth.
    fn kinds_of(&self, name: &str) -> BTreeSet<IdentifierKind> {
        let mut kinds = BTreeSet::new();
        for (known, member) in &self.members {
            kinds.extend(member.kind.filter(|_| known == name));
            kinds.extend((member.has_emails && is_email_attribute(name)).then_some(IdentifierKind::Email));
            kinds.extend(member.inside.kinds_of(name));
        }
        kinds
    }
}

/// What a JSON text or number says as an identifier.
fn read(kind: IdentifierKind, raw: &str) -> Option<WrittenIdentifier> {
    match raw.as_bytes().first()? {
        b'"' => WrittenIdentifier::read(kind, &text(raw)),
        b'-' | b'0'..=b'9' => WrittenIdentifier::read(kind, raw),
        _ => None,
    }
}

/// The value of a JSON text.
fn text(raw: &str) -> String {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains('\\') {
        return inner.to_owned();
    }
    String::from_utf8_lossy(&DecodedText::from_json(inner.as_bytes()).bytes).into_owned()
}

/// Hands over what is spelled like members in a text that is no JSON, until `each` answers `false`.
fn for_each_spelled(text: &str, each: &mut dyn FnMut(&str, &str) -> bool) -> bool {
    let quote = |from: usize| text.get(from..)?.find('"').map(|found| from + found);
    let spaces = |at: usize| text.get(at..).map_or(at, |rest| text.len() - rest.trim_start().len());
    let mut at = 0;
    while let Some(start) = quote(at) {
        let Some(end) = end_of_text(text, start) else { return true };
        // Where no colon follows, this may be the beginning of the next text:
        // which quotes belong together is not known.
        at = end - 1;
        let colon = spaces(end);
        if !text.get(colon..).is_some_and(|rest| rest.starts_with(':')) {
            continue;
        }
        let value = spaces(colon + 1);
        let value_end = match text.as_bytes().get(value) {
            Some(b'"') => end_of_text(text, value).unwrap_or(text.len()),
            _ => text
                .get(value..)
                .and_then(|rest| rest.find([',', '}', ']', ' ', '\n']))
                .map_or(text.len(), |end| value + end),
        };
        let (Some(name), Some(value)) = (text.get(start..end), text.get(value..value_end)) else { continue };
        if !each(&self::text(name), value) {
            return false;
        }
        at = colon;
    }
    true
}

/// Behind the quote that closes the text which begins here.
fn end_of_text(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    while *bytes.get(at)? != b'"' {
        at += if bytes.get(at) == Some(&b'\\') { 2 } else { 1 };
    }
    Some(at + 1)
}

/// Hands over the members of an object, repeated ones too; whether all of it could be read. What is no object has none.
fn for_each_member(raw: &str, each: &mut dyn FnMut(&str, &str)) -> bool {
    struct Members<'e>(&'e mut dyn FnMut(&str, &str));
    impl<'de> Visitor<'de> for Members<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
            while let Some((name, value)) = members.next_entry::<&'de RawValue, &'de RawValue>()? {
                (self.0)(&text(name.get()), value.get());
            }
            Ok(())
        }
    }
    // Half an object has been read where it breaks off.
    serde_json::Deserializer::from_str(raw).deserialize_map(Members(each)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(stream: Stream, record: &str) -> Vec<(IdentifierKind, String)> {
        let mut found = Vec::new();
        identifying_fields(stream).for_each(record, &mut |found_there| {
            found.push((found_there.identifier.kind, found_there.identifier.value));
            true
        });
        found
    }

    #[test]
    fn p9_a_record_that_is_no_json_is_known_by_what_is_spelled_in_it() {
        use IdentifierKind::{Email, Session, UserId};
        let all = [(Session, "g"), (Email, "a@b"), (UserId, "usér")];
        for fault in ["NaN", "\"two\nlines\"", "\"not closed", "\"a \"quoted\" word\""] {
            let record = format!(
                r#"{{"responseGroupUid":"G","response":{fault},"visitorSnapshot":{{"attributes":{{"E-Mail" : "A@B","x":"y"}},"externalUserId":"us\u00e9r"}}"#
            );
            let found = found(Stream::Responses, &record);
            for (kind, value) in all {
                assert!(found.contains(&(kind, value.to_owned())), "{value} in {record}: {found:?}");
            }
        }
        // What is no object has none, and neither has a whole record under other names.
        assert_eq!(found(Stream::Responses, r#""{\"externalUserId\":\"u\"""#), []);
        assert_eq!(found(Stream::Responses, r#"{"response":{"externalUserId":"u"}}"#), []);
    }

    #[test]
    fn p9_a_record_is_known_by_every_field_of_its_contract() {
        use IdentifierKind::{AnonymousId, Email, Session, UserId, VisitorId, VisitorUuid};
        let record = r#"{"externalUserId":"us\u00e9r","visitorId":7,"visitorUuid":"AA","partnerAnonymousId":"p",
            "responseGroupUid":"G","surveyId":7,"response":{"email":"no@x"},"visitorSnapshot":{"visitorId":"v",
            "externalUserId":"","attribtues":{"E-Mail":"A@B","plan":"free","email":7,"mail":"on file"}}}"#;
        let expected = [
            (UserId, "usér"),
            (VisitorId, "7"),
            (VisitorUuid, "aa"),
            (AnonymousId, "p"),
            (Session, "g"),
            (VisitorUuid, "v"),
            (Email, "a@b"),
        ];
        assert_eq!(found(Stream::Responses, record), expected.map(|(kind, value)| (kind, value.to_owned())));
        let theme = found(Stream::Themes, r#"{"id":1,"visitorId":7,"responseGroupUid":"g"}"#);
        assert_eq!(theme, [(VisitorId, "7".to_owned()), (Session, "g".to_owned())]);
        assert_eq!(found(Stream::Surveys, r#"{"id":1,"visitorId":7}"#), []);
        let user = r#"{"userId":"u","user":{"id":"v","externalUserId":"U2","attributes":{"email":"A@b","plan":"x"}}}"#;
        let expected = [(UserId, "u"), (AnonymousId, "v"), (UserId, "U2"), (Email, "a@b")];
        assert_eq!(found(Stream::Users, user), expected.map(|(kind, value)| (kind, value.to_owned())));
    }

    #[test]
    fn p9_a_name_is_the_same_in_escapes_and_in_letters_taken_apart() {
        for name in [r"zoe\u0308", "zoe\u{308}", r"zo\u00eb"] {
            let record = format!(
                r#"{{"externalUserId":"{name}","visitorSnapshot":{{"attributes":{{"email":"{name}@XN--EXMPLE-CUA.de"}}}}}}"#
            );
            let expected = [
                (IdentifierKind::UserId, "zo\u{eb}".to_owned()),
                (IdentifierKind::Email, "zo\u{eb}@ex\u{e4}mple.de".to_owned()),
            ];
            assert_eq!(found(Stream::Responses, &record), expected, "{name}");
        }
    }

    #[test]
    fn p9_odd_records_identify_whom_they_can() {
        for (record, count) in
            [("7", 0), ("[1]", 0), (r#"{"visitorId":{"a":1}}"#, 0), (r#"{"visitorId":1,"visitorId":2}"#, 2)]
        {
            assert_eq!(found(Stream::Responses, record).len(), count, "{record}");
        }
        // A rejected row of themes, by the names of its columns.
        assert_eq!(found(Stream::Themes, r#"{"response_group_uid":"g","visitor_id":7}"#).len(), 2);
    }

    #[test]
    fn p9_it_stops_when_it_is_told() {
        let mut count = 0;
        identifying_fields(Stream::Responses).for_each(r#"{"visitorId":7,"visitorUuid":"a"}"#, &mut |_| {
            count += 1;
            false
        });
        assert_eq!(count, 1);
    }
}
