//! Compares whole warehouses with the expected rows, and with each other.

use std::collections::BTreeSet;

use super::{
    Place, Row, Tables, all_contracts, contract, different_rows,
    expected::{BASES, CHILDREN, Expected},
    key_text,
};

/// Returns the columns of a table whose values depend on the record, not on the load.
pub fn content_columns(table: &str) -> Vec<&'static str> {
    let columns = contract(table).columns.iter();
    columns
        .filter(|column| column.origin != "load" && column.name != "_row_hash")
        .map(|column| column.name.as_str())
        .collect()
}

/// Asserts that each warehouse of a place equals the expected rows, and that the warehouses equal each other.
pub fn assert_warehouses_equal(place: &Place, expected: &Expected, when: &str) {
    assert_each_warehouse_equals(place, expected, when);
    let warehouses = place.warehouses();
    for pair in warehouses.windows(2) {
        assert_equal(&pair[0].1, &pair[1].1, when);
    }
}

/// Asserts that each warehouse of a place equals the expected rows. The warehouses may differ in rows about runs, and
/// in the run and time that wrote a row: they do if one of them could not be written for a while.
pub fn assert_each_warehouse_equals(place: &Place, expected: &Expected, when: &str) {
    for (name, tables) in place.warehouses() {
        assert_tables_equal(&tables, expected, &format!("{when}, {name}"));
    }
}

fn assert_tables_equal(tables: &Tables, expected: &Expected, when: &str) {
    assert_rows_equal(|table| tables.rows(table), expected, when);
}

/// Asserts that the rows of one warehouse, which `rows` returns by table, equal the expected rows.
pub fn assert_rows_equal(rows: impl Fn(&str) -> Vec<Row>, expected: &Expected, when: &str) {
    for (base, children) in CHILDREN {
        let collided: BTreeSet<String> = expected.collisions(base).into_iter().cloned().collect();
        assert_base_table_equals(rows(base), expected, base, &collided, when);
        for child in children {
            let owner_columns = &contract(base).key;
            let is_collided = |row: &Row| {
                let owner: Vec<&str> = owner_columns
                    .iter()
                    .map(|name| row.get(name).and_then(Option::as_deref).unwrap_or("NULL"))
                    .collect();
                collided.contains(&owner.join(" / "))
            };
            let mut wanted = expected.rows(child);
            let mut found = rows(child);
            wanted.retain(|row| !is_collided(row));
            found.retain(|row| !is_collided(row));
            if let Some(difference) = different_rows(child, &content_columns(child), &wanted, &found) {
                panic!("{when}: {difference}");
            }
        }
    }
}

fn assert_base_table_equals(
    mut found: Vec<Row>,
    expected: &Expected,
    base: &'static str,
    collided: &BTreeSet<String>,
    when: &str,
) {
    let set = |is_set: bool| is_set.then(|| "set".to_owned());
    for row in &mut found {
        let [first, synced] =
            ["_first_seen_at", "_synced_at"].map(|name| row[name].as_deref().unwrap().parse::<i64>().unwrap());
        assert!(first <= synced, "{when}: {base} was first seen after it was written: {row:?}");
        assert!(row["_run_id"].is_some(), "{when}: {base} without a run: {row:?}");
        let vanished = row["_vanished_at"].is_some();
        row.insert("_vanished_at".to_owned(), set(vanished));
    }
    let wanted = expected.entities(base).map(|(_, entity)| {
        let mut row = entity.row.clone();
        row.insert("_vanished_at".to_owned(), set(entity.has_vanished));
        row
    });
    let contract = contract(base);
    let (won, found): (Vec<Row>, Vec<Row>) =
        found.into_iter().partition(|row| collided.contains(&key_text(contract, row)));
    let wanted: Vec<Row> = wanted.filter(|row| !collided.contains(&key_text(contract, row))).collect();
    let mut columns = content_columns(base);
    columns.push("_vanished_at");
    if let Some(difference) = different_rows(base, &columns, &wanted, &found) {
        panic!("{when}: {difference}");
    }
    let kept: BTreeSet<String> = won.iter().map(|row| key_text(contract, row)).collect();
    assert_eq!(&kept, collided, "{when}: a collision leaves a row of {base}");
    // Themes with one key in different windows are not compared with each other: each has its own row.
    let moments: BTreeSet<_> = won.iter().map(|row| (key_text(contract, row), &row["created_at"])).collect();
    let rows = if base == "responses" { kept.len() } else { moments.len() };
    assert_eq!(rows, won.len(), "{when}: a collision leaves one row of {base}");
    for row in &won {
        let candidates = &expected.bases[base][&key_text(contract, row)];
        let micros = |row: &Row, name: &str| row[name].as_deref().map(|text| text.parse::<i64>().unwrap());
        let times = |row: &Row| (micros(row, "updated_at"), micros(row, "created_at"));
        let live = candidates.iter().filter(|entity| base == "responses" && !entity.has_vanished);
        let newest = live.map(|entity| times(&entity.row)).max();
        let is_newest = |candidate: &Row| newest.is_none_or(|newest| times(candidate) == newest);
        let is_one = |candidate: &Row| content_columns(base).iter().all(|column| candidate[*column] == row[*column]);
        let is_current = |candidate: &Row| is_newest(candidate) && is_one(candidate);
        assert!(candidates.iter().any(|entity| is_current(&entity.row)), "{when}: not the newest record: {row:?}");
    }
}

/// Asserts that two warehouses have equal rows in every table and column.
pub fn assert_equal(left: &Tables, right: &Tables, when: &str) {
    assert_equal_in(all_contracts().keys(), left, right, when);
}

/// Asserts that two warehouses have equal rows in the named tables.
pub fn assert_equal_in<'t>(names: impl IntoIterator<Item = &'t String>, left: &Tables, right: &Tables, when: &str) {
    assert_equal_without(None, names, left, right, when);
}

/// Asserts that these tables have equal rows, ignoring one column.
pub fn assert_equal_without<'t>(
    column: Option<&str>,
    names: impl IntoIterator<Item = &'t String>,
    left: &Tables,
    right: &Tables,
    when: &str,
) {
    for table in names {
        let [left, right] = [left, right].map(|tables| {
            let mut rows = tables.rows(table);
            rows.iter_mut().for_each(|row| row.retain(|name, _| Some(name.as_str()) != column));
            rows.sort();
            rows
        });
        let only = |rows: &[Row], others: &[Row]| {
            rows.iter().find(|row| others.binary_search(row).is_err()).map(|row| format!("{row:?}"))
        };
        if left != right {
            panic!(
                "{when}: {table} differs: {} rows and {} rows\n  only in the first: {:?}\n  only in the second: {:?}",
                left.len(),
                right.len(),
                only(&left, &right),
                only(&right, &left)
            );
        }
    }
}

/// Asserts that the expected rows cover every case; otherwise an equality with them would prove little.
pub fn assert_covers_every_case(expected: &Expected) {
    for (base, children) in CHILDREN {
        assert!(!expected.rows(base).is_empty(), "the service has no {base}");
        for child in children {
            assert!(!expected.rows(child).is_empty(), "the service has no {child}");
        }
    }
    assert_eq!(BASES.len(), CHILDREN.len());
    let responses = expected.rows("responses");
    for column in content_columns("responses").into_iter().filter(|column| !["extra", "meta_extra"].contains(column)) {
        assert!(responses.iter().any(|row| row[column].is_some()), "no response has {column}");
    }
}
