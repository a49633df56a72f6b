//! What the warehouse must hold: every table compared row by row, nothing left out.

use duckdb::Connection;

use super::*;
use crate::schema::{Column, quote_identifier};

/// What the warehouse must hold: the same commits applied to DuckDB tables.
pub(super) struct Model {
    pub(super) connection: Connection,
}

impl Model {
    pub(super) fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        crate::load::engine::pin_to_utc(&connection).unwrap();
        for table in crate::schema::tables() {
            connection.execute_batch(&table.create_sql()).unwrap();
        }
        Self { connection }
    }

    pub(super) fn apply(&self, commit: &Commit) {
        for delta in commit.deltas(&self.connection) {
            let name = &delta.table.name;
            if let Some(rows) = &delta.deletes {
                let columns = delta.delete_columns();
                let equal: Vec<String> = columns.iter().map(|column| format!("t.{column} = d.{column}")).collect();
                let sql = format!("DELETE FROM {name} AS t USING {} AS d WHERE {}", rows.relation, equal.join(" AND "));
                self.connection.execute_batch(&sql).unwrap();
            }
            if let Some(rows) = &delta.upserts {
                self.connection.execute_batch(&format!("INSERT INTO {name} FROM {}", rows.relation)).unwrap();
            }
        }
    }

    /// Every table of the tree has the rows of the model, no more and no fewer, each in its partition.
    pub(super) fn assert_equals_tree(&self, root: &Path, context: &str) {
        for table in crate::schema::tables() {
            let there = tree_sql(root, table);
            let held = model_sql(table);
            for (one, other) in [(&held, &there), (&there, &held)] {
                let sql = format!("SELECT count(*) FROM ({one} EXCEPT ALL {other})");
                let count: i64 = self.connection.query_row(&sql, [], |row| row.get(0)).unwrap();
                assert_eq!(count, 0, "{context}: {} differs: {one} EXCEPT ALL {other}", table.name);
            }
            assert_partitions_fit(&self.connection, root, table);
        }
    }

    /// Rows of each table of the model, and the sum of their hashes.
    pub(super) fn digest(&self) -> Digest {
        self.digest_of(model_sql)
    }

    /// The same of the tree: equal digests mean equal tables, at a tenth of the time that comparing their rows takes.
    pub(super) fn digest_of_tree(&self, root: &Path) -> Digest {
        self.digest_of(|table| tree_sql(root, table))
    }

    fn digest_of(&self, rows: impl Fn(&Table) -> String) -> Digest {
        let select = |table: &Table| {
            format!(
                "SELECT '{}' AS name, count(*), coalesce(sum(hash(t)), 0)::VARCHAR FROM ({}) AS t",
                table.name,
                rows(table)
            )
        };
        let selects: Vec<String> = crate::schema::tables().iter().map(select).collect();
        let mut statement = self.connection.prepare(&format!("{} ORDER BY name", selects.join(" UNION ALL "))).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

/// Name, rows and sum of hashes of each table.
pub(super) type Digest = Vec<(String, i64, String)>;

fn model_sql(table: &Table) -> String {
    format!("SELECT {} FROM {}", plain_columns(table), table.name)
}

fn plain_columns(table: &Table) -> String {
    let column = |column: &Column| {
        format!("CAST({0} AS {1}) AS {0}", quote_identifier(&column.name), column.column_type.duckdb())
    };
    table.columns.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// What a reader of the table's folder sees, in plain types.
pub(super) fn tree_sql(root: &Path, table: &Table) -> String {
    match data_files(&root.join(&table.name)).is_empty() {
        true => format!("SELECT {} FROM {} WHERE false", plain_columns(table), table.name),
        false => format!(
            "SELECT {} FROM read_parquet('{}/{}/**/*.parquet', hive_partitioning = false)",
            plain_columns(table),
            root.display(),
            table.name
        ),
    }
}

fn assert_partitions_fit(connection: &Connection, root: &Path, table: &Table) {
    let Some(column) = &table.partition else { return };
    let sql = format!(
        "SELECT count(*) FROM read_parquet('{}/{}/**/*.parquet', hive_partitioning = true) \
         WHERE created_month <> CAST(date_trunc('month', {column}::TIMESTAMP) AS DATE)",
        root.display(),
        table.name
    );
    if !data_files(&root.join(&table.name)).is_empty() {
        let strays: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(strays, 0, "{} has rows in partitions that are not theirs", table.name);
    }
}
