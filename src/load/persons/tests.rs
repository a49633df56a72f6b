//! Compares the results with those of a plain loop over random rows of every table.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;

use super::*;
use crate::{
    load::{
        store::{BufferedStore, TableChange, TimeRange, removal_columns},
        tables::{
            Cell,
            fixture::{memory, rows_of, shown},
        },
    },
    model::{Identifier, IdentifierKind, Spellings, Stream, Window, WrittenIdentifier, is_email_attribute},
    person::{IdentifyingFields, identifying_columns, identifying_fields, identifying_fields_of_events},
    schema::{Column, ColumnType, Identifies, Table, TableKind, children_of, tables},
};

const SESSIONS: [&str; 6] =
    ["s-1", "S-1", "s-2", "n/a", "698547A7-d566-4C55-9a40-1d2e3f405162", "698547a7d5664c559a401d2e3f405162"];
const USERS: [&str; 7] = ["anna", "Anna", "zo\u{eb}", "zoe\u{308}", "", "anonymous", "bert"];
const VISITORS: [&str; 6] =
    ["7", " 007", "2F1C9D6E-0b7a-4c55-9a40-1d2e3f405162", "{2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162}", "v-1", "-"];
const MAILS: [&str; 5] =
    ["anna@example.com", "ANNA@example.com.", "bert@example.com", "on file", "zo\u{eb}@xn--exmple-cua.de"];
const NAMES: [&str; 4] = ["email", "E-Mail", "plan", ""];
const NUMBERS: [i64; 3] = [7, 8, 70];
const RECORDS: [&str; 7] = [
    r#"{"externalUserId":"anna"}"#,
    r#"{"visitorId":7,"responseGroupUid":"s-9"}"#,
    r#"{"responseGroupUid":"S\u002d1"}"#,
    r#"{"visitorUuid":"2f1c9d6e0b7a4c559a401d2e3f405162", broken"#,
    r#"{"email":"anna@example.com"}"#,
    r#"{"userId":"zo\u00eb"}"#,
    "anna",
];

/// Some of `RECORDS`, and one in Latin-1, in Base64.
const RECORDS_IN_BASE64: [&str; 4] = [
    "eyJleHRlcm5hbFVzZXJJZCI6ImFubmEifQ==",
    "eyJ2aXNpdG9ySWQiOjcsInJlc3BvbnNlR3JvdXBVaWQiOiJzLTkifQ==",
    "eyJ1c2VySWQiOiJ6b+sifQ==",
    "anna",
];
const OBJECTS: [&str; 4] =
    [r#"{"E-Mail":"ANNA@example.com."}"#, r#"{"plan":"anna@example.com"}"#, r#"{"email":"a","mail":"b@c.de"}"#, "7"];

fn texts_of(kind: IdentifierKind) -> &'static [&'static str] {
    match kind {
        IdentifierKind::Session => &SESSIONS,
        IdentifierKind::UserId | IdentifierKind::AnonymousId => &USERS,
        IdentifierKind::VisitorId | IdentifierKind::VisitorUuid => &VISITORS,
        IdentifierKind::Email => &MAILS,
    }
}

fn chosen(table: &Table, column: &Column, choice: u8) -> Cell<'static> {
    let of = |texts: &'static [&'static str]| Cell::Text(texts[usize::from(choice) % texts.len()]);
    let is_key = table.key.contains(&column.name) || table.partition.as_ref() == Some(&column.name);
    let is_name = table.columns.iter().any(|other| other.named_by.as_ref() == Some(&column.name));
    match (column.identifies, column.column_type) {
        (Some(_), _) if column.nullable && choice.is_multiple_of(5) => Cell::Null,
        (Some(Identifies::Record), _) => of(&RECORDS),
        (Some(Identifies::RecordInBase64), _) => of(&RECORDS_IN_BASE64),
        (Some(_), ColumnType::Json) => of(&OBJECTS),
        (Some(_), ColumnType::Bigint) => Cell::Integer(NUMBERS[usize::from(choice) % NUMBERS.len()]),
        (Some(identifies), ColumnType::Text) => of(texts_of(identifies.kind().unwrap())),
        _ if is_name => of(&NAMES),
        (_, ColumnType::Timestamp) if is_key => Cell::Moment(i64::from(choice % 3) * 1_500),
        (_, ColumnType::Bigint) if is_key => Cell::Integer(i64::from(choice % 2)),
        (_, ColumnType::Text) if is_key => of(&["a", "b"]),
        _ if column.nullable => Cell::Null,
        (_, ColumnType::Timestamp) => Cell::Moment(0),
        (_, ColumnType::Bigint) => Cell::Integer(0),
        (_, ColumnType::Boolean) => Cell::Boolean(false),
        _ => Cell::Text(""),
    }
}

/// A row of a table, as a plain loop sees it.
#[derive(Clone, Debug)]
struct PlainRow {
    table: &'static Table,
    /// Written into `_run_id`, to tell it from all others.
    id: String,
    cells: BTreeMap<&'static str, Option<String>>,
}

impl PlainRow {
    fn made(number: usize, table: &'static Table, choices: &[u8]) -> (Self, arrow::array::RecordBatch) {
        let id = format!("row {number:03}");
        let choices = choices.iter().cycle();
        let cells: Vec<(&'static str, Cell<'_>)> = (table.columns.iter().zip(choices))
            .map(|(column, choice)| match column.name.as_str() {
                "_run_id" => ("_run_id", Cell::Text(&id)),
                name => (name, chosen(table, column, *choice)),
            })
            .collect();
        let text = |cell: Cell<'_>| match cell {
            Cell::Text(text) => Some(text.to_owned()),
            Cell::Integer(number) | Cell::Moment(number) => Some(number.to_string()),
            Cell::Boolean(_) | Cell::Null => None,
        };
        let rows = rows_of(&table.name, &[&cells]);
        let cells = cells.iter().map(|(name, cell)| (*name, text(*cell))).collect();
        (Self { table, id, cells }, rows)
    }

    fn text(&self, column: &str) -> Option<&str> {
        self.cells[column].as_deref()
    }

    /// Each identifier in a column for it. JSON of streams is left out, because child tables have its values.
    fn spelled(&self) -> Vec<WrittenIdentifier> {
        let is_named = |column: &Column| match &column.named_by {
            Some(name) => self.text(name).is_some_and(is_email_attribute),
            None => true,
        };
        let mut spelled = Vec::new();
        for (column, kind) in identifying_columns(self.table).filter(|(column, _)| is_named(column)) {
            let Some(text) = self.text(&column.name) else { continue };
            match (column.column_type, &self.table.stream) {
                (ColumnType::Json, Some(_)) => {}
                (ColumnType::Json, None) => {
                    let members: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
                    let emails = members.iter().filter(|(name, _)| is_email_attribute(name));
                    spelled.extend(emails.filter_map(|(_, value)| WrittenIdentifier::read(kind, value)));
                }
                _ => spelled.extend(WrittenIdentifier::read(kind, text)),
            }
        }
        spelled
    }

    fn carries(&self, person: &[Identifier]) -> bool {
        self.spelled().iter().any(|spelled| person.contains(&spelled.identifier))
    }

    fn holds_a_record_of(&self, person: &[Identifier]) -> bool {
        let mut records = self.table.columns.iter().filter_map(|column| match column.identifies? {
            Identifies::Record => Some(self.text(&column.name)?.to_owned()),
            // Latin-1.
            Identifies::RecordInBase64 => {
                let bytes = STANDARD.decode(self.text(&column.name)?).ok()?;
                Some(bytes.into_iter().map(char::from).collect())
            }
            Identifies::Identifier(_) => None,
        });
        let events = identifying_fields_of_events();
        records.any(|record| {
            let has = |fields: &IdentifyingFields| fields.any(&record, &mut |found| person.contains(&found.identifier));
            has(events) || Stream::ALL.into_iter().map(identifying_fields).any(has)
        })
    }

    fn key(&self) -> Vec<Option<&str>> {
        removal_columns(self.table).into_iter().map(|column| self.text(column)).collect()
    }
}

fn found_by_plain_loop<'a>(rows: &'a [PlainRow], person: &[Identifier]) -> (Vec<&'a PlainRow>, PeopleFound) {
    let (mut gone, mut found) = (Vec::new(), PeopleFound::default());
    for base in tables().iter().filter(|table| table.kind != TableKind::Child) {
        let family: Vec<&Table> = std::iter::once(base).chain(children_of(&base.name)).collect();
        let of_family = || rows.iter().filter(|row| family.iter().any(|table| table.name == row.table.name));
        let is_selected = |row: &&PlainRow| row.carries(person) || row.holds_a_record_of(person);
        let keys: BTreeSet<Vec<Option<&str>>> = of_family().filter(is_selected).map(PlainRow::key).collect();
        for row in of_family().filter(|row| keys.contains(&row.key())) {
            gone.push(row);
            *found.rows.entry(&row.table.name).or_default() += 1;
            let Some(stream) = base.stream.as_deref().filter(|_| base.partition.is_some()) else { continue };
            let moments = keys.iter().map(|key| key.last().unwrap().unwrap().parse::<i64>().unwrap());
            let bounds = moments.map(TimeRange::at).reduce(TimeRange::with).unwrap();
            let window = Window::new(bounds.start_us / 1000, bounds.end_us / 1000 + 1);
            let met = found.met.entry(stream.parse().unwrap()).or_insert(window);
            *met = Window::new(met.start_ms.min(window.start_ms), met.end_ms.max(window.end_ms));
        }
    }
    (gone, found)
}

/// A store with rows by choices, some of them written and some waiting, and the same rows for a plain loop.
fn made(choices: &[(usize, Vec<u8>)]) -> (BufferedStore, Vec<PlainRow>) {
    let (_shelf, mut store) = memory();
    let mut plain = Vec::new();
    for (number, (table, choices)) in choices.iter().enumerate() {
        let table = &tables()[table % tables().len()];
        let (row, rows) = PlainRow::made(number, table, choices);
        let mut change = TableChange::new(table);
        change.add(rows);
        store.change(change).unwrap();
        plain.push(row);
        if number == choices.len() / 2 {
            store.commit("test").unwrap();
        }
    }
    (store, plain)
}

fn ids(store: &mut BufferedStore) -> BTreeSet<String> {
    tables().iter().flat_map(|table| shown(store, &table.name, &["_run_id"])).collect()
}

fn person(choices: &[(usize, u8)]) -> Vec<Identifier> {
    let read = |(kind, choice): &(usize, u8)| {
        let kind = IdentifierKind::ALL[kind % IdentifierKind::ALL.len()];
        let texts = texts_of(kind);
        Identifier::read(kind, texts[usize::from(*choice) % texts.len()])
    };
    choices.iter().filter_map(read).collect()
}

fn choices_of_rows() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    prop::collection::vec((any::<usize>(), prop::collection::vec(any::<u8>(), 41)), 0..40)
}

proptest! {
    #[test]
    fn p9_the_rows_of_people_equal_those_of_a_plain_loop(
        rows in choices_of_rows(),
        named in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
    ) {
        let (mut store, plain) = made(&rows);
        let person = person(&named);
        let (gone, expected) = found_by_plain_loop(&plain, &person);
        prop_assert_eq!(&find(&mut store, &person).unwrap(), &expected);
        prop_assert_eq!(ids(&mut store).len(), plain.len(), "finding changes nothing");
        prop_assert_eq!(&remove(&mut store, &person).unwrap(), &expected);
        let gone: BTreeSet<&str> = gone.iter().map(|row| row.id.as_str()).collect();
        let left = plain.iter().map(|row| &row.id).filter(|id| !gone.contains(id.as_str())).cloned();
        let left: BTreeSet<String> = left.collect();
        prop_assert_eq!(&ids(&mut store), &left);
        store.commit("test").unwrap();
        prop_assert_eq!(&ids(&mut store), &left);
        prop_assert_eq!(find(&mut store, &person).unwrap(), PeopleFound::default());
    }

    #[test]
    fn p9_co_occurring_identifiers_equal_those_of_a_plain_loop(
        rows in choices_of_rows(),
        named in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
    ) {
        let (mut store, plain) = made(&rows);
        let person = person(&named);
        let (mut expected, mut spellings) = (BTreeSet::new(), Spellings::new());
        let is_read = |table: &Table, column: &Column| column.column_type != ColumnType::Json || table.stream.is_none();
        let links = |table: &Table| identifying_columns(table).filter(|(column, _)| is_read(table, column)).count() > 1;
        for row in plain.iter().filter(|row| links(row.table) && row.carries(&person)) {
            let identifiers: BTreeSet<Identifier> =
                row.spelled().into_iter().map(|spelled| spelled.into_identifier(&mut spellings)).collect();
            expected.insert(identifiers.into_iter().collect::<Vec<_>>());
        }
        let expected = CoOccurrence { rows: expected, too_wide: Vec::new(), spellings };
        prop_assert_eq!(co_occurrence(&mut store, &person).unwrap(), expected);
    }
}

#[test]
fn p9_child_and_parent_rows_are_removed_together() {
    let (_shelf, mut store) = memory();
    let put = crate::load::tables::fixture::put;
    let answer = |session, question, at_us| {
        [
            ("response_group_uid", Cell::Text(session)),
            ("question_id", Cell::Integer(question)),
            ("created_at", Cell::Moment(at_us)),
        ]
    };
    for (session, question) in [("s-1", 1), ("s-1", 2), ("s-2", 1)] {
        let mut cells = answer(session, question, 5_000).to_vec();
        cells.push(("external_user_id", if session == "s-1" { Cell::Text("anna") } else { Cell::Text("bert") }));
        put(&mut store, "responses", &[&cells]);
        put(&mut store, "response_choices", &[&answer(session, question, 5_000), &answer(session, question, 5_000)]);
    }
    // An attribute names somebody of whom the snapshot says nothing, in letters of its own.
    put(&mut store, "visitor_snapshots", &[&answer("s-2", 0, 9_000)[..1], &answer("s-3", 0, 0)[..1]]);
    let attribute = |name, value| {
        [("response_group_uid", Cell::Text("s-2")), ("name", Cell::Text(name)), ("value_text", Cell::Text(value))]
    };
    let attributes =
        [attribute("plan", "anna@example.com"), attribute("E-Mail", "ANNA@example.com"), attribute("x", "y")];
    put(&mut store, "visitor_snapshot_attributes", &attributes.iter().map(|row| row.as_slice()).collect::<Vec<_>>());
    let person = [
        Identifier::read(IdentifierKind::UserId, "anna").unwrap(),
        Identifier::read(IdentifierKind::Email, "anna@example.com").unwrap(),
    ];
    let found = remove(&mut store, &person).unwrap();
    let expected =
        [("response_choices", 4), ("responses", 2), ("visitor_snapshot_attributes", 3), ("visitor_snapshots", 1)];
    assert_eq!(found.rows.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(found.met, BTreeMap::from([(Stream::Responses, Window::new(0, 6))]));
    assert_eq!(shown(&mut store, "responses", &["response_group_uid"]), ["s-2"]);
    assert_eq!(shown(&mut store, "response_choices", &["response_group_uid"]), ["s-2", "s-2"]);
    assert_eq!(shown(&mut store, "visitor_snapshots", &["response_group_uid"]), ["s-3"]);
    assert_eq!(shown(&mut store, "visitor_snapshot_attributes", &["name"]), [""; 0]);
}

#[test]
fn no_table_is_read_without_identifiers() {
    let (shelf, mut store) = memory();
    crate::load::tables::fixture::put(&mut store, "responses", &[&[("response_group_uid", Cell::Text(""))]]);
    store.commit("test").unwrap();
    assert_eq!(remove(&mut store, &[]).unwrap(), PeopleFound::default());
    assert_eq!(co_occurrence(&mut store, &[]).unwrap(), CoOccurrence::default());
    assert_eq!(shelf.content().rows_read, 0);
}
