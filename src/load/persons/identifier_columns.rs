//! The columns of a table that identify a person: columns with an identifier, and columns with the JSON text of a
//! complete record, as `rejects` and `webhook_events` store it.

use arrow::array::{Array as _, Int64Array, RecordBatch, StringArray};

use super::identifier_set::{IdentifierSet, LowercaseBuffer, is_visitor};
use crate::{
    load::{
        LoadError,
        store::{number_column, text_column},
    },
    model::{IdentifierKind, Stream, WrittenIdentifier, is_email_attribute},
    person::{
        FieldTest, IdentifyingFields, any_email, identifying_columns, identifying_fields, identifying_fields_of_events,
    },
    schema::{ColumnType, Identifies, Table},
};

/// A column that stores an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdentifierColumn {
    /// The name of the column.
    pub column: &'static str,
    /// The kind of identifier that the column stores.
    pub kind: IdentifierKind,
    value_type: ValueType,
    /// For a column with values of attributes: the column with the name of the attribute. A value is an identifier only
    /// if the name of its attribute means an email address. `None` for any other column.
    named_by: Option<&'static str>,
}

/// The type of the values of an identifier column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    Texts,
    Numbers,
    /// JSON objects, whose members with a name such as `email` are mail addresses.
    Objects,
}

/// Returns the columns of a table that store identifiers. JSON columns of streams are left out, because their values
/// are also in rows of a child table.
pub(super) fn identifier_columns(table: &'static Table) -> Vec<IdentifierColumn> {
    let id_column = |(column, kind): (&'static crate::schema::Column, IdentifierKind)| {
        let value_type = match column.column_type {
            ColumnType::Text => ValueType::Texts,
            // The number of a visitor is the only numeric identifier.
            ColumnType::Bigint if is_visitor(kind) => ValueType::Numbers,
            ColumnType::Json if table.stream.is_none() && kind == IdentifierKind::Email => ValueType::Objects,
            _ => return None,
        };
        Some(IdentifierColumn { column: &column.name, kind, value_type, named_by: column.named_by.as_deref() })
    };
    identifying_columns(table).filter_map(id_column).collect()
}

/// Returns the columns of a table that store the JSON text of a complete record, whose fields may identify a person.
pub(super) fn record_columns(table: &'static Table) -> Vec<&'static str> {
    let is_record = |column: &&crate::schema::Column| {
        matches!(column.identifies, Some(Identifies::Record | Identifies::RecordInBase64))
    };
    table.columns.iter().filter(is_record).map(|column| column.name.as_str()).collect()
}

/// Returns the names of the columns to read for these identifier columns, each once. Besides the identifier columns,
/// the list has the columns with the names of attributes.
pub(super) fn columns_to_read(id_columns: &[IdentifierColumn]) -> Vec<&'static str> {
    let mut columns = Vec::new();
    for column in id_columns.iter().flat_map(|id_column| [Some(id_column.column), id_column.named_by]).flatten() {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

impl IdentifierColumn {
    /// Returns true if the type and kind of the column allow one of the wanted identifiers.
    pub fn may_contain(&self, wanted: &IdentifierSet) -> bool {
        match self.value_type {
            ValueType::Texts | ValueType::Objects => wanted.has_any_of(self.kind),
            ValueType::Numbers => wanted.has_numbers(),
        }
    }

    /// Returns the values of the column in a batch. Fails if the batch lacks a column of [`columns_to_read`].
    pub fn values<'a>(&self, rows: &'a RecordBatch) -> Result<IdentifierValues<'a>, LoadError> {
        let values = match self.value_type {
            ValueType::Texts => Values::Texts(text_column(rows, self.column)?),
            ValueType::Numbers => Values::Numbers(number_column(rows, self.column)?),
            ValueType::Objects => Values::Objects(text_column(rows, self.column)?),
        };
        let names = self.named_by.map(|name| text_column(rows, name)).transpose()?;
        Ok(IdentifierValues { kind: self.kind, values, names })
    }
}

/// The values of an identifier column in a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdentifierValues<'a> {
    kind: IdentifierKind,
    values: Values<'a>,
    /// The names of the attributes, if the values are those of attributes; `None` otherwise.
    names: Option<&'a StringArray>,
}

/// The values of an identifier column, by [`ValueType`].
#[derive(Clone, Copy, Debug)]
enum Values<'a> {
    Texts(&'a StringArray),
    Numbers(&'a Int64Array),
    Objects(&'a StringArray),
}

impl IdentifierValues<'_> {
    /// Returns true if the value of a row is one of the wanted identifiers. `lowercase` is a buffer that callers reuse.
    pub fn is_wanted(&self, row: usize, wanted: &IdentifierSet, lowercase: &mut LowercaseBuffer) -> bool {
        let is_wanted = match self.values {
            Values::Texts(texts) => texts.is_valid(row) && wanted.contains_text(self.kind, texts.value(row), lowercase),
            Values::Numbers(numbers) => numbers.is_valid(row) && wanted.contains_number(numbers.value(row)),
            Values::Objects(objects) => {
                objects.is_valid(row)
                    && any_email(objects.value(row), &mut |written| wanted.contains(&written.identifier))
            }
        };
        // The name of the attribute is checked last, because few values are wanted.
        is_wanted && self.is_identifier(row)
    }

    /// Returns the identifier of a row with its spelling, or `None` if the value is NULL, no identifier, or an object.
    pub fn read(&self, row: usize) -> Option<WrittenIdentifier> {
        if !self.is_identifier(row) {
            return None;
        }
        match self.values {
            Values::Texts(texts) if texts.is_valid(row) => WrittenIdentifier::read(self.kind, texts.value(row)),
            Values::Numbers(numbers) if numbers.is_valid(row) => {
                WrittenIdentifier::read(self.kind, &numbers.value(row).to_string())
            }
            _ => None,
        }
    }

    /// Adds the identifiers of a row with their spellings; an object can have several.
    pub fn read_into(&self, row: usize, found: &mut Vec<WrittenIdentifier>) {
        match self.values {
            Values::Objects(objects) if objects.is_valid(row) => {
                any_email(objects.value(row), &mut |written| {
                    found.push(written);
                    false
                });
            }
            _ => found.extend(self.read(row)),
        }
    }

    /// Returns false for the value of an attribute whose name does not mean an email address. Returns true for any
    /// other value.
    fn is_identifier(&self, row: usize) -> bool {
        self.names.is_none_or(|names| names.is_valid(row) && is_email_attribute(names.value(row)))
    }
}

/// Tests whether the JSON text of a record contains a wanted identifier.
pub(super) struct RecordMatcher<'a> {
    /// The identifiers to find.
    pub wanted: &'a IdentifierSet,
    fields: FieldTest,
}

impl<'a> RecordMatcher<'a> {
    /// Creates a matcher for these identifiers.
    pub fn new(wanted: &'a IdentifierSet) -> Self {
        Self { wanted, fields: FieldTest::new(wanted.iter()) }
    }

    /// Returns true if a field of the record contains a wanted identifier. The text is read as a record of each stream
    /// and as a webhook, because the caller does not know which it is.
    pub fn matches(&self, record: &str) -> bool {
        // `any` returns true at the first field with a wanted identifier.
        let is_match =
            |fields: &IdentifyingFields| fields.any(record, &mut |found| self.wanted.contains(&found.identifier));
        let fields = Stream::ALL.into_iter().map(identifying_fields).chain([identifying_fields_of_events()]);
        self.fields.may_be_a_field(record.as_bytes()) && fields.into_iter().any(is_match)
    }
}

/// Tests whether rows of one table contain a wanted identifier, in an identifier column or in the text of a record.
pub(super) struct RowMatcher<'a> {
    id_columns: Vec<IdentifierColumn>,
    /// The names of the columns with stored records.
    records: Vec<&'static str>,
    matcher: &'a RecordMatcher<'a>,
}

impl<'a> RowMatcher<'a> {
    /// Creates the test for a table. Returns `None` if the table can contain no wanted identifier.
    pub fn of(table: &'static Table, matcher: &'a RecordMatcher<'a>) -> Option<Self> {
        let mut id_columns = identifier_columns(table);
        id_columns.retain(|id_column| id_column.may_contain(matcher.wanted));
        let records = record_columns(table);
        let can_match = !matcher.wanted.is_empty() && (!id_columns.is_empty() || !records.is_empty());
        can_match.then_some(Self { id_columns, records, matcher })
    }

    /// Returns the names of the columns that the test reads.
    pub fn columns(&self) -> Vec<&'static str> {
        columns_to_read(&self.id_columns).into_iter().chain(self.records.iter().copied()).collect()
    }

    /// Returns for each row whether it contains a wanted identifier. Texts in Base64 must be decoded.
    pub fn matching(&self, rows: &RecordBatch) -> Result<Vec<bool>, LoadError> {
        let (mut matches, mut lowercase) = (vec![false; rows.num_rows()], LowercaseBuffer::default());
        for id_column in &self.id_columns {
            let values = id_column.values(rows)?;
            for (row, is_match) in matches.iter_mut().enumerate() {
                *is_match = *is_match || values.is_wanted(row, self.matcher.wanted, &mut lowercase);
            }
        }
        for column in &self.records {
            let texts = text_column(rows, column)?;
            for (text, is_match) in texts.iter().zip(&mut matches) {
                *is_match = *is_match || text.is_some_and(|text| self.matcher.matches(text));
            }
        }
        Ok(matches)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{model::Identifier, schema::tables};

    #[test]
    fn every_identifying_column_is_listed_or_json_of_a_stream() {
        for table in tables() {
            let id_columns = identifier_columns(table);
            for (column, _) in identifying_columns(table) {
                let is_listed = id_columns.iter().any(|id_column| id_column.column == column.name);
                let is_of_child_table = column.column_type == ColumnType::Json && table.stream.is_some();
                assert_eq!(is_listed, !is_of_child_table, "{}.{}", table.name, column.name);
                // The rows of the child table have the values of the JSON column by name.
                let is_named = |child: &Table| {
                    child.stream == table.stream && child.columns.iter().any(|column| column.named_by.is_some())
                };
                assert!(is_listed || tables().iter().any(is_named), "{}.{}", table.name, column.name);
            }
            for column in record_columns(table) {
                assert_eq!(table.column(column).unwrap().column_type, ColumnType::Text, "{}.{column}", table.name);
            }
        }
    }

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
        let events = identifying_fields_of_events();
        let has = |fields: &IdentifyingFields| fields.any(record, &mut |found| found.identifier == *identifier);
        has(events) || Stream::ALL.into_iter().map(identifying_fields).any(has)
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
        assert!(!test.fields.may_be_a_field(others.as_bytes()) && !test.matches(others));
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
