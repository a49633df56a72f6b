//! Reads the warehouses of a script as readers see them.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;

use super::script::Script;
use crate::harness::{CatalogKind, Row, Tables, WarehousePlace, all_contracts, connect};

/// The rows of one warehouse, read at one time.
pub struct Contents {
    pub name: &'static str,
    pub tables: BTreeMap<String, Vec<Row>>,
}

/// Reads warehouses through an engine that stays open.
#[derive(Default)]
pub struct ContentsReader {
    engine: Option<Connection>,
    /// The warehouses that had tables once.
    had_tables: BTreeSet<&'static str>,
}

impl ContentsReader {
    /// Reads the warehouses, with the texts of [`store_texts`]. A warehouse that a kill left without tables is left
    /// out.
    pub fn read(&mut self, script: &Script, places: &[(&'static str, WarehousePlace)]) -> Vec<Contents> {
        let mut engine = self.engine.take().unwrap_or_else(engine);
        let names: Vec<&str> = all_contracts().keys().map(String::as_str).collect();
        let mut contents = Vec::new();
        for (name, place) in places {
            if !self.had_tables.contains(name) && !place.has_tables(&engine) {
                continue;
            }
            let (back, mut tables) = Tables::read_through(engine, *place, &names);
            engine = back;
            tables.values_mut().flatten().for_each(|row| store_texts(script, row));
            contents.push(Contents { name, tables });
            self.had_tables.insert(name);
        }
        self.engine = Some(engine);
        contents
    }
}

/// Replaces the characters that a warehouse of the script cannot store: PostgreSQL has no texts with NUL.
pub fn store_texts(script: &Script, row: &mut Row) {
    if script.catalog == Some(CatalogKind::Postgres) {
        let with_nul = row.values_mut().flatten().filter(|text| text.contains('\0'));
        with_nul.for_each(|text| *text = text.replace('\0', "\u{fffd}"));
    }
}

/// Opens an engine that reads the warehouses of a seed, without an optimizer: it reads whole tables of a few rows.
fn engine() -> Connection {
    let connection = connect();
    connection.execute_batch("PRAGMA disable_optimizer").unwrap();
    connection
}
