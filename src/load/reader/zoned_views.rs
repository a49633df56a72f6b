//! Views of a DuckDB file in another time zone than the file's: for the session, and only those that a query names.

use std::cell::Cell;

use duckdb::Connection;

use crate::{
    load::LoadError,
    schema::{View, ViewKind, named_in, report_time_zone, views, words},
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
        let is_named_macro = |view: &View| view.kind == ViewKind::Macro && words(&sql).any(|word| word == view.name);
        let named = match views().iter().any(is_named_macro) {
            true => self.0.iter().collect(),
            false => named_in(&sql, &self.0, |(view, _)| (&view.name, &view.sql)),
        };
        for (view, exists) in named.into_iter().filter(|(_, exists)| !exists.get()) {
            let created = connection.execute_batch(&view.create_temporary_sql());
            created.map_err(LoadError::engine("create a view in the time zone"))?;
            exists.set(true);
        }
        Ok(())
    }
}
