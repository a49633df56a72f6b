//! The DuckDB script `examples/parquet_views.sql`, which defines the tables and views over Parquet files.
//!
//! The script needs no extension, and its results do not depend on the time zone.

use super::{Column, Table, View, partition_stem, quote_identifier, quote_text, tables, views};

const HEADER: &str = "\
-- The tables and views of studysync over its Parquet files, for plain DuckDB. Written by `studysync schema --format parquet`.
--
-- Set the folder of the Parquet files here, then run this file in each session: duckdb -init parquet_views.sql
SET VARIABLE studysync_root = 'warehouse-parquet';

-- Tables. A table without files is empty; run this file again when it has some. Tables that are partitioned by time have one
-- more column than in the DuckDB file, such as created_month (or created_date): a condition on it skips the other files.
";

/// Returns the script.
pub fn parquet_views_sql() -> String {
    let mut script = HEADER.to_owned();
    tables().iter().for_each(|table| script.push_str(&table_sql(table)));
    for view in views() {
        script.push_str(&view_sql(view));
    }
    script
}

/// Returns the statements that define a table. The first statement builds the query in a variable, because a query that
/// names missing files is an error: without files, the query returns no rows.
fn table_sql(table: &Table) -> String {
    let column_list = |select: fn(&Column) -> String| table.columns.iter().map(select).collect::<Vec<_>>().join(", ");
    let (folders, partition, no_partition) = match table.partition.as_deref() {
        Some(column) => {
            let stem = partition_stem(column);
            ("*/", format!(", COLUMNS('^{stem}_(month|date)$')"), format!(", NULL::DATE AS {stem}_month"))
        }
        None => ("", String::new(), String::new()),
    };
    let files = format!("/{}/{folders}data.parquet", table.name);
    let (columns, all_columns) = (column_list(Column::select_from_file), table.columns_of_files());
    let some = format!("SELECT {columns}{partition} FROM ({all_columns} FROM read_parquet(''");
    let options = format!("{files}', union_by_name = true, hive_partitioning = {}))", table.partition.is_some());
    let none = format!("SELECT {}{no_partition} WHERE false", column_list(Column::select_null));
    let variable = quote_text(&format!("studysync_{}", table.name));
    let name = quote_identifier(&table.name);
    format!(
        "\n-- {comment}\nSET VARIABLE studysync_{table} = (SELECT CASE WHEN count(*) > 0 THEN\n    {some}\n    \
         || replace(getvariable('studysync_root'), '''', '''''') || {options}\nELSE\n    {none}\nEND \
         FROM glob(getvariable('studysync_root') || {files}));\n\
         CREATE OR REPLACE VIEW {name} AS FROM query(getvariable({variable}));\n",
        comment = table.comment,
        table = table.name,
        some = quote_text(&some.replacen("''", "'", 1)),
        options = quote_text(&options),
        none = quote_text(&none),
        files = quote_text(&files),
    )
}

/// Returns the statement that defines a view, with its description as comments.
fn view_sql(view: &View) -> String {
    let notes: String = view.notes.iter().map(|note| format!("-- {note}\n")).collect();
    let parameters = view.parameters.iter().map(|parameter| format!("{}: {}", parameter.name, parameter.comment));
    let parameters: Vec<String> = parameters.collect();
    let call = if parameters.is_empty() { String::new() } else { format!(" Called with {}", parameters.join(" ")) };
    format!("\n-- {}{call}\n{notes}{};\n", view.comment, view.create_sql())
}
