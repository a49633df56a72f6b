//! The data dictionary of all or some tables and views, in Markdown, SQL and JSON.

use super::{Column, Personal, Table, View, ViewColumn, tables, views};

/// The tables and views of a dictionary, in the order of the contracts.
#[derive(Clone, Debug)]
pub struct Dictionary {
    tables: Vec<&'static Table>,
    views: Vec<&'static View>,
}

impl Dictionary {
    /// Creates the dictionary of all tables and views.
    pub fn all() -> Dictionary {
        Dictionary { tables: tables().iter().collect(), views: views().iter().collect() }
    }

    /// Creates the dictionary of the tables and views with these names; of all if `names` is empty.
    ///
    /// # Errors
    /// If a name is unknown. The error suggests the most similar name.
    pub fn of(names: &[String]) -> Result<Dictionary, String> {
        let all = Dictionary::all();
        if names.is_empty() {
            return Ok(all);
        }
        let table_names = all.tables.iter().map(|table| table.name.as_str());
        let known: Vec<&str> = table_names.chain(all.views.iter().map(|view| view.name.as_str())).collect();
        for name in names {
            if !known.contains(&name.as_str()) {
                let likeness = |known: &&&str| (strsim::jaro_winkler(name, known) * 1e6) as u64;
                let nearest = known.iter().max_by_key(likeness).copied().unwrap_or_default();
                return Err(format!("there is no table or view '{name}'; did you mean '{nearest}'?"));
            }
        }
        let is_named = |name: &String| names.contains(name);
        Ok(Dictionary {
            tables: all.tables.into_iter().filter(|table| is_named(&table.name)).collect(),
            views: all.views.into_iter().filter(|view| is_named(&view.name)).collect(),
        })
    }

    /// Returns the tables, in the order of the contracts.
    pub fn tables(&self) -> &[&'static Table] {
        &self.tables
    }

    /// Returns the views, each after the views that it reads.
    pub fn views(&self) -> &[&'static View] {
        &self.views
    }

    /// Returns the dictionary in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# Data dictionary\n\nAll times are UTC.\n");
        for table in &self.tables {
            text.push_str(&format!("\n## {}\n\n{}\n\n", table.name, table.comment));
            text.push_str(&format!("One row: {}. Key: `{}`.\n\n", table.grain, table.key.join(", ")));
            text.push_str("| column | type | null | from | meaning |\n|---|---|---|---|---|\n");
            table.columns.iter().for_each(|column| text.push_str(&markdown_row(column)));
        }
        if !self.views.is_empty() {
            text.push_str("\n# Views\n\nWhat stands today, and the usual questions answered over it.\n");
        }
        self.views.iter().for_each(|view| text.push_str(&markdown_view(view)));
        text
    }

    /// Returns the dictionary as DuckDB DDL with comments.
    pub fn sql(&self) -> String {
        let of_tables =
            self.tables.iter().flat_map(|table| std::iter::once(table.create_sql()).chain(table.comment_sql()));
        let of_views = self.views.iter().flat_map(|view| std::iter::once(view.create_sql()).chain(view.comment_sql()));
        of_tables.chain(of_views).map(|statement| statement + ";\n").collect()
    }

    /// Returns the dictionary in JSON: a list of the contracts and of the views. The field `kind` tells a contract from
    /// a view.
    ///
    /// # Errors
    /// If serialization fails.
    pub fn json(&self) -> serde_json::Result<String> {
        let tables = self.tables.iter().map(serde_json::to_value);
        let views = self.views.iter().map(serde_json::to_value);
        serde_json::to_string_pretty(&tables.chain(views).collect::<serde_json::Result<Vec<_>>>()?)
    }
}

/// Returns the section about a view: its purpose, notes, parameters and columns.
fn markdown_view(view: &View) -> String {
    let mut text = format!("\n## {}{}\n\n{}\n\n{}\n\n", view.name, view.call(), view.comment, view.notes.join("\n"));
    if !view.parameters.is_empty() {
        text.push_str(&markdown_names("parameter", &view.parameters));
        text.push('\n');
    }
    text.push_str(&markdown_names("column", &view.columns));
    text
}

/// Returns a table of names and meanings. `title` is the heading of the names.
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
