//! Parses the configuration file. Every key is optional. An unknown key is an error that names the nearest known key.

use std::{fs::File, path::Path};

use serde::Deserialize as _;
use toml::de::DeTable;

use super::{
    declare::SettingKey,
    error::{ConfigError, invalid},
    lines::{FileLines, line_of},
    secret::is_secret_key,
    setting_variables::SettingVariables,
    tables::{ConfigFile, keys},
};
use crate::{files::FileError, text};

impl ConfigFile {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// The file cannot be read, or [`ConfigFile::parse`] fails.
    pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
        let read = File::open(path).and_then(text::read);
        let text = read.map_err(FileError::of("read", path))?;
        Self::parse(&text, path)
    }

    /// Parses the text of a file; `path` is for error messages.
    ///
    /// # Errors
    /// Invalid TOML, an unknown key or a value of the wrong type, with the line.
    pub fn parse(text: &str, path: &Path) -> Result<ConfigFile, ConfigError> {
        let text = text::without_mark(text);
        let failed = |key: &str, error: &toml::de::Error| {
            let line = error.span().map(|span| line_of(text, span.start));
            let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            ConfigError::Parse { path: path.to_owned(), message: line + &explain(key, error.message()) }
        };
        let parsed = DeTable::parse(text).map_err(|error| failed("", &error))?;
        let lines = FileLines::of(parsed.get_ref(), text);
        let deserializer = || toml::Deserializer::from(parsed.clone());
        let file: ConfigFile = serde_path_to_error::deserialize(deserializer()).map_err(|error| {
            let key = error.path().to_string();
            failed(&key, &error.into_inner())
        })?;
        let table = toml::Table::deserialize(deserializer()).map_err(|error| failed("", &error))?;
        Ok(ConfigFile { table, lines, ..file })
    }

    /// Applies the settings of environment variables, which win over the settings of the file. Returns the merged
    /// settings, and the keys that variables set.
    ///
    /// # Errors
    /// A variable that looks like a setting but is none, or a value that its key does not accept.
    pub fn with_variables(self, variables: &SettingVariables) -> Result<(ConfigFile, Vec<SettingKey>), ConfigError> {
        let mut table = self.table.clone();
        let set = variables.write_into(&mut table)?;
        let file = match set.is_empty() {
            true => self,
            false => {
                let merged: Result<ConfigFile, _> = table.clone().try_into();
                merged.map_err(|error| refused_variable(&set, table, error.message()))?
            }
        };
        let (service, serve) = (&file.service, &file.serve);
        let mut named = vec![service.api_key_env.as_str(), &serve.token_env, &serve.status_token_env];
        named.extend(file.notify.url_env.as_deref());
        variables.check_names(&named)?;
        Ok((file, set))
    }
}

/// Returns the error of the first variable whose value its key does not accept. `table` has the values of the
/// variables. `message` is used if each value is accepted alone.
fn refused_variable(set: &[SettingKey], table: toml::Table, message: &str) -> ConfigError {
    let merged = toml::Value::Table(table);
    let refused = set.iter().find_map(|key| {
        let names = key.table.split('.').chain([key.name]);
        let value = names.clone().try_fold(&merged, |value, name| value.get(name))?.clone();
        let alone = names.rev().fold(value, |value, name| toml::Table::from_iter([(name.to_owned(), value)]).into());
        let error = alone.try_into::<ConfigFile>().err()?;
        Some(invalid(key.variable(), explain(&format!("{}.{}", key.table, key.name), error.message())))
    });
    refused.unwrap_or_else(|| invalid("the environment", explain("", message)))
}

/// Rewords a message of serde for people. For an unknown key the message names the nearest known key. For a value of
/// the wrong type it names the key and the expected type, but not the value, which may be a misplaced secret. `key` is
/// the dotted path of the key. If it is empty, a message about a wrong value is returned unchanged.
fn explain(key: &str, message: &str) -> String {
    let message = message.trim_end();
    let mut names = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field")
        && let Some(unknown) = names.next()
    {
        return explain_unknown(key, unknown, &names.collect::<Vec<_>>());
    }
    let Some((problem, expected)) = message.split_once(", expected ") else { return message.to_owned() };
    let is_wrong_value = problem.starts_with("invalid type") || problem.starts_with("invalid value");
    if !is_wrong_value || key.is_empty() || key == "." {
        return message.to_owned();
    }
    let label = match key.rsplit_once('.') {
        Some((table, name)) => format!("[{table}] {name}"),
        None => key.to_owned(),
    };
    let found = problem.split_once(": ").map_or(problem, |(_, found)| found);
    let found = match found.split([' ', '`']).next().unwrap_or_default() {
        "string" => "a text",
        "integer" => "this whole number",
        "float" => "a number with a fraction",
        "boolean" => "true or false",
        "map" => "a table",
        "sequence" => "a list",
        _ => "this",
    };
    let expected = match expected {
        // A negative number, or a number that is too large.
        "u32" if problem.starts_with("invalid value") => "a whole number from 0 to 4294967295",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "path string" => "a text in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        other if other.starts_with("struct") => "a table",
        other => other,
    };
    format!("{label}: expected {expected}, not {found}")
}

/// Returns the message about the unknown key `unknown`. `key` is the dotted path of the key, and `known` are the known
/// keys of its table. If the name suggests a secret, the message says where secrets belong.
fn explain_unknown(key: &str, unknown: &str, known: &[&str]) -> String {
    if is_secret_key(unknown) {
        let table = key.strip_suffix(unknown).unwrap_or(key).trim_end_matches('.');
        let (variable, file) = match table {
            "serve" => ("STUDYSYNC_WEBHOOK_SECRET", "token_file under [serve]"),
            _ => ("STUDYSYNC_API_KEY", "api_key_file under [service]"),
        };
        return format!(
            "there is no key '{unknown}': do not write a secret into this file. Put it into the environment variable {variable}, or into a file of its own whose path is {file}"
        );
    }
    let likeness = |name: &str| strsim::jaro_winkler(unknown, name);
    let nearest = known.iter().max_by(|left, right| likeness(left).total_cmp(&likeness(right)));
    let nearest = match tables_with(unknown) {
        Some(tables) => Some(format!("{unknown} under {tables}")),
        None => nearest.map(|nearest| format!("'{nearest}'")),
    };
    let hint = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
    format!("there is no key '{unknown}'{hint} (known here: {})", known.join(", "))
}

/// Returns the tables that have a key of this name: `[service] or [notify]`; `None` if no table has it.
fn tables_with(name: &str) -> Option<String> {
    let shown = |table: String| match table.strip_prefix("streams.").map(|rest| rest.split_once('.')) {
        None => format!("[{table}]"),
        Some(None) => "[streams.NAME]".to_owned(),
        Some(Some((_, inner))) => format!("[streams.NAME.{inner}]"),
    };
    let mut tables: Vec<String> = keys().filter(|key| key.name == name).map(|key| shown(key.table)).collect();
    tables.dedup();
    (!tables.is_empty()).then(|| tables.join(" or "))
}
