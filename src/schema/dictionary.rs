//! The data dictionary: the contracts as people and programs read them.

use super::{Column, Personal, View, ViewColumn, tables, views};

/// Every table and view as Markdown.
pub fn dictionary_markdown() -> String {
    let mut text = String::from("# Data dictionary\n\nAll times are UTC.\n");
    for table in tables() {
        text.push_str(&format!("\n## {}\n\n{}\n\n", table.name, table.comment));
        text.push_str(&format!("One row: {}. Key: `{}`.\n\n", table.grain, table.key.join(", ")));
        text.push_str("| column | type | null | from | meaning |\n|---|---|---|---|---|\n");
        table.columns.iter().for_each(|column| text.push_str(&markdown_row(column)));
    }
    text.push_str("\n# Views\n\nWhat stands today, and the usual questions answered over it.\n");
    views().iter().for_each(|view| text.push_str(&markdown_view(view)));
    text
}

fn markdown_view(view: &View) -> String {
    let mut text = format!("\n## {}{}\n\n{}\n\n{}\n\n", view.name, view.call(), view.comment, view.notes.join("\n"));
    if !view.parameters.is_empty() {
        text.push_str(&markdown_names("parameter", &view.parameters));
        text.push('\n');
    }
    text.push_str(&markdown_names("column", &view.columns));
    text
}

fn markdown_names(title: &str, named: &[ViewColumn]) -> String {
    let mut text = format!("| {title} | meaning |\n|---|---|\n");
    for column in named {
        text.push_str(&format!("| `{}` | {} |\n", column.name, column.comment.replace('|', "\\|")));
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
    let known = match column.values.is_empty() {
        true => String::new(),
        false => format!(" Known: {}.", column.values.join(", ")),
    };
    format!("| `{}` | {} | {null} | {from} | {meaning}{known}{personal} |\n", column.name, column.column_type.duckdb())
}

/// Every table and view as DuckDB DDL with comments.
pub fn dictionary_sql() -> String {
    let of_tables = tables().iter().flat_map(|table| std::iter::once(table.create_sql()).chain(table.comment_sql()));
    let of_views = views().iter().flat_map(|view| std::iter::once(view.create_sql()).chain(view.comment_sql()));
    of_tables.chain(of_views).map(|statement| statement + ";\n").collect()
}

/// Every table and view as JSON: the contracts themselves, then the views, which are told apart by their `kind`.
pub fn dictionary_json() -> serde_json::Result<String> {
    let tables = tables().iter().map(serde_json::to_value);
    let views = views().iter().map(serde_json::to_value);
    serde_json::to_string_pretty(&tables.chain(views).collect::<serde_json::Result<Vec<_>>>()?)
}
