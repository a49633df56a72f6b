//! The warehouses as analysts open them: the DuckDB file, and Parquet through the example script in plain DuckDB, in
//! sessions of several time zones.

use std::rc::Rc;

use duckdb::{Connection, types::Value};

use super::recompute::Rows;
use crate::harness::{Cell, Place};

/// UTC, and zones far from it on either side. The second one has a half-hour offset and summer time.
const ZONES: [&str; 3] = ["UTC", "America/St_Johns", "Pacific/Kiritimati"];

/// An open warehouse, read in one time zone.
pub struct Warehouse {
    pub name: String,
    zone: Option<&'static str>,
    /// Shared by the time zones, because the script for Parquet files makes each view, which takes seconds.
    connection: Rc<Connection>,
}

/// The names of the views in the repository.
pub fn view_names() -> Vec<String> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/views")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".sql").map(str::to_owned)).collect()
}

fn attach(place: &Place) -> String {
    format!("ATTACH '{}' AS w (READ_ONLY); USE w.main", place.duckdb().display())
}

fn script(place: &Place) -> String {
    let script = include_str!("../../examples/parquet_views.sql");
    script.replacen("'warehouse-parquet'", &format!("'{}'", place.parquet().display()), 1)
}

impl Warehouse {
    /// Both warehouses in every time zone; only one if the engine has no time zones.
    pub fn all(place: &Place) -> Vec<Warehouse> {
        Warehouse::in_zones(place, &ZONES)
    }

    /// Both warehouses in UTC.
    pub fn in_utc(place: &Place) -> Vec<Warehouse> {
        Warehouse::in_zones(place, &ZONES[..1])
    }

    /// The DuckDB file as an analyst opens it: with an engine without the search extension.
    pub fn duckdb(place: &Place) -> Warehouse {
        Warehouse::open("DuckDB", &attach(place), &ZONES[..1]).remove(0)
    }

    /// The Parquet files, in UTC.
    pub fn parquet(place: &Place) -> Warehouse {
        Warehouse::open("Parquet", &script(place), &ZONES[..1]).remove(0)
    }

    fn in_zones(place: &Place, zones: &[&'static str]) -> Vec<Warehouse> {
        let both = Warehouse::open("DuckDB", &attach(place), zones).into_iter();
        both.zip(Warehouse::open("Parquet", &script(place), zones)).flat_map(<[_; 2]>::from).collect()
    }

    /// Opens a warehouse, with the last of the zones as the session's zone.
    fn open(kind: &str, open: &str, zones: &[&'static str]) -> Vec<Warehouse> {
        let connection = Rc::new(Connection::open_in_memory().unwrap());
        connection.execute_batch("SET threads = 2; SET memory_limit = '1GB'").unwrap();
        let knows = "SELECT count(*) FROM duckdb_settings() WHERE name = 'TimeZone'";
        let knows: i64 = connection.query_row(knows, [], |row| row.get(0)).unwrap();
        let zones = if knows == 0 { &zones[..1] } else { zones };
        let warehouses = zones.iter().map(|zone| Warehouse {
            name: format!("{kind} in {zone}"),
            zone: (knows > 0).then_some(*zone),
            connection: Rc::clone(&connection),
        });
        let warehouses: Vec<_> = warehouses.collect();
        warehouses.last().unwrap().connection().execute_batch(open).unwrap();
        warehouses
    }

    /// Returns the connection, set to this time zone.
    fn connection(&self) -> &Connection {
        if let Some(zone) = self.zone {
            self.connection.execute_batch(&format!("SET TimeZone = '{zone}'")).unwrap();
        }
        &self.connection
    }

    /// The rows of a query, each value as text.
    pub fn query(&self, sql: &str) -> Rows {
        let sql = format!("SELECT COLUMNS(*)::VARCHAR FROM ({sql})");
        let mut statement = self.connection().prepare(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut rows = statement.query([]).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let columns = rows.as_ref().unwrap().column_count();
        let mut found = Vec::new();
        let cell = |value: Value| match value {
            Value::Null => None,
            Value::Text(text) => Some(text),
            other => panic!("{other:?} is no text"),
        };
        while let Some(row) = rows.next().unwrap() {
            found.push((0..columns).map(|column| cell(row.get::<_, Value>(column).unwrap())).collect());
        }
        found
    }

    /// Returns the error of a query that must fail.
    pub fn fails(&self, sql: &str) -> String {
        let mut statement = match self.connection().prepare(sql) {
            Ok(statement) => statement,
            Err(error) => return error.to_string(),
        };
        let failed = match statement.query([]) {
            Err(error) => Some(error.to_string()),
            Ok(mut rows) => rows.next().err().map(|error| error.to_string()),
        };
        failed.unwrap_or_else(|| panic!("{sql} did not fail"))
    }

    /// Returns the rows of a view, with times as epoch microseconds.
    pub fn rows(&self, view: &str) -> Rows {
        let times = "SELECT column_name FROM (DESCRIBE SELECT * FROM VIEW) WHERE column_type = 'TIMESTAMP'";
        let times = self.query(&times.replace("VIEW", view)).into_iter().flatten().flatten();
        let times: Vec<String> = times.map(|name| format!("epoch_us({name}) AS {name}")).collect();
        let replaced = if times.is_empty() { String::new() } else { format!("REPLACE ({})", times.join(", ")) };
        self.query(&format!("SELECT * {replaced} FROM {view}"))
    }

    /// Returns the table scans in the plan of a query: the columns that each reads, and its filters. The engine parses
    /// the plan, because it is nested deeper than other JSON parsers accept.
    pub fn scans(&self, sql: &str) -> Vec<[String; 2]> {
        let plan: String =
            self.connection().query_row(&format!("EXPLAIN (FORMAT json) {sql}"), [], |row| row.get(1)).unwrap();
        let part =
            |name| format!("coalesce(replace(json_extract(value, '$.extra_info.{name}')::VARCHAR, ' ', ''), 'null')");
        let scans = format!(
            "SELECT {}, {} FROM json_tree(?::VARCHAR)
             WHERE type = 'OBJECT' AND json_array_length(value, '$.children') = 0 AND json_exists(value, '$.extra_info.Projections')",
            part("Projections"),
            part("Filters")
        );
        let mut statement = self.connection().prepare(&scans).unwrap();
        let rows = statement.query_map([plan], |row| Ok([row.get(0)?, row.get(1)?])).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Returns the first value of the first row.
    pub fn text(&self, sql: &str) -> Cell {
        self.query(sql).into_iter().next().and_then(|row| row.into_iter().next()).flatten()
    }
}

/// Asserts equality, ignoring the order of rows and the last digits of numbers.
pub fn assert_same(what: &str, wanted: &Rows, found: &Rows) {
    if let Some(difference) = difference(wanted, found) {
        panic!("{what}: {difference}");
    }
}

/// Describes how rows differ, ignoring their order and the last digits of numbers; `None` if they are equal.
pub fn difference(wanted: &Rows, found: &Rows) -> Option<String> {
    let sorted = |rows: &Rows| {
        let mut rows = rows.clone();
        rows.sort();
        rows
    };
    let (wanted, found) = (sorted(wanted), sorted(found));
    let differs = |(want, have): &(&Vec<Cell>, &Vec<Cell>)| {
        want.len() != have.len() || want.iter().zip(*have).any(|(want, have)| !is_same(want, have))
    };
    let counts = format!("{} rows wanted, {} found", wanted.len(), found.len());
    match wanted.iter().zip(&found).find(differs) {
        Some((want, have)) => Some(format!("{counts}\n  wanted {want:?}\n  found  {have:?}")),
        None if wanted.len() == found.len() => None,
        None => Some(format!("{counts}\n  last found  {:?}\n  last wanted {:?}", found.last(), wanted.last())),
    }
}

fn is_same(want: &Cell, have: &Cell) -> bool {
    let number = |cell: &Cell| cell.as_deref().and_then(|text| text.parse::<f64>().ok());
    match (number(want), number(have)) {
        (Some(want), Some(have)) => (want - have).abs() <= 1e-9 * want.abs().max(1.0),
        _ => want == have,
    }
}
