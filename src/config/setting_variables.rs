//! Settings from environment variables, one variable for each key of the file: `STUDYSYNC_WAREHOUSE_DUCKDB` sets
//! `duckdb` under `[warehouse]`. A variable wins over the file, and the command line wins over the variable.

use std::path::PathBuf;

use super::{
    declare::{PREFIX, SettingKey, ValueType},
    environment::{names_with_prefix, variables_with_prefix},
    error::{ConfigError, invalid},
    find::CONFIG_VARIABLE,
    paths::expand_tilde,
    secret::is_secret_key,
    tables::keys,
};
use crate::model::BucketAddress;

/// The environment variables with the prefix of this program.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingVariables(Vec<Variable>);

#[derive(Clone, Debug)]
struct Variable {
    name: String,
    text: String,
}

/// Returns the names of the variables of this process that must not reach other programs: settings, and variables that
/// may contain a secret.
pub fn private_variables() -> Vec<String> {
    let settings = names_with_prefix(PREFIX).into_iter().filter(|name| name != CONFIG_VARIABLE);
    // The headers for an OpenTelemetry collector contain its token.
    let of_otlp = names_with_prefix("OTEL_EXPORTER_OTLP_").into_iter();
    settings.chain(of_otlp.filter(|name| name.ends_with("HEADERS"))).collect()
}

impl SettingVariables {
    /// Reads the variables of this process. An empty variable counts as not set.
    ///
    /// # Errors
    /// A variable whose value is not UTF-8.
    pub fn of_this_process() -> Result<SettingVariables, ConfigError> {
        let read = variables_with_prefix(PREFIX).map_err(|name| invalid(name, "its value is not UTF-8"))?;
        let read = read.into_iter().map(|(name, text)| Variable { name, text });
        Ok(SettingVariables(read.filter(|variable| !variable.text.trim().is_empty()).collect()))
    }

    #[cfg(test)]
    pub fn of(pairs: &[(&str, &str)]) -> SettingVariables {
        let variable = |(name, text): &(&str, &str)| Variable { name: (*name).to_owned(), text: (*text).to_owned() };
        SettingVariables(pairs.iter().map(variable).collect())
    }

    /// Writes the values of the variables into the tables of the file. Returns the keys that were set.
    ///
    /// # Errors
    /// A value that its key does not accept, or a key of the file that has the name of a table.
    pub fn write_into(&self, file: &mut toml::Table) -> Result<Vec<SettingKey>, ConfigError> {
        let mut keys_of_variables = Vec::new();
        for key in keys() {
            let name = key.variable();
            let Some(variable) = self.0.iter().find(|variable| variable.name == name) else { continue };
            let value = toml_value(&key, variable.text.trim()).map_err(|problem| invalid(&name, problem))?;
            let table = table_of(file, &key.table);
            let table = table.ok_or_else(|| invalid(&name, format!("[{}] is not a table in the file", key.table)))?;
            // The variable replaces an alternative key of the file. If variables set two alternative keys, the settings
            // are refused later, as if the file had both keys.
            let is_set_by_variable = |other: &str| {
                keys_of_variables.iter().any(|set: &SettingKey| set.table == key.table && set.name == other)
            };
            for other in alternatives(&key).into_iter().filter(|other| !is_set_by_variable(other)) {
                table.remove(other);
            }
            table.insert(key.name.to_owned(), value);
            keys_of_variables.push(key);
        }
        Ok(keys_of_variables)
    }

    /// Refuses a variable whose name looks like a setting but is none, as an unknown key of the file is refused.
    /// `named_in_file` are variables that the configuration names, for example for the key of the service.
    ///
    /// # Errors
    /// The error names the unknown variable and the nearest known one.
    pub fn check_names(&self, named_in_file: &[&str]) -> Result<(), ConfigError> {
        let looks_like_setting = |name: &str| {
            let Some(rest) = name.strip_prefix(PREFIX) else { return false };
            keys().any(|key| {
                let table = key.table.split('.').next().unwrap_or_default().to_ascii_uppercase();
                // `STUDYSYNC_DUCKDB` is a key without its table.
                rest.strip_prefix(&table).is_some_and(|rest| rest.starts_with('_'))
                    || key.name.eq_ignore_ascii_case(rest)
            })
        };
        let unknown = self.0.iter().find(|variable| {
            let name = variable.name.as_str();
            looks_like_setting(name)
                && !named_in_file.contains(&name)
                && !is_set_by_kubernetes(variable)
                && !keys().any(|key| key.variable() == name)
        });
        let Some(Variable { name, .. }) = unknown else {
            self.warn_of_unknown(named_in_file);
            return Ok(());
        };
        let bare = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).map_or("", |(_, key)| key);
        if is_secret_key(bare) {
            let problem = "there is no such setting: put the key of the service into STUDYSYNC_API_KEY, and the secret of \
                           webhooks into STUDYSYNC_WEBHOOK_SECRET";
            return Err(invalid(name, problem));
        }
        let likeness = |key: &String| strsim::jaro_winkler(name, key);
        let nearest = keys().map(|key| key.variable()).max_by(|left, right| likeness(left).total_cmp(&likeness(right)));
        Err(invalid(name, format!("there is no such setting; did you mean {}?", nearest.unwrap_or_default())))
    }
}

/// Variables that are no settings of the file: they have a secret or the path of the file, or `[notify] command` gets
/// them.
const OTHER_VARIABLES: [&str; 9] = [
    "STUDYSYNC_API_KEY",
    "STUDYSYNC_WEBHOOK_SECRET",
    "STUDYSYNC_STATUS_TOKEN",
    "STUDYSYNC_PUBLISH_KEY",
    CONFIG_VARIABLE,
    "STUDYSYNC_EVENT",
    "STUDYSYNC_OUTCOME",
    "STUDYSYNC_EXIT_CODE",
    "STUDYSYNC_SUMMARY",
];
/// Least likeness to a known name, from 0 to 1, with which an unknown variable is a mistyped one.
const LIKENESS_MIN: f64 = 0.88;

impl SettingVariables {
    /// Warns of each variable that is ignored and whose name resembles a known one.
    fn warn_of_unknown(&self, named_in_file: &[&str]) {
        let known: Vec<(String, String)> = keys()
            .flat_map(|key| {
                [key.variable(), format!("{PREFIX}{}", key.name.to_ascii_uppercase())]
                    .map(|name| (name, key.variable()))
            })
            .chain(OTHER_VARIABLES.map(|name| (name.to_owned(), name.to_owned())))
            .collect();
        let is_known = |name: &str| known.iter().any(|(like, _)| like == name) || named_in_file.contains(&name);
        for Variable { name, .. } in self.0.iter().filter(|variable| !is_set_by_kubernetes(variable)) {
            let bare = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
            let likeness = |(like, _): &&(String, String)| strsim::jaro_winkler(&bare(name), &bare(like));
            let nearest = known.iter().max_by(|left, right| likeness(left).total_cmp(&likeness(right)));
            if let Some((_, meant)) = nearest.filter(|of| !is_known(name) && likeness(of) >= LIKENESS_MIN) {
                tracing::warn!(
                    "the environment variable {name} is ignored: no setting has this name; did you mean {meant}?"
                );
            }
        }
    }
}

/// Groups of keys of which at most one can be set.
const ALTERNATIVES: &[&[&str]] = &[
    &["api_key_file", "api_key_command"],
    &["publish_key_file", "publish_key_command"],
    &["token_file", "token_command"],
    &["status_token_file", "status_token_command"],
    &["url", "url_file", "url_env"],
];

/// Returns the keys that cannot be set together with `key`.
fn alternatives(key: &SettingKey) -> Vec<&'static str> {
    let group = ALTERNATIVES.iter().find(|group| group.contains(&key.name)).copied().unwrap_or_default();
    group.iter().copied().filter(|name| *name != key.name).collect()
}

/// Returns true if Kubernetes may have set the variable, for a service called `studysync` or `studysync-serve`.
fn is_set_by_kubernetes(variable: &Variable) -> bool {
    let Variable { name, text } = variable;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || (name.ends_with("_SERVICE_PORT") && is_number)
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && text.contains("://"))
        || name.contains("_PORT_")
}

/// Returns the table with this dotted name, and creates the table if it is missing. A table `studies` in the file
/// stands for `surveys`. `None` if a part of the name belongs to a value that is no table.
fn table_of<'file>(file: &'file mut toml::Table, name: &str) -> Option<&'file mut toml::Table> {
    let mut table = file;
    for part in name.split('.') {
        let part = if part == "surveys" && table.contains_key("studies") { "studies" } else { part };
        table = table.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new())).as_table_mut()?;
    }
    Some(table)
}

/// Parses the text of a variable as the type of its key. The error describes the problem.
fn toml_value(key: &SettingKey, text: &str) -> Result<toml::Value, String> {
    Ok(match key.value_type {
        ValueType::Text => text.into(),
        ValueType::PathOrNone if text == "none" => text.into(),
        ValueType::PathOrTable if text.starts_with('{') => table_with_paths(text)?,
        ValueType::Path | ValueType::PathOrNone | ValueType::PathOrTable => absolute_path(text)?.into(),
        ValueType::Whole => {
            let number: Option<i64> = text.parse().ok().filter(|number| *number >= 0);
            number.ok_or_else(|| format!("'{text}' is not a whole number of 0 or more"))?.into()
        }
        ValueType::Number => {
            let number: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
            number.into()
        }
        ValueType::Switch => match text {
            "true" | "1" => true.into(),
            "false" | "0" => false.into(),
            _ => return Err(format!("'{text}' is neither true nor false")),
        },
        ValueType::List => list(text)?,
    })
}

/// Returns the path as on the command line: relative to the working folder, not to the configuration file.
fn absolute_path(text: &str) -> Result<String, String> {
    // Whether the setting may be an address is tested with the values of the file.
    if BucketAddress::is_address(text) {
        return Ok(text.to_owned());
    }
    let path = std::path::absolute(expand_tilde(PathBuf::from(text))?).map_err(|error| error.to_string())?;
    Ok(path.to_string_lossy().into_owned())
}

/// Parses an inline table of TOML, whose texts are paths.
fn table_with_paths(text: &str) -> Result<toml::Value, String> {
    let parsed: Result<toml::Table, _> = format!("value = {text}").parse();
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    let Some(toml::Value::Table(table)) = value else { return Err(format!("'{text}' is not a table of TOML")) };
    let absolute = |(key, value)| match value {
        toml::Value::String(path) => absolute_path(&path).map(|path| (key, path.into())),
        value => Ok((key, value)),
    };
    table.into_iter().map(absolute).collect::<Result<toml::Table, String>>().map(Into::into)
}

/// Parses `a, b`, or a TOML list: `["a", "b"]`.
fn list(text: &str) -> Result<toml::Value, String> {
    if !text.starts_with('[') {
        return Ok(text.split(',').map(|item| item.trim().to_owned()).collect::<Vec<_>>().into());
    }
    let table: Option<toml::Table> = format!("list = {text}").parse().ok();
    let list = table.and_then(|table| table.get("list").cloned()).filter(toml::Value::is_array);
    list.ok_or_else(|| format!("'{text}' is not a list: write a, b or [\"a\", \"b\"]"))
}
