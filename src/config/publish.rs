//! `[warehouse] publish`: the copies for readers. A path names a complete copy of the DuckDB file; a table names copies
//! without personal data, and the key of their pseudonyms.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    declare::{Value, ValueType},
    error::{ConfigError, invalid},
    paths::resolve_links,
    secret::{SecretKeys, SecretSource, read_secret},
};
use crate::{
    model::{WarehouseKind, WarehouseLocations, WarehousePaths},
    redact::ApiKey,
};

const SETTING: &str = "[warehouse] publish";
/// The variable with the key of pseudonyms.
pub(super) const KEY_VARIABLE: &str = "STUDYSYNC_PUBLISH_KEY";
/// A shorter key could be guessed, and with it every id.
const KEY_BYTES_MIN: usize = 16;

/// The value of `publish` in the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "toml::Value", untagged)]
pub(super) enum PublishValue {
    /// The path of a complete copy of the DuckDB file.
    Complete(PathBuf),
    /// Copies without personal data.
    Analysts(PublishTable),
}

/// The form of `publish` as a table.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishTable {
    /// The copy of the DuckDB file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    /// The copy of the Parquet folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parquet: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    without: Vec<String>,
    #[serde(default = "yes")]
    pseudonyms: bool,
}

fn yes() -> bool {
    true
}

impl TryFrom<toml::Value> for PublishValue {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<PublishValue, String> {
        match value {
            toml::Value::String(path) => Ok(PublishValue::Complete(path.into())),
            toml::Value::Table(table) => {
                let read = PublishTable::deserialize(table).map_err(|error| error.message().to_owned());
                read.map(PublishValue::Analysts)
            }
            _ => {
                Err("publish is a path, or a table such as { path = \"analysts.duckdb\", pseudonyms = true }"
                    .to_owned())
            }
        }
    }
}

impl Value for PublishValue {
    fn value_type() -> ValueType {
        ValueType::PathOrTable
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        match self {
            PublishValue::Complete(path) => vec![path],
            PublishValue::Analysts(table) => table.path.iter_mut().chain(&mut table.parquet).collect(),
        }
    }
}

/// The copies for readers, which runs replace.
#[derive(Clone, Debug, Default)]
pub struct PublishSettings {
    /// The path of the copy of each warehouse; warehouses without a copy are missing.
    pub paths: WarehousePaths,
    /// What copies without personal data leave out; `None` if the copies are complete.
    pub analysts: Option<AnalystSettings>,
}

/// The settings of copies without personal data.
#[derive(Clone, Debug)]
pub struct AnalystSettings {
    /// Columns that are left out besides those that may name a person.
    pub without: Vec<String>,
    /// True if pseudonyms replace identifiers, false if NULL does.
    pub has_pseudonyms: bool,
    /// The source of the key of pseudonyms.
    pub key_source: SecretSource,
}

impl PublishSettings {
    /// Returns the path of a complete copy of the DuckDB file, which commands may read in place of the file.
    pub fn complete_copy(&self) -> Option<&PathBuf> {
        self.paths.get(&WarehouseKind::DuckDb).filter(|_| self.analysts.is_none())
    }
}

impl AnalystSettings {
    /// Reads the key of pseudonyms.
    ///
    /// # Errors
    /// The key is not set, its source cannot be read, or it is too short.
    pub fn key(&self) -> Result<ApiKey, ConfigError> {
        let missing = |variable: &str| ConfigError::NoPublishKey { variable: variable.to_owned() };
        let key = read_secret(&self.key_source, "[warehouse] publish_key_command", missing)?;
        match key.expose().len() < KEY_BYTES_MIN {
            true => {
                let problem =
                    format!("the key of pseudonyms has fewer than {KEY_BYTES_MIN} characters: it could be guessed");
                Err(invalid(key.origin(), problem))
            }
            false => Ok(key),
        }
    }
}

/// Returns the copies of the warehouses at these paths. `key` has the keys of the file with the key of pseudonyms.
///
/// # Errors
/// A copy without its warehouse, or at the place of a warehouse.
pub(super) fn resolve(
    value: Option<PublishValue>,
    key: SecretKeys,
    warehouses: &WarehouseLocations,
) -> Result<PublishSettings, ConfigError> {
    let key_source = key.resolve()?;
    let Some(value) = value else { return Ok(PublishSettings::default()) };
    let (copies, analysts) = match value {
        PublishValue::Complete(path) => ([Some(path), None], None),
        PublishValue::Analysts(PublishTable { path, parquet, without, pseudonyms }) => {
            ([path, parquet], Some(AnalystSettings { without, has_pseudonyms: pseudonyms, key_source }))
        }
    };
    let mut paths = WarehousePaths::new();
    for (kind, copy) in [WarehouseKind::DuckDb, WarehouseKind::Parquet].into_iter().zip(copies) {
        if let Some(copy) = copy {
            paths.insert(kind, resolve_links(copy)?);
        }
    }
    if paths.is_empty() {
        return Err(invalid(
            SETTING,
            "it names no copy: set path for the DuckDB file, or parquet for the Parquet folder",
        ));
    }
    check(&paths, warehouses)?;
    Ok(PublishSettings { paths, analysts })
}

/// Checks that each copy has an original and is not the original itself. The folder of a copy is not within a
/// warehouse, and no warehouse is within it.
fn check(copies: &WarehousePaths, warehouses: &WarehouseLocations) -> Result<(), ConfigError> {
    for (kind, copy) in copies {
        if !warehouses.contains_key(kind) {
            let what = if kind.is_folder() { "Parquet folder" } else { "DuckDB file" };
            let problem = format!("it is a copy of the {what}, and no [warehouse] {} is set", kind.name());
            return Err(invalid(SETTING, problem));
        }
        for warehouse in warehouses.values() {
            let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let (of_copy, of_warehouse) = (absolute(copy), absolute(&warehouse.path));
            if of_copy == of_warehouse {
                return Err(invalid(SETTING, format!("'{}' is the warehouse itself", copy.display())));
            }
            if kind.is_folder() && (of_copy.starts_with(&of_warehouse) || of_warehouse.starts_with(&of_copy)) {
                let problem = format!("'{}' and the warehouse '{}' are one in the other", copy.display(), warehouse);
                return Err(invalid(SETTING, problem));
            }
        }
    }
    Ok(())
}
