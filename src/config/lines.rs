//! The lines of the keys in the configuration file, for error messages and `studysync config show`.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

/// The line of each key and table of a file, by its dotted name.
#[derive(Clone, Debug, Default)]
pub(super) struct FileLines(BTreeMap<String, usize>);

impl FileLines {
    /// Returns the lines of a parsed text.
    pub fn of(table: &DeTable<'_>, text: &str) -> FileLines {
        let mut lines = FileLines::default();
        lines.add("", table, text);
        lines
    }

    fn add(&mut self, name: &str, table: &DeTable<'_>, text: &str) {
        for (key, value) in table {
            // `studies` is another name of `surveys`, and errors name the stream.
            let part = match key.get_ref().as_ref() {
                "studies" if name == "streams" => "surveys",
                part => part,
            };
            let full = if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
            if let DeValue::Table(inner) = value.get_ref() {
                self.add(&full, inner, text);
            }
            self.0.insert(full, line_of(text, key.span().start));
        }
    }

    /// Returns the line of a key or a table, from 1; `None` if the file does not have it. `label` is its name in
    /// messages: `[streams.responses] page_rows`, or `[streams.responses]`.
    pub fn of_label(&self, label: &str) -> Option<usize> {
        let (table, key) = label.strip_prefix('[')?.split_once(']')?;
        let name = if key.is_empty() { table.to_owned() } else { format!("{table}.{}", key.trim_start()) };
        self.0.get(&name).copied()
    }
}

/// Returns the number of the line at a byte of the text, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
