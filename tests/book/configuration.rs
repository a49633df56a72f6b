//! `docs/reference/configuration.md` is the file that `init` writes, as tables.
//! It names each key that the program knows.

use std::collections::{BTreeMap, BTreeSet};

use studysync::config::{self, Overrides};

use super::assert_generated;
use crate::harness::{Done, Place};

/// One table of the file.
pub struct Section {
    pub name: String,
    pub keys: Vec<Key>,
    /// Comments that belong to no key.
    notes: Vec<String>,
}

/// One key of the file.
pub struct Key {
    pub name: String,
    value: String,
    meaning: String,
}

/// The file that `init` writes.
pub fn sections() -> Vec<Section> {
    let place = Place::at("http://127.0.0.1:1").without_config();
    Done::from(place.bare(&["init", "--full"]).output().unwrap()).expect(0);
    // A long list has a line for each value.
    let text = std::fs::read_to_string(place.path("studysync.toml")).unwrap();
    let text = text.replace("[\n#     ", "[").replace(",\n#     ", ", ").replace(",\n# ]", "]");
    let mut sections: Vec<Section> = Vec::new();
    let (mut comment, mut is_used) = (Vec::new(), true);
    for line in text.lines() {
        let setting = line.strip_prefix("# ").unwrap_or(line).split_once(" = ");
        let setting = setting.filter(|(key, _)| key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'));
        match (sections.last_mut(), setting) {
            (Some(section), Some((key, value))) => {
                is_used = true;
                if section.keys.iter().all(|known| known.name != key) {
                    let (name, value, meaning) = (key.to_owned(), value.to_owned(), paragraph(&comment));
                    section.keys.push(Key { name, value, meaning });
                }
            }
            (section, None) => {
                if std::mem::take(&mut is_used) {
                    comment.clear();
                }
                if let Some(text) = line.strip_prefix('#') {
                    comment.push(text.strip_prefix(' ').unwrap_or(text).to_owned());
                } else {
                    let notes = std::mem::take(&mut comment);
                    if let Some(section) = section.filter(|_| !notes.is_empty()) {
                        section.notes.push(paragraph(&notes));
                    }
                    if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                        sections.push(Section { name: name.to_owned(), keys: Vec::new(), notes: Vec::new() });
                    }
                }
            }
            (None, Some(_)) => panic!("a key before the first table: {line}"),
        }
    }
    sections
}

/// Lines of a comment as one text; a list keeps its lines.
fn paragraph(lines: &[String]) -> String {
    let mut text = String::new();
    let mut is_in_list = false;
    for line in lines {
        let item = line.strip_prefix("  \"").and_then(|rest| rest.split_once('"'));
        match item {
            Some((word, about)) => text.push_str(&format!("<br>`{word}`: {}", about.trim())),
            // The text of an item continues below its first line.
            None if line.starts_with("   ") => text.push_str(&format!(" {}", line.trim_start())),
            None if is_in_list => text.push_str(&format!("<br>{line}")),
            None => text.push_str(&format!(" {line}")),
        }
        is_in_list = line.starts_with(' ');
    }
    text.trim().replace('|', "\\|")
}

fn type_of(value: &str) -> &'static str {
    let value: toml::Table = format!("value = {value}").parse().unwrap();
    match &value["value"] {
        toml::Value::String(_) => "text",
        toml::Value::Integer(_) => "whole number",
        toml::Value::Float(_) => "number",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Array(_) => "list of texts",
        other => panic!("{other} is no setting"),
    }
}

#[test]
fn the_reference_has_every_key() {
    let mut text = String::from(
        "# Configuration\n\nGenerated from the file that `studysync init --full` writes. A command reads the first of these files: the one of \
         `--config`, the one of the variable `STUDYSYNC_CONFIG`, `studysync.toml` in the working folder, `/etc/studysync/studysync.toml`. A \
         file is optional if flags or variables name what a command needs. `studysync config show` prints the values in effect, and where each \
         comes from. Paths in the file are relative to it, and `~/` is your home. Flags win over the file. An unknown key is an \
         error that names the nearest known one.\n",
    );
    // Without these keys there is no value, or what their text says.
    let examples = config::keys().filter(config::SettingKey::is_example);
    let examples: BTreeSet<String> = examples.map(|key| format!("{}.{}", key.table, key.name)).collect();
    for section in sections() {
        text.push_str(&format!("\n## [{}]\n\n| key | type | default | meaning |\n|---|---|---|---|\n", section.name));
        let mut above = "";
        for Key { name, value, meaning } in &section.keys {
            let is_example = examples.contains(&format!("{}.{name}", section.name));
            let default = if is_example { format!("none (example: `{value}`)") } else { format!("`{value}`") };
            assert!(!meaning.is_empty(), "[{}] {name} has no comment in the file that init writes", section.name);
            let shown = if meaning == above { "As above." } else { meaning };
            text.push_str(&format!("| `{name}` | {} | {default} | {shown} |\n", type_of(value)));
            above = meaning;
        }
        section.notes.iter().for_each(|note| text.push_str(&format!("\n{note}\n")));
    }
    assert_generated("docs/reference/configuration.md", &text);
}

#[test]
fn the_file_that_init_writes_has_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("studysync.toml");
    // The program names the keys that it knows when it meets another one.
    let known = |table: &str| -> BTreeSet<String> {
        let written = if table.is_empty() { "no_such = 1".to_owned() } else { format!("[{table}]\nno_such = 1") };
        std::fs::write(&path, written).unwrap();
        let refused = config::resolve(Overrides { config: Some(path.clone()), ..Overrides::default() }).unwrap_err();
        let said = refused.to_string();
        let list = said.split_once("(known here: ").unwrap_or_else(|| panic!("{said}")).1;
        list.trim_end_matches(')').split(", ").map(str::to_owned).collect()
    };
    let mut written: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for section in sections() {
        // Streams share their keys.
        let table = if section.name.starts_with("streams.") { "streams.x".to_owned() } else { section.name.clone() };
        let table = if section.name.ends_with(".drift") { "streams.x.drift".to_owned() } else { table };
        let names = section.keys.into_iter().map(|key| key.name);
        written.entry(table).or_default().extend(names);
    }
    for (table, keys) in &written {
        let mut known = known(table);
        known.remove("drift");
        assert_eq!(*keys, known, "[{table}]");
    }
    let tables: BTreeSet<String> = written.keys().map(|name| name.split('.').next().unwrap().to_owned()).collect();
    assert_eq!(tables, known(""));
}
