//! The values that a command would use, with the origin of each. A secret is never among them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    declare::{Setting, Shown},
    environment::shown_variable,
    error::ConfigError,
    paths::ArchiveChoice,
    resolve::{read_file, resolve_paths, resolve_with},
    secret::may_be_a_key,
    settings::{Overrides, Settings},
    streams,
    tables::ConfigFile,
};
use crate::model::{Stream, WarehouseKind};

/// The value of a setting that may contain a secret.
const HIDDEN: &str = "(not shown: it may contain a secret)";

/// All settings with their values.
#[derive(Clone, Debug, Serialize)]
pub struct EffectiveSettings {
    /// The configuration file; `None` if there is none.
    pub config: Option<PathBuf>,
    pub settings: Vec<EffectiveSetting>,
}

/// A setting with its value and the origin of the value.
#[derive(Clone, Debug, Serialize)]
pub struct EffectiveSetting {
    /// The table's name in TOML.
    pub table: String,
    pub key: &'static str,
    /// The value in TOML; `None` if the setting has no value. A value that may contain a secret is replaced by a note.
    pub value: Option<String>,
    /// `default`, `line 7` of the file, the name of an environment variable, or a flag.
    pub from: String,
    /// True if the value is replaced by a note.
    pub is_hidden: bool,
}

/// Returns every setting with its value, after file, environment and command line were merged.
///
/// # Errors
/// Those of [`super::resolve()`].
pub fn effective(overrides: Overrides) -> Result<EffectiveSettings, ConfigError> {
    let (file, variables, config) = read_file(&overrides)?;
    let settings = resolve_with(file.clone(), &variables, config.clone(), overrides.clone())?;
    let lines = file.lines.clone();
    let (mut file, set) = file.with_variables(&variables)?;
    let folder = config.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    let mut overrides = overrides;
    resolve_paths(&mut file, &folder, &mut overrides)?;
    let flags = apply_flags(&mut file, overrides);
    fill_in(&mut file, settings);
    let shown = file.settings().filter_map(|Setting { key, toml, .. }| {
        let key = streams::key_of_stream(key)?;
        let label = key.label();
        let Shown { toml: default, is_example, .. } = &key.shown;
        let value = toml.map(|value| value.to_string()).or_else(|| (!is_example).then(|| default.clone()));
        let variable = set.iter().any(|set| set.label() == label).then(|| key.variable());
        let line = || lines.of_label(&label).map(|line| format!("line {line}"));
        let from = flags.get(&label).map(|flag| (*flag).to_owned()).or(variable).or_else(line);
        let is_hidden = from.is_some() && value.as_deref().is_some_and(|value| may_be_secret(&label, value));
        Some(EffectiveSetting {
            table: key.table,
            key: key.name,
            value: if is_hidden { Some(HIDDEN.to_owned()) } else { value },
            from: from.unwrap_or_else(|| "default".to_owned()),
            is_hidden,
        })
    });
    Ok(EffectiveSettings { config, settings: shown.collect() })
}

/// Writes the values of flags into the tables of the file. Returns the flags by the labels of their keys.
fn apply_flags(file: &mut ConfigFile, overrides: Overrides) -> BTreeMap<String, &'static str> {
    let mut flags = BTreeMap::new();
    let mut is_set = |label: &str, flag: &'static str| {
        flags.insert(label.to_owned(), flag);
    };
    if let Some(base_url) = overrides.base_url {
        file.service.base_url = Some(base_url);
        is_set("[service] base_url", "--base-url");
    }
    if let Some(path) = overrides.api_key_file {
        (file.service.api_key_file, file.service.api_key_command) = (Some(path), None);
        is_set("[service] api_key_file", "--api-key-file");
    }
    for (kind, path) in overrides.warehouses {
        file.warehouse.set_place(kind, path);
        let flag = match kind {
            WarehouseKind::DuckDb => "--duckdb",
            WarehouseKind::Parquet => "--parquet",
            WarehouseKind::DuckLake => "--ducklake",
            WarehouseKind::Postgres => "--postgres",
            WarehouseKind::Iceberg => "--iceberg",
        };
        is_set(&format!("[warehouse] {}", kind.name()), flag);
    }
    if let Some(path) = overrides.state {
        file.state.path = path;
        is_set("[state] path", "--state");
    }
    if let Some(archive) = overrides.archive {
        file.archive.path = Some(archive);
        is_set("[archive] path", "--archive");
    }
    flags
}

/// Sets the values that follow from other settings, and adds the tables of all streams.
fn fill_in(file: &mut ConfigFile, settings: Settings) {
    if settings.archive != ArchiveChoice::Nothing {
        file.archive.path.get_or_insert(settings.archive);
    }
    file.recordings.path.get_or_insert(settings.recordings.path);
    let tables = std::mem::take(&mut file.streams);
    let tables = tables.into_iter().map(|(name, table)| match name.parse::<Stream>() {
        Ok(stream) => (stream.name().to_owned(), table),
        Err(_) => (name, table),
    });
    file.streams = tables.collect();
    for stream in Stream::ALL {
        file.streams.entry(stream.name().to_owned()).or_default();
    }
}

/// Returns true if the value may be a secret, or contain one.
fn may_be_secret(label: &str, toml: &str) -> bool {
    let text = toml.trim_matches(['"', '\'']);
    let name = label.split_once("] ").map_or(label, |(_, name)| name);
    match name {
        "command" | "url" => true,
        "base_url" => text.contains('@'),
        name if name.ends_with("_command") => true,
        name if name.ends_with("_env") => shown_variable(text) != text,
        name if name.ends_with("_file") => may_be_a_key(Path::new(text)),
        _ => false,
    }
}
