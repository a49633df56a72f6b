//! Views of a DuckDB file in another time zone than the file's: for the session, and only those that a query names.

use std::cell::Cell;

use duckdb::Connection;

use crate::{
    load::LoadError,
    schema::{View, ViewKind, report_time_zone, views},
};

/// The views whose rows depend on the time zone, each after the views that it reads.
#[derive(Default)]
pub(super) struct ZonedViews(Vec<(&'static View, Cell<bool>)>);

impl ZonedViews {
    /// Returns the views that stand in place of the file's, if the session's zone is another one; none otherwise.
    pub fn of_file(connection: &Connection) -> ZonedViews {
        let Some(zone) = report_time_zone() else { return ZonedViews::default() };
        let stored = connection.query_row("SELECT any_value(time_zone) FROM time_zone_offsets", [], |row| row.get(0));
        // The views of a file of an earlier version are in UTC.
        if stored.unwrap_or_else(|_| "UTC".to_owned()) == zone.name() {
            return ZonedViews::default();
        }
        let dated = views().iter().filter(|view| view.is_dated && view.kind == ViewKind::View);
        ZonedViews(dated.map(|view| (view, Cell::new(false))).collect())
    }

    /// Creates the views that a query names, and those that these read. A query with a macro gets all of them, because
    /// a macro reads views that the query does not name.
    pub fn create_named(&self, connection: &Connection, sql: &str) -> Result<(), LoadError> {
        let sql = sql.to_ascii_lowercase();
        let words = |text: &str, name: &str| {
            text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|word| word == name)
        };
        let has_macro = views().iter().any(|view| view.kind == ViewKind::Macro && words(&sql, &view.name));
        let (mut texts, mut named) = (vec![sql.as_str()], Vec::new());
        for (view, exists) in self.0.iter().rev() {
            if has_macro || texts.iter().any(|text| words(text, &view.name)) {
                texts.push(&view.sql);
                named.push((view, exists));
            }
        }
        for (view, exists) in named.into_iter().rev().filter(|(_, exists)| !exists.get()) {
            let created = connection.execute_batch(&view.create_temporary_sql());
            created.map_err(LoadError::engine("create a view in the time zone"))?;
            exists.set(true);
        }
        Ok(())
    }
}
