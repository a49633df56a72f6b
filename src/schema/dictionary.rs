//! The data dictionary: the contracts as people and programs read them.

use super::{Column, Personal, Table, tables};

/// Every table as Markdown.
pub fn dictionary_markdown() -> String {
    let mut text = String::from("# Data dictionary\n\nAll times are UTC.\n");
    for table in tables() {
        text.push_str(&format!("\n## {}\n\n{}\n\n", table.name, table.comment));
        text.push_str(&format!("One row: {}. Key: `{}`.\n\n", table.grain, table.key.join(", ")));
        text.push_str("| column | type | null | from | meaning |\n|---|---|---|---|---|\n");
        table.columns.iter().for_each(|column| text.push_str(&markdown_row(column)));
    }
    text
}

fn markdown_row(column: &Column) -> String {
    let null = if column.nullable { "yes" } else { "no" };
    let from = column.json.as_deref().map(|path| format!("`{path}`")).unwrap_or_default();
    let personal = match column.personal {
        Personal::None => "",
        Personal::Pseudonym => " *Stands for a person.*",
        Personal::Possible => " *May hold personal data.*",
        Personal::Direct => " *Personal data.*",
    };
    let meaning = column.comment.replace('|', "\\|");
    format!("| `{}` | {} | {null} | {from} | {meaning}{personal} |\n", column.name, column.column_type.duckdb())
}

/// Every table as DuckDB DDL with comments.
pub fn dictionary_sql() -> String {
    let statements = tables().iter().flat_map(|table| std::iter::once(table.create_sql()).chain(table.comment_sql()));
    statements.map(|statement| statement + ";\n").collect()
}

/// Every table as JSON: the contracts themselves.
pub fn dictionary_json() -> serde_json::Result<String> {
    let contracts: &[Table] = tables();
    serde_json::to_string_pretty(contracts)
}
