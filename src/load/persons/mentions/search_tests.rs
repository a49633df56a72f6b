//! Every text is searched, also in tables that are not ours.

use arrow::array::StringArray;
use std::sync::Arc;

use super::*;
use crate::{
    load::{
        Identity, LoadError,
        store::{ForeignTable, MemoryStore, Shelf, Store, TableChange},
        tables::{
            Cell,
            fixture::{put, rows_of},
        },
    },
    model::IdentifierKind,
    schema::Table,
};

const MENTIONS: &str = "as zoe@example.com said";
const OTHERS: &str = "nobody";
const ROWS: usize = 200;

fn matcher() -> IdentifierMatcher {
    IdentifierMatcher::new(&[Identifier::read(IdentifierKind::Email, "zoe@example.com").unwrap()])
}

/// A store in memory with tables that are not ours, and optionally one table that cannot be read.
struct StoreWithForeignTables {
    inner: MemoryStore,
    foreign: Vec<(ForeignTable, RecordBatch)>,
    unreadable: Option<&'static str>,
}

impl Store for StoreWithForeignTables {
    fn rebind(&mut self, identity: &Identity) -> Result<(), LoadError> {
        self.inner.rebind(identity)
    }
    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        if self.unreadable == Some(&table.name) {
            return Err(LoadError::Bug("unreadable".into()));
        }
        self.inner.read(table, columns, filter, take)
    }
    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError> {
        self.inner.write(changes)
    }
    fn commit(&mut self, label: &str) -> Result<(), LoadError> {
        self.inner.commit(label)
    }
    fn rollback(&mut self) {
        self.inner.rollback();
    }
    fn publish(&mut self) -> Result<(), LoadError> {
        self.inner.publish()
    }
    fn purge_removed_bytes(&mut self) -> Result<(), LoadError> {
        self.inner.purge_removed_bytes()
    }
    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError> {
        Ok(self.foreign.iter().map(|(table, _)| table.clone()).collect())
    }
    fn read_foreign(&mut self, table: &ForeignTable, take: &mut Take<'_>) -> Result<(), LoadError> {
        let rows = self.foreign.iter().filter(|(foreign, _)| foreign == table);
        rows.map(|(_, rows)| rows.clone()).try_for_each(take)
    }
}

/// Fills every text column of every table; each third row mentions a person.
fn filled(store: &mut BufferedStore) {
    for table in tables() {
        let columns = text_columns(table);
        let row = |text| columns.iter().map(|column| (*column, Cell::Text(text))).collect::<Vec<_>>();
        let (mentioning, other) = (row(MENTIONS), row(OTHERS));
        let rows: Vec<&[(&str, Cell<'_>)]> =
            (0..ROWS).map(|at| if at % 3 == 0 { mentioning.as_slice() } else { other.as_slice() }).collect();
        rows.chunks(70).for_each(|rows| put(store, &table.name, rows));
    }
}

#[test]
fn p9_every_buffered_or_stored_text_is_searched_once() {
    let columns =
        || tables().iter().flat_map(|table| text_columns(table).into_iter().map(move |column| (&table.name, column)));
    let mentioning = ROWS.div_ceil(3);
    let bytes = columns().count() * (mentioning * MENTIONS.len() + (ROWS - mentioning) * OTHERS.len());
    let mut store = BufferedStore::new(Box::new(MemoryStore::open(&Shelf::default())), 1 << 20);
    filled(&mut store);
    for rows in ["buffered", "stored"] {
        let searched = search(&mut store, &[], &matcher(), 2).unwrap();
        let all = columns().map(|(table, column)| (format!("{table}.{column}"), mentioning as u64)).collect();
        assert_eq!(searched.mentions, all, "{rows} rows");
        assert_eq!((searched.searched, searched.bytes), ((tables().len() * ROWS) as u64, bytes as u64));
        assert_eq!((searched.inside_longer, searched.in_tables_of_others.len()), (0, 0));
        store.commit("test").unwrap();
    }
}

#[test]
fn p9_rows_of_the_people_are_counted_as_left() {
    let mut store = BufferedStore::new(Box::new(MemoryStore::open(&Shelf::default())), 1 << 20);
    for number in [7, 8, 7] {
        put(&mut store, "responses", &[&[("visitor_id", Cell::Integer(number))]]);
    }
    put(&mut store, "rejects", &[&[("raw", Cell::Text(r#"{"visitorId":7}"#))]]);
    // Texts are not searched for a number, so only the columns and records of the people show these rows.
    let people = [Identifier::read(IdentifierKind::VisitorId, "7").unwrap()];
    let searched = search(&mut store, &people, &IdentifierMatcher::new(&people), 2).unwrap();
    assert_eq!((searched.left, searched.mentions.len(), searched.searched), (3, 0, 4));
    assert_eq!(search(&mut store, &[], &IdentifierMatcher::new(&people), 2).unwrap().left, 0);
}

#[test]
fn p9_a_text_inside_a_longer_one_is_no_mention_and_is_counted() {
    let mut store = BufferedStore::new(Box::new(MemoryStore::open(&Shelf::default())), 1 << 20);
    put(
        &mut store,
        "users",
        &[&[("external_user_id", Cell::Text("a")), ("extra", Cell::Text("chloe-zoe@example.com"))]],
    );
    let searched = search(&mut store, &[], &matcher(), 2).unwrap();
    assert_eq!((searched.mentions.len(), searched.inside_longer), (0, 1));
}

#[test]
fn p9_tables_of_others_are_searched_and_reported_apart() {
    let texts = |values: [&str; 2]| Arc::new(StringArray::from_iter_values(values)) as _;
    let columns =
        [("note", texts([MENTIONS, OTHERS])), ("sum", Arc::new(arrow::array::Int64Array::from(vec![1, 2])) as _)];
    let theirs =
        ForeignTable { name: "notes".into(), relation: "notes".into(), columns: vec!["note".into(), "sum".into()] };
    let foreign = vec![(theirs, RecordBatch::try_from_iter(columns).unwrap())];
    let store = StoreWithForeignTables { inner: MemoryStore::open(&Shelf::default()), foreign, unreadable: None };
    let searched = search(&mut BufferedStore::new(Box::new(store), 0), &[], &matcher(), 2).unwrap();
    let mentions = BTreeMap::from([("notes.note".to_owned(), 1)]);
    assert_eq!((searched.mentions, searched.in_tables_of_others, searched.searched), (BTreeMap::new(), mentions, 2));
}

#[test]
fn p9_a_table_that_cannot_be_read_is_an_error() {
    for threads in [1, 3] {
        let store = StoreWithForeignTables {
            inner: MemoryStore::open(&Shelf::default()),
            foreign: Vec::new(),
            unreadable: Some("responses"),
        };
        assert!(
            search(&mut BufferedStore::new(Box::new(store), 0), &[], &matcher(), threads).is_err(),
            "{threads} threads"
        );
    }
}

#[test]
fn a_part_of_a_batch_is_searched_by_itself() {
    let rows = rows_of("users", &[&[("extra", Cell::Text(MENTIONS))], &[("extra", Cell::Text(OTHERS))]]);
    let rows = crate::load::store::project(&rows, &["extra"]).unwrap().slice(1, 1);
    let mut tally = SearchCounts { hits: vec![0], ..SearchCounts::default() };
    tally.add(&rows, &matcher()).unwrap();
    assert_eq!((tally.rows, tally.bytes, tally.hits), (1, OTHERS.len() as u64, vec![0]));
}
