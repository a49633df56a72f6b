//! One commit as data: what it does to each table, made into temporary relations `delta_*` of an engine.

use std::collections::BTreeMap;

use duckdb::Connection;

use super::*;
use crate::{
    load::{DeltaRows, Fill, TimeBounds, pending::AppliedScan},
    model::{FlagSet, RunId, Scope, Stream, Window},
    schema::{Column, ColumnType, quote_identifier},
};

/// Values of some columns of a row as SQL; the others get NULL, or a value that says nothing where NULL is not allowed.
pub(super) type Values = Vec<(&'static str, String)>;

/// What a commit does to one table.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    pub(super) deletes: Vec<Values>,
    pub(super) upserts: Vec<Values>,
}

/// One commit, with the scan that it stands for.
#[derive(Clone, Debug)]
pub(super) struct Commit {
    pub(super) scan: Scan,
    number: usize,
    changes: BTreeMap<&'static str, Change>,
}

impl Commit {
    pub(super) fn new(number: usize) -> Self {
        let scan = Scan {
            id: ScanId(format!("scan-{number:04}")),
            run_id: RunId("run".into()),
            scope: Scope::all(Stream::Responses),
            window: Window::new(0, 1),
            flags: FlagSet::EMPTY,
            started_ms: START_US / 1000,
        };
        let ledger = vec![("scan_id", format!("'{}'", scan.id)), ("stream", "'responses'".to_owned())];
        let changes = [("sync_windows", Change { deletes: Vec::new(), upserts: vec![ledger] })].into();
        Self { scan, number, changes }
    }

    pub(super) fn change(&mut self, table: &'static str) -> &mut Change {
        self.changes.entry(table).or_default()
    }

    /// Makes the relations of the commit `delta_*`.
    pub(super) fn deltas(&self, connection: &Connection) -> Vec<TableDelta> {
        let mut deltas = Vec::new();
        for (name, change) in &self.changes {
            let table = table(name).unwrap();
            let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            let upserts = relation(connection, table, "upsert", &columns, &change.upserts);
            let named = TableDelta { table, upserts, deletes: None };
            let deletes = relation(connection, table, "delete", &named.delete_columns(), &change.deletes);
            deltas.push(TableDelta { deletes, ..named });
        }
        deltas
    }

    pub(super) fn apply(&self, warehouse: &mut ParquetDestination) -> Result<bool, LoadError> {
        if warehouse.holds(&self.scan.id)? {
            return Ok(false);
        }
        let deltas = self.deltas(warehouse.engine.connection());
        let counts = RowCounts { rows_read: 7, ..RowCounts::default() };
        // Every other commit hands its new rows over in memory.
        let in_memory = |delta: &TableDelta| delta.deletes.is_none() && self.number.is_multiple_of(2);
        let (fills, deltas): (Vec<_>, Vec<_>) = deltas.into_iter().partition(in_memory);
        let fills = fills.iter().map(|delta| fill(&warehouse.engine, delta)).collect::<Result<_, _>>()?;
        let mut pending = Pending::default();
        pending.add(AppliedScan { scan: self.scan.clone(), counts }, fills);
        warehouse.commit_part(&self.scan.id.0, &pending, &deltas).map(|()| true)
    }
}

/// The new rows of a table, in memory.
fn fill(engine: &Engine, delta: &TableDelta) -> Result<Fill, LoadError> {
    let mut rows = Vec::new();
    let upserts = delta.upserts.as_ref().unwrap();
    engine.each_batch("read a commit", &format!("FROM {}", upserts.relation), |batch| {
        rows.push(table_file::fit(&batch, &delta.table.full_schema()).unwrap());
        Ok(())
    })?;
    Ok(Fill { table: delta.table, rows, bounds: upserts.bounds })
}

fn relation(
    connection: &Connection,
    table: &'static Table,
    prefix: &str,
    columns: &[&str],
    rows: &[Values],
) -> Option<DeltaRows> {
    if rows.is_empty() {
        return None;
    }
    let column = |name: &&str| table.column(name).unwrap();
    let value = |row: &Values, name: &&str| {
        let given = row.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
        given.unwrap_or_else(|| empty_value(column(name)).to_owned())
    };
    let values = rows.iter().map(|row| {
        let list: Vec<String> = columns.iter().map(|name| value(row, name)).collect();
        format!("({})", list.join(", "))
    });
    let typed = columns.iter().map(|name| format!("{} {}", quote_identifier(name), column(name).column_type.duckdb()));
    let relation = format!("delta_{prefix}_{}", table.name);
    let sql = format!(
        "CREATE OR REPLACE TEMP TABLE {relation} ({}); INSERT INTO {relation} VALUES {}",
        typed.collect::<Vec<_>>().join(", "),
        values.collect::<Vec<_>>().join(", ")
    );
    connection.execute_batch(&sql).unwrap();
    let bounds = table.partition.as_ref().map(|column| {
        let sql = format!("SELECT epoch_us(min({column})), epoch_us(max({column})) FROM {relation}");
        connection
            .query_row(&sql, [], |row| Ok(TimeBounds { start_us: row.get(0)?, end_us: row.get::<_, i64>(1)? + 1 }))
            .unwrap()
    });
    Some(DeltaRows { relation, rows: rows.len() as u64, bounds })
}

/// NULL, or a value that says nothing where NULL is not allowed.
fn empty_value(column: &Column) -> &'static str {
    match column.column_type {
        _ if column.nullable => "NULL",
        ColumnType::Text | ColumnType::Json => "'x'",
        ColumnType::Bigint | ColumnType::Double => "0",
        ColumnType::Boolean => "false",
        ColumnType::Timestamp => "TIMESTAMP '2026-01-01'",
        ColumnType::BigintList => "[]",
    }
}
