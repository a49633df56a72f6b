//! The configuration files that `studysync init` writes: a short one, and one with every key.

use crate::wording::wrapped;

use super::{
    declare::{SettingKey, Shown},
    settings::FIRST_SYNC_DAYS,
    streams,
    tables::{MEMORY_LIMIT_MB_MIN, keys_of_file},
};

/// Maximum length of a line.
const COLUMNS: usize = 80;
/// Indentation of the items of a list that has a line for each.
const INDENT: &str = "    ";
const ADDRESS: &str = "[service] base_url";
/// The end of the help of the address.
const REPLACE_EXAMPLE: &str = " Replace this example, which is refused.";

const HEAD: &str = "\
# studysync: which data to read, and where to store it. Lines that begin with
# '#' show defaults and examples. Paths are relative to this file; ~/ is your
# home. Environment variables win over this file: STUDYSYNC_WAREHOUSE_DUCKDB
# sets duckdb under [warehouse].
";
const MORE: &str = "\
# `studysync init --full` writes every key. `studysync config show` prints the
# values in effect, and where each comes from.
";

/// The keys of the short file.
const SHORT: [&str; 7] = [
    ADDRESS,
    "[service] api_key_env",
    "[service] api_key_file",
    "[streams.responses] flags",
    "[streams.responses] since",
    "[warehouse] duckdb",
    "[warehouse] parquet",
];

/// Returns the commented file that `init` writes: the keys that a new user sets, or every key with its default if
/// `is_full`. `base_url` replaces the example of the address.
pub fn template(is_full: bool, base_url: Option<&str>) -> String {
    let mut text = String::from(HEAD) + if is_full { "" } else { MORE };
    let mut table = String::new();
    let is_written = |key: &SettingKey| streams::is_in_template(key) && (is_full || SHORT.contains(&&*key.label()));
    for key in keys_of_file().into_iter().filter(is_written) {
        if table != key.table {
            text += &format!("\n[{}]\n", key.table);
            table.clone_from(&key.table);
        }
        let address = base_url.filter(|_| key.label() == ADDRESS);
        text += &comment(&help_of(&key, address.is_some()));
        let Shown { toml, is_set, below, .. } = &key.shown;
        let toml = address.map_or_else(|| toml.clone(), |address| toml::Value::from(address).to_string());
        text += &assignment(key.name, &toml, *is_set, COLUMNS);
        if let Some(below) = below {
            text += &match below.split_once(" = ") {
                Some((name, toml)) if !name.contains(' ') => assignment(name, toml, false, COLUMNS),
                _ => comment(&[(*below).to_owned()]),
            };
        }
    }
    text
}

/// Returns the help of a key with its numbers. `has_address` is true if the file does not show the example address.
fn help_of(key: &SettingKey, has_address: bool) -> Vec<String> {
    let filled = |line: &&str| {
        let line = line
            .replace("{FIRST_SYNC_DAYS}", &FIRST_SYNC_DAYS.to_string())
            .replace("{MEMORY_LIMIT_MB_MIN}", &MEMORY_LIMIT_MB_MIN.to_string());
        if has_address { line.replace(REPLACE_EXAMPLE, "") } else { line }
    };
    key.help.iter().map(filled).collect()
}

/// Returns a comment, wrapped. Lines of one paragraph are joined; a line that begins with a blank is an item of a list.
fn comment(help: &[String]) -> String {
    let is_item = |line: &str| line.starts_with(' ');
    let mut paragraphs: Vec<String> = Vec::new();
    for line in help {
        match paragraphs.last_mut() {
            Some(last) if !is_item(last) && !is_item(line) => *last += &format!(" {line}"),
            _ => paragraphs.push(line.clone()),
        }
    }
    paragraphs.iter().map(|paragraph| commented(paragraph)).collect()
}

/// Wraps a paragraph. The text of an item is aligned after its name.
fn commented(paragraph: &str) -> String {
    let indent = if paragraph.starts_with(' ') { paragraph.rfind("  ").map_or(0, |at| at + 2) } else { 0 };
    wrapped(paragraph, COLUMNS, "# ", &format!("# {}", " ".repeat(indent)))
}

/// Returns the line that sets a key; several lines for a list or a table that is wider than `columns`. The lines are a
/// comment if the key is not set.
pub fn assignment(name: &str, toml: &str, is_set: bool, columns: usize) -> String {
    let mark = if is_set { "" } else { "# " };
    let line = format!("{mark}{name} = {toml}\n");
    if line.trim_end().len() <= columns {
        return line;
    }
    match format!("value = {toml}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("value")) {
        Some(toml::Value::Array(items)) => {
            let items: String = items.iter().map(|item| format!("{mark}{INDENT}{item},\n")).collect();
            format!("{mark}{name} = [\n{items}{mark}]\n")
        }
        // A table in braces must be on one line.
        Some(toml::Value::Table(values)) => {
            let value = |(key, value): (&String, &toml::Value)| {
                assignment(&format!("{name}.{key}"), &value.to_string(), is_set, columns)
            };
            values.iter().map(value).collect()
        }
        _ => line,
    }
}
