//! The fields of a record that identify a person, by the contracts, and the identifiers in them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::LazyLock,
};

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::decoded_text::DecodedText;
use crate::{
    model::{IdentifierKind, Stream, WrittenIdentifier, is_email_attribute},
    schema::{Column, ColumnType, Table, table, tables},
    text::without_mark,
};

/// The contract misspells this name in one place, so services may send either spelling.
const MISSPELLED: (&str, &str) = ("attribtues", "attributes");

/// The fields of a record that identify a person, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyingFields {
    fields: BTreeMap<String, Field>,
}

/// One field of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Field {
    /// The kind of identifier in the value; `None` if the value itself is not an identifier.
    kind: Option<IdentifierKind>,
    /// True if members of the value with a name such as `email` are mail addresses.
    has_emails: bool,
    /// The identifying fields inside the value, if the value is an object.
    inside: IdentifyingFields,
}

/// Returns the identifying fields of a stream's records.
pub fn identifying_fields(stream: Stream) -> &'static IdentifyingFields {
    static FIELDS: LazyLock<BTreeMap<Stream, IdentifyingFields>> = LazyLock::new(|| {
        let of_stream = |stream: Stream| {
            let filled = tables().iter().filter(move |table| table.stream.as_deref() == Some(stream.name()));
            let fields = IdentifyingFields::of(filled);
            (stream, if stream == Stream::Users { fields.of_lookups() } else { fields })
        };
        Stream::ALL.into_iter().map(of_stream).collect()
    });
    static NONE: IdentifyingFields = IdentifyingFields { fields: BTreeMap::new() };
    FIELDS.get(&stream).unwrap_or(&NONE)
}

/// Returns the identifying fields of webhook events.
pub fn identifying_fields_of_events() -> &'static IdentifyingFields {
    static FIELDS: LazyLock<IdentifyingFields> =
        LazyLock::new(|| IdentifyingFields::of(table("webhook_events").into_iter()));
    &FIELDS
}

/// Returns the columns of a table that contain identifiers. Columns with complete records are not included.
pub fn identifying_columns(table: &Table) -> impl Iterator<Item = (&Column, IdentifierKind)> {
    table.columns.iter().filter_map(|column| Some((column, column.identifies?.kind()?)))
}

impl IdentifyingFields {
    fn of<'a>(filled: impl Iterator<Item = &'a Table>) -> IdentifyingFields {
        let mut fields = IdentifyingFields::default();
        for (column, kind) in filled.flat_map(identifying_columns).filter(|(column, _)| column.named_by.is_none()) {
            let path: Vec<&str> = column.json.as_deref().map(|path| path.split('.').collect()).unwrap_or_default();
            let is_object = column.column_type == ColumnType::Json;
            fields.add(&path, kind, is_object);
            // Some rejects contain a row under the names of its columns.
            fields.add(&[&column.name], kind, is_object);
        }
        fields
    }

    /// Converts the fields of user records to the fields of user lookups. A lookup contains a user record in the field
    /// `user`, next to the requested id.
    fn of_lookups(mut self) -> IdentifyingFields {
        let user = Field { inside: self.clone(), ..Field::default() };
        self.fields.insert("user".to_owned(), user);
        self.add(&["userId"], IdentifierKind::UserId, false);
        self
    }

    /// Adds the field at a path. `is_object` says that the value is an object: for [`IdentifierKind::Email`], its
    /// members may be mail addresses.
    fn add(&mut self, path: &[&str], kind: IdentifierKind, is_object: bool) {
        let Some((first, rest)) = path.split_first() else { return };
        let field = self.fields.entry((*first).to_owned()).or_default();
        match (rest, is_object) {
            ([], true) => field.has_emails |= kind == IdentifierKind::Email,
            ([], false) => field.kind = field.kind.or(Some(kind)),
            (rest, _) => field.inside.add(rest, kind, is_object),
        }
    }

    /// Returns true if no field identifies a person.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Calls `matches` with each identifier of a record until `matches` returns true. Returns true if `matches` did.
    ///
    /// A record that is not an object has no identifiers. In an object that is not valid JSON, everything that looks
    /// like an identifying field counts, at any depth.
    pub fn any(&self, record: &str, matches: &mut dyn FnMut(WrittenIdentifier) -> bool) -> bool {
        let mut is_found = false;
        let is_json = for_each_member(without_mark(record), &mut |name, value| {
            let correct_name = if name == MISSPELLED.0 { MISSPELLED.1 } else { name };
            let field = self.fields.get(name).or_else(|| self.fields.get(correct_name));
            is_found = is_found || field.is_some_and(|field| field.any(value, matches));
        });
        if is_found || is_json || !record.trim_start().starts_with('{') {
            return is_found;
        }
        self.any_like(record, matches)
    }

    /// Like [`IdentifyingFields::any`], for everything that looks like an identifying field in a text that is not valid
    /// JSON, also for JSON inside a text.
    fn any_like(&self, record: &str, matches: &mut dyn FnMut(WrittenIdentifier) -> bool) -> bool {
        any_member_like(record, &mut |name, value| {
            let identifiers = self.kinds_by_name(name).into_iter().filter_map(|kind| read(kind, value));
            identifiers.into_iter().any(&mut *matches)
                || (value.contains("\\\"") && self.any_like(&text(value), matches))
        })
    }

    /// Returns the kinds of identifiers that a field with this name may contain, wherever the field stands in a record.
    /// For records that are not valid JSON, in which the path of a field is unknown.
    fn kinds_by_name(&self, name: &str) -> BTreeSet<IdentifierKind> {
        let mut kinds = BTreeSet::new();
        for (known, field) in &self.fields {
            kinds.extend(field.kind.filter(|_| known == name));
            kinds.extend((field.has_emails && is_email_attribute(name)).then_some(IdentifierKind::Email));
            kinds.extend(field.inside.kinds_by_name(name));
        }
        kinds
    }
}

impl Field {
    /// Like [`IdentifyingFields::any`], for the value of this field.
    fn any(&self, value: &str, matches: &mut dyn FnMut(WrittenIdentifier) -> bool) -> bool {
        let mut is_found = self.kind.and_then(|kind| read(kind, value)).is_some_and(&mut *matches);
        if self.has_emails && !is_found {
            // The service also sends the object as JSON inside a text.
            let object: Cow<'_, str> = if value.starts_with('"') { text(value).into() } else { value.into() };
            is_found = any_email(&object, matches);
        }
        is_found || (!self.inside.is_empty() && self.inside.any(value, matches))
    }
}

/// Calls `matches` with the mail addresses in the members of a JSON object with a name such as `email`, until `matches`
/// returns true. Returns true if `matches` did.
pub fn any_email(object: &str, matches: &mut dyn FnMut(WrittenIdentifier) -> bool) -> bool {
    let mut is_found = false;
    for_each_member(object, &mut |name, value| {
        if !is_found && is_email_attribute(name) {
            is_found = read(IdentifierKind::Email, value).is_some_and(&mut *matches);
        }
    });
    is_found
}

/// Parses a JSON text or number as an identifier. `None` for any other JSON value, for a placeholder such as "unknown",
/// and for an `Email` that is not a mail address.
fn read(kind: IdentifierKind, json: &str) -> Option<WrittenIdentifier> {
    match json.as_bytes().first()? {
        b'"' => WrittenIdentifier::read(kind, &text(json)),
        b'-' | b'0'..=b'9' => WrittenIdentifier::read(kind, json),
        _ => None,
    }
}

/// Returns the value of a JSON text. The closing quote may be missing: the text may be cut.
fn text(json: &str) -> String {
    let inner = json.strip_prefix('"').unwrap_or(json);
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    if !inner.contains('\\') {
        return inner.to_owned();
    }
    String::from_utf8_lossy(&DecodedText::from_json(inner.as_bytes()).bytes).into_owned()
}

/// Calls `matches` with everything that looks like the name and value of a member, in a text that is not valid JSON.
/// Stops and returns true if `matches` returns true.
fn any_member_like(text: &str, matches: &mut dyn FnMut(&str, &str) -> bool) -> bool {
    let quote = |from: usize| text.get(from..)?.find('"').map(|found| from + found);
    let skip_spaces = |at: usize| text.get(at..).map_or(at, |rest| text.len() - rest.trim_start().len());
    let mut at = 0;
    while let Some(start) = quote(at) {
        let Some(end) = end_of_text(text, start) else { return false };
        // Without a colon, the closing quote may open the next text: in broken JSON, pairs of quotes are not known.
        at = end - 1;
        let colon = skip_spaces(end);
        if !text.get(colon..).is_some_and(|rest| rest.starts_with(':')) {
            continue;
        }
        let value = skip_spaces(colon + 1);
        let value_end = match text.as_bytes().get(value) {
            Some(b'"') => end_of_text(text, value).unwrap_or(text.len()),
            _ => text
                .get(value..)
                .and_then(|rest| rest.find([',', '}', ']', ' ', '\n']))
                .map_or(text.len(), |end| value + end),
        };
        let (Some(name), Some(value)) = (text.get(start..end), text.get(value..value_end)) else { continue };
        if matches(&self::text(name), value) {
            return true;
        }
        at = colon;
    }
    false
}

/// Returns the index after the quote that closes the JSON text at `start`; `None` if it is not closed.
fn end_of_text(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    while *bytes.get(at)? != b'"' {
        at += if bytes.get(at) == Some(&b'\\') { 2 } else { 1 };
    }
    Some(at + 1)
}

/// Calls `each` with the name and value of each member of an object, including repeated names. Returns false if the
/// text is not a valid object, after `each` was called for the members before the error.
fn for_each_member(json: &str, each: &mut dyn FnMut(&str, &str)) -> bool {
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
    serde_json::Deserializer::from_str(json).deserialize_map(Members(each)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(stream: Stream, record: &str) -> Vec<(IdentifierKind, String)> {
        let mut found = Vec::new();
        identifying_fields(stream).any(record, &mut |written| {
            found.push((written.identifier.kind, written.identifier.value));
            false
        });
        found
    }

    #[test]
    fn p9_invalid_json_is_searched_for_identifying_fields() {
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
        // A record can be cut inside an identifier.
        for end in ["user-1", "user-1\""] {
            let record = format!(r#"{{"visitorSnapshot":{{"externalUserId":"{end}"#);
            assert_eq!(found(Stream::Responses, &record), [(UserId, "user-1".to_owned())], "{record}");
        }
        // Attributes are JSON inside a text.
        let record = r#"{"visitorSnapshot":{"attributes":"{\"email\":\"a@b\"}""#;
        assert_eq!(found(Stream::Responses, record), [(Email, "a@b".to_owned())]);
        // A text has no identifiers, and neither has an object within an unknown field.
        assert_eq!(found(Stream::Responses, r#""{\"externalUserId\":\"u\"""#), []);
        assert_eq!(found(Stream::Responses, r#"{"response":{"externalUserId":"u"}}"#), []);
    }

    #[test]
    fn p9_every_identifying_field_of_the_contract_is_read() {
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
        let as_text = r#"{"visitorSnapshot":{"attributes":"{\"email\":\"zo\\u00eb@b\",\"plan\":\"c@d\"}"}}"#;
        assert_eq!(found(Stream::Responses, as_text), [(Email, "zo\u{eb}@b".to_owned())]);
        let theme = found(Stream::Themes, r#"{"id":1,"visitorId":7,"responseGroupUid":"g"}"#);
        assert_eq!(theme, [(VisitorId, "7".to_owned()), (Session, "g".to_owned())]);
        assert_eq!(found(Stream::Surveys, r#"{"id":1,"visitorId":7}"#), []);
        let user = r#"{"userId":"u","user":{"id":"v","externalUserId":"U2","attributes":{"email":"A@b","plan":"x"}}}"#;
        let expected = [(UserId, "u"), (AnonymousId, "v"), (UserId, "U2"), (Email, "a@b")];
        assert_eq!(found(Stream::Users, user), expected.map(|(kind, value)| (kind, value.to_owned())));
    }

    #[test]
    fn p9_escaped_and_decomposed_letters_are_normalized() {
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
    fn p9_identifiers_are_found_in_unusual_records() {
        for (record, count) in
            [("7", 0), ("[1]", 0), (r#"{"visitorId":{"a":1}}"#, 0), (r#"{"visitorId":1,"visitorId":2}"#, 2)]
        {
            assert_eq!(found(Stream::Responses, record).len(), count, "{record}");
        }
        // A rejected row of themes, by the names of its columns.
        assert_eq!(found(Stream::Themes, r#"{"response_group_uid":"g","visitor_id":7}"#).len(), 2);
    }

    #[test]
    fn p9_the_search_stops_at_the_first_match() {
        let mut count = 0;
        let is_found = identifying_fields(Stream::Responses).any(r#"{"visitorId":7,"visitorUuid":"a"}"#, &mut |_| {
            count += 1;
            true
        });
        assert_eq!((is_found, count), (true, 1));
    }
}
