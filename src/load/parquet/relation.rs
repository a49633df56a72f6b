//! SQL of what a table holds: the rows of its files, with the parts that wait for publish laid over them.
//!
//! A part takes rows out and then adds rows, as a transaction would. So a row counts unless a *later* part than its own takes it
//! out. The comparison of scans and publish both read tables through this one statement; neither files nor parts are written here.

use std::path::Path;

use super::{
    part::Part,
    partition::{condition_sql, overlap},
    tree::DataFile,
};
use crate::{
    load::{TableDelta, TimeBounds},
    schema::{Table, quote_identifier, quote_text},
};

/// Column of the files of a part: the number of the part.
pub(super) const PART_COLUMN: &str = "_part";
/// The number under which the rows of files count: before every part.
const FILE_PART: u64 = 0;

/// Where a table's rows are.
pub(super) struct Sources<'a> {
    table: &'static Table,
    bounds: Option<TimeBounds>,
    files: &'a [DataFile],
    upserts: Vec<String>,
    deletes: Vec<String>,
    rows_max: u64,
}

impl<'a> Sources<'a> {
    /// The rows of these files and parts. Parts that hold nothing within the bounds are left out.
    pub(super) fn new<'p>(
        table: &'static Table,
        bounds: Option<TimeBounds>,
        files: &'a [DataFile],
        parts: impl IntoIterator<Item = &'p Part>,
    ) -> Self {
        let rows_max = files.iter().map(|file| file.facts.rows).sum();
        let mut sources = Self { table, bounds, files, upserts: Vec::new(), deletes: Vec::new(), rows_max };
        let within = |held: Option<TimeBounds>| held.zip(bounds).is_none_or(|(held, bounds)| overlap(held, bounds));
        for part in parts {
            let Some(changes) = part.manifest.tables.get(&table.name) else { continue };
            if let Some(extent) = changes.upserts.as_ref().filter(|extent| within(extent.bounds())) {
                sources.rows_max += extent.rows;
                sources.upserts.push(path_sql(&part.upserts_file(table)));
            }
            if changes.deletes.as_ref().is_some_and(|extent| within(extent.bounds())) {
                sources.deletes.push(path_sql(&part.deletes_file(table)));
            }
        }
        sources
    }

    /// Rows, or fewer: those that are taken out, or lie outside the bounds, are counted too.
    pub(super) fn rows_max(&self) -> u64 {
        self.rows_max
    }

    /// `SELECT` of the rows within the bounds: every column of the contract, in its order, times in UTC without a zone.
    pub(super) fn select_sql(&self) -> String {
        let mut rows = self.file_rows();
        rows.extend(self.upsert_rows());
        if rows.is_empty() {
            return format!("SELECT {} WHERE false", self.columns(|_| true, false));
        }
        let columns = column_list("held", self.table.columns.iter().map(|column| column.name.as_str()));
        let rows = rows.join(" UNION ALL ");
        let gone = self.gone().unwrap_or_default();
        format!("SELECT {columns} FROM ({rows}) AS held{gone}")
    }

    /// One `SELECT` for each set of files that lack the same columns: usually one.
    fn file_rows(&self) -> Vec<String> {
        let mut groups: Vec<(&[&'static str], Vec<String>)> = Vec::new();
        for file in self.files {
            let missing = file.facts.missing.as_slice();
            match groups.iter_mut().find(|(columns, _)| *columns == missing) {
                Some((_, paths)) => paths.push(path_sql(&file.path)),
                None => groups.push((missing, vec![path_sql(&file.path)])),
            }
        }
        let select = |(missing, paths): (&[&'static str], Vec<String>)| {
            let columns = self.columns(|name| missing.contains(&name), true);
            let condition = self.condition(true);
            format!(
                "SELECT {columns}, CAST({FILE_PART} AS BIGINT) AS {PART_COLUMN} FROM {}{condition}",
                scan_sql(&paths)
            )
        };
        groups.into_iter().map(select).collect()
    }

    fn upsert_rows(&self) -> Option<String> {
        let columns = column_list("", self.table.columns.iter().map(|column| column.name.as_str()));
        let condition = self.condition(false);
        (!self.upserts.is_empty())
            .then(|| format!("SELECT {columns}, {PART_COLUMN} FROM {}{condition}", scan_sql(&self.upserts)))
    }

    /// Keeps the rows that no later part takes out.
    fn gone(&self) -> Option<String> {
        if self.deletes.is_empty() {
            return None;
        }
        let keys = TableDelta { table: self.table, deletes: None, upserts: None }.delete_columns();
        let equal: Vec<String> =
            keys.iter().map(|name| quote_identifier(name)).map(|name| format!("held.{name} = gone.{name}")).collect();
        Some(format!(
            " ANTI JOIN (SELECT {}, max({PART_COLUMN}) AS {PART_COLUMN} FROM {}{} GROUP BY ALL) AS gone \
             ON {} AND held.{PART_COLUMN} < gone.{PART_COLUMN}",
            column_list("", keys.iter().copied()),
            scan_sql(&self.deletes),
            self.condition(false),
            equal.join(" AND ")
        ))
    }

    /// ` WHERE` for the bounds, or nothing.
    fn condition(&self, zoned: bool) -> String {
        let column = self.bounds.zip(self.table.partition.as_deref());
        let condition = column.and_then(|(bounds, column)| condition_sql(bounds, column, zoned));
        condition.map(|condition| format!(" WHERE {condition}")).unwrap_or_default()
    }

    /// The contract's columns: NULL for those that are missing, and without their zone if the source has one.
    fn columns(&self, is_missing: impl Fn(&'static str) -> bool, zoned: bool) -> String {
        let column = |column: &'static crate::schema::Column| {
            let name = quote_identifier(&column.name);
            if is_missing(&column.name) {
                format!("CAST(NULL AS {}) AS {name}", column.column_type.duckdb())
            } else if zoned {
                column.column_type.select_from_file(&name)
            } else {
                name
            }
        };
        self.table.columns.iter().map(column).collect::<Vec<_>>().join(", ")
    }
}

fn column_list<'a>(alias: &str, names: impl Iterator<Item = &'a str>) -> String {
    let dot = if alias.is_empty() { "" } else { "." };
    let list: Vec<String> = names.map(|name| format!("{alias}{dot}{}", quote_identifier(name))).collect();
    list.join(", ")
}

/// A path as a text literal. The root is checked to be UTF-8, and everything below it is named by this program.
pub(super) fn path_sql(path: &Path) -> String {
    quote_text(&path.to_string_lossy())
}

/// Folder names are data to readers; to us the partition is a column of the rows already.
fn scan_sql(paths: &[String]) -> String {
    format!("read_parquet([{}], hive_partitioning = false)", paths.join(", "))
}
