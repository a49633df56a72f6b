//! Settings from environment variables, one for each key of the file: `STUDYSYNC_WAREHOUSE_DUCKDB` sets `duckdb` under
//! `[warehouse]`. They win over the file and lose against the command line.

use std::path::PathBuf;

use super::{
    error::{ConfigError, value},
    keys::{Key, Kind, PREFIX, keys},
    secret::is_secret_key,
    tilde::expanded,
    variable::{environment, our_names, our_variables},
};

/// The variable that names the configuration file.
const CONFIG_VARIABLE: &str = "STUDYSYNC_CONFIG";

/// Environment variables of this program.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables(Vec<Variable>);

#[derive(Clone, Debug)]
struct Variable {
    name: String,
    text: String,
}

/// Returns the configuration file that `STUDYSYNC_CONFIG` names.
pub fn config_from_environment() -> Option<PathBuf> {
    environment(CONFIG_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Names the variables of this process that no other program needs: settings, and what may be a secret.
pub fn private_variables() -> Vec<String> {
    let ours = our_names(PREFIX).into_iter().filter(|name| name != CONFIG_VARIABLE);
    // Headers of a collector are where its token is.
    let of_otlp = our_names("OTEL_EXPORTER_OTLP_").into_iter();
    ours.chain(of_otlp.filter(|name| name.ends_with("HEADERS"))).collect()
}

impl Variables {
    /// Reads those of this process. An empty variable counts as not set.
    ///
    /// # Errors
    /// A variable whose value is not UTF-8.
    pub fn of_this_process() -> Result<Variables, ConfigError> {
        let ours = our_variables(PREFIX).map_err(|name| value(name, "its value is not UTF-8".to_owned()))?;
        let ours = ours.into_iter().map(|(name, text)| Variable { name, text });
        Ok(Variables(ours.filter(|variable| !variable.text.trim().is_empty()).collect()))
    }

    #[cfg(test)]
    pub fn of(pairs: &[(&str, &str)]) -> Variables {
        let variable = |(name, text): &(&str, &str)| Variable { name: (*name).to_owned(), text: (*text).to_owned() };
        Variables(pairs.iter().map(variable).collect())
    }

    /// Puts what they say into the tables of the file. Returns the settings that they set.
    ///
    /// # Errors
    /// A value that its key cannot take.
    pub fn put_into(&self, file: &mut toml::Table) -> Result<Vec<Key>, ConfigError> {
        let mut set = Vec::new();
        for key in keys() {
            let name = key.variable();
            let Some(variable) = self.0.iter().find(|variable| variable.name == name) else { continue };
            let taken = toml_value(&key, variable.text.trim()).map_err(|problem| value(&name, problem))?;
            let table = table_of(file, key.table);
            let table = table.ok_or_else(|| value(&name, format!("the file has no table [{}]", key.table)))?;
            // What the file says instead of it gives way.
            // Two variables of the environment are refused later, as two keys of the file are.
            let is_of_file = |other: &&&str| !set.iter().any(|set: &Key| set.table == key.table && set.name == **other);
            for other in alternatives(&key).iter().filter(is_of_file) {
                table.remove(*other);
            }
            table.insert(key.name.to_owned(), taken);
            set.push(key);
        }
        Ok(set)
    }

    /// Refuses a variable that looks like a setting and is none, as the file refuses an unknown key. `others` are
    /// variables that the configuration names, for the key of the service for example.
    ///
    /// # Errors
    /// The variable, and the nearest known one.
    pub fn check_names(&self, others: &[&str]) -> Result<(), ConfigError> {
        let is_table = |name: &str| {
            let starts = |key: Key| {
                let table = key.table.split('.').next().unwrap_or_default().to_ascii_uppercase();
                name.strip_prefix(PREFIX)
                    .and_then(|rest| rest.strip_prefix(&table))
                    .is_some_and(|rest| rest.starts_with('_'))
            };
            keys().any(starts)
        };
        // `STUDYSYNC_DUCKDB` lacks its table.
        let is_key = |name: &str| {
            name.strip_prefix(PREFIX).is_some_and(|rest| keys().any(|key| key.name.eq_ignore_ascii_case(rest)))
        };
        let unknown = self.0.iter().find(|variable| {
            let name = variable.name.as_str();
            (is_table(name) || is_key(name))
                && !others.contains(&name)
                && !is_of_kubernetes(variable)
                && !keys().any(|key| key.variable() == name)
        });
        let Some(Variable { name, .. }) = unknown else { return Ok(()) };
        let bare = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).map_or("", |(_, key)| key);
        let problem = if is_secret_key(bare) {
            "there is no such setting: the key of the service belongs into STUDYSYNC_API_KEY, the secret of webhooks into \
             STUDYSYNC_WEBHOOK_SECRET"
                .to_owned()
        } else {
            let likeness = |key: &String| strsim::jaro_winkler(name, key);
            let nearest =
                keys().map(|key| key.variable()).max_by(|left, right| likeness(left).total_cmp(&likeness(right)));
            format!("there is no such setting; did you mean {}?", nearest.unwrap_or_default())
        };
        Err(value(name, problem))
    }
}

/// Keys of which only one can be set.
const ALTERNATIVES: &[&[&str]] = &[
    &["api_key_file", "api_key_command"],
    &["token_file", "token_command"],
    &["status_token_file", "status_token_command"],
    &["url", "url_file", "url_env"],
];

/// The keys that cannot be set beside this one.
fn alternatives(key: &Key) -> Vec<&'static str> {
    let group = ALTERNATIVES.iter().find(|group| group.contains(&key.name)).copied().unwrap_or_default();
    group.iter().copied().filter(|name| *name != key.name).collect()
}

/// Whether Kubernetes may have set it, for a service called `studysync` or `studysync-serve`.
fn is_of_kubernetes(variable: &Variable) -> bool {
    let Variable { name, text } = variable;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || (name.ends_with("_SERVICE_PORT") && is_number)
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && text.contains("://"))
        || name.contains("_PORT_")
}

/// The table of this name, made if the file has none. What the file calls `studies` are the surveys. `None` if
/// something else has the name.
fn table_of<'file>(file: &'file mut toml::Table, name: &str) -> Option<&'file mut toml::Table> {
    let mut table = file;
    for part in name.split('.') {
        let part = if part == "surveys" && table.contains_key("studies") { "studies" } else { part };
        table = table.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new())).as_table_mut()?;
    }
    Some(table)
}

fn toml_value(key: &Key, text: &str) -> Result<toml::Value, String> {
    Ok(match key.kind {
        Kind::Text => text.into(),
        Kind::PathOrNone if text == "none" => text.into(),
        Kind::Path | Kind::PathOrNone => {
            // As on the command line: relative to where the program runs, not to the file.
            let path = std::path::absolute(expanded(PathBuf::from(text))?).map_err(|error| error.to_string())?;
            path.to_string_lossy().into_owned().into()
        }
        Kind::Whole => {
            let number: Option<i64> = text.parse().ok().filter(|number| *number >= 0);
            number.ok_or_else(|| format!("'{text}' is no whole number from 0 on"))?.into()
        }
        Kind::Number => {
            let number: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
            number.into()
        }
        Kind::Switch => match text {
            "true" | "1" => true.into(),
            "false" | "0" => false.into(),
            _ => return Err(format!("'{text}' is neither true nor false")),
        },
        Kind::List => list(text)?,
    })
}

/// `a, b`, or as TOML writes it: `["a", "b"]`.
fn list(text: &str) -> Result<toml::Value, String> {
    if text.starts_with('[') {
        let table: toml::Table = format!("list = {text}")
            .parse()
            .map_err(|_| format!("'{text}' is no list: write a, b or [\"a\", \"b\"]"))?;
        return table.get("list").cloned().filter(toml::Value::is_array).ok_or_else(|| format!("'{text}' is no list"));
    }
    Ok(text.split(',').map(|item| item.trim().to_owned()).collect::<Vec<_>>().into())
}
