//! The configuration file as it is written. Every key is optional; an unknown one is refused with the nearest known one.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::ConfigError;

/// The file that is read when it is there and `--config` names no other.
pub const CONFIG_FILE_NAME: &str = "studysync.toml";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConfigFile {
    pub service: ServiceTable,
    pub throttle: ThrottleTable,
    pub streams: BTreeMap<String, StreamTable>,
    pub warehouse: WarehouseTable,
    pub state: StateTable,
    pub archive: ArchiveTable,
    pub erase: EraseTable,
    pub serve: super::serve::ServeTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServiceTable {
    pub base_url: Option<String>,
    pub environment: Option<String>,
    pub api_key_env: Option<String>,
    pub api_key_file: Option<PathBuf>,
    pub timeout_secs: Option<u64>,
    pub auth: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ThrottleTable {
    pub in_flight_max: Option<usize>,
    pub requests_per_sec_max: Option<f64>,
    pub patience_secs: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StreamTable {
    pub enabled: Option<bool>,
    pub flags: Option<Vec<String>>,
    pub page_rows: Option<u32>,
    pub settle_secs: Option<u64>,
    pub rescan: Option<Vec<String>>,
    pub since: Option<String>,
    pub refresh_after: Option<String>,
    pub ask_again_after: Option<String>,
    pub drift: DriftTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DriftTable {
    pub unknown_fields: Option<String>,
    pub type_clashes: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WarehouseTable {
    pub duckdb: Option<PathBuf>,
    pub parquet: Option<PathBuf>,
    pub parquet_partition: Option<String>,
    pub memory_limit_mb: Option<u64>,
    pub lock_wait_secs: Option<u64>,
    pub publish: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StateTable {
    pub path: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ArchiveTable {
    pub path: Option<PathBuf>,
    pub keep_days: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EraseTable {
    pub on_vanish: Option<String>,
    pub grace_days: Option<u32>,
}

impl ConfigFile {
    pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    pub fn parse(text: &str, path: &Path) -> Result<ConfigFile, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            ConfigError::Parse { path: path.to_owned(), message: line + &explain(error.message()) }
        })
    }
}

/// serde's "unknown field" with the nearest known key; other messages as they are.
fn explain(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), names.next()) {
        (true, Some(unknown)) => {
            let known: Vec<&str> = names.collect();
            let nearest = known.iter().max_by(|left, right| {
                let likeness = |name: &str| strsim::jaro_winkler(unknown, name);
                likeness(left).total_cmp(&likeness(right))
            });
            let hint = nearest.map(|nearest| format!("; did you mean '{nearest}'?")).unwrap_or_default();
            format!("there is no key '{unknown}'{hint} (known here: {})", known.join(", "))
        }
        _ => message.trim_end().to_owned(),
    }
}
