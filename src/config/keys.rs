//! The list of all settings. The names of the environment variables are derived from this list. A test compares the
//! list with the types of the file.

use ValueType::{List, Number, Path, PathOrNone, Switch, Text, Whole};

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    Text,
    Path,
    /// A path, or the word `none`.
    PathOrNone,
    /// A whole number of 0 or more.
    Whole,
    Number,
    /// `true` or `false`.
    Switch,
    /// A list of texts.
    List,
}

/// A key of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingKey {
    /// The table's name in TOML, for example `streams.responses.drift`.
    pub table: &'static str,
    pub name: &'static str,
    pub value_type: ValueType,
}

impl SettingKey {
    /// Returns the environment variable that sets the key, for example `STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS`.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}_{}", self.table.replace('.', "_"), self.name).to_ascii_uppercase()
    }

    /// Returns the key with its table, as error messages show it: `[streams.responses] page_rows`.
    pub fn label(&self) -> String {
        format!("[{}] {}", self.table, self.name)
    }
}

/// The prefix of this program's environment variables.
pub(super) const PREFIX: &str = "STUDYSYNC_";

/// Returns every key, table by table.
pub fn keys() -> impl Iterator<Item = SettingKey> {
    let in_table = |(table, keys): &Table| {
        let table = *table;
        keys.iter().map(move |(name, value_type)| SettingKey { table, name, value_type: *value_type })
    };
    TABLES.iter().flat_map(in_table)
}

/// The name of a table of the file, and its keys with the types of their values.
type Table = (&'static str, &'static [(&'static str, ValueType)]);

const DRIFT: &[(&str, ValueType)] = &[("unknown_fields", Text), ("type_clashes", Text)];

const TABLES: &[Table] = &[
    (
        "service",
        &[
            ("base_url", Text),
            ("environment", Text),
            ("api_key_env", Text),
            ("api_key_file", Path),
            ("api_key_command", Text),
            ("timeout_secs", Whole),
            ("auth", Text),
        ],
    ),
    ("throttle", &[("in_flight_max", Whole), ("requests_per_sec_max", Number), ("patience_secs", Whole)]),
    (
        "streams.responses",
        &[
            ("enabled", Switch),
            ("flags", List),
            ("page_rows", Whole),
            ("settle_secs", Whole),
            ("rescan", List),
            ("since", Text),
        ],
    ),
    ("streams.responses.drift", DRIFT),
    (
        "streams.surveys",
        &[
            ("enabled", Switch),
            ("page_rows", Whole),
            ("settle_secs", Whole),
            ("rescan", List),
            ("since", Text),
            ("statuses", List),
        ],
    ),
    ("streams.surveys.drift", DRIFT),
    (
        "streams.themes",
        &[("enabled", Switch), ("page_rows", Whole), ("settle_secs", Whole), ("rescan", List), ("since", Text)],
    ),
    ("streams.themes.drift", DRIFT),
    ("streams.users", &[("enabled", Switch), ("refresh_after", Text), ("ask_again_after", Text)]),
    ("streams.users.drift", DRIFT),
    (
        "warehouse",
        &[
            ("duckdb", Path),
            ("parquet", Path),
            ("parquet_partition", Text),
            ("memory_limit_mb", Whole),
            ("lock_wait_secs", Whole),
            ("publish", Path),
            ("full_text_search", Switch),
            ("extension_directory", Path),
        ],
    ),
    ("state", &[("path", Path)]),
    ("archive", &[("path", PathOrNone), ("keep_days", Whole)]),
    ("erase", &[("on_vanish", Text), ("grace_days", Whole)]),
    ("recordings", &[("enabled", Switch), ("path", Path), ("run_limit_mb", Whole), ("file_limit_mb", Whole)]),
    ("metrics", &[("textfile", Path)]),
    (
        "notify",
        &[
            ("command", List),
            ("url", Text),
            ("url_file", Path),
            ("url_env", Text),
            ("kind", Text),
            ("on", List),
            ("again_after", Text),
            ("timeout_secs", Whole),
            ("attempts", Whole),
        ],
    ),
    (
        "serve",
        &[
            ("listen", Text),
            ("webhook", Text),
            ("token_env", Text),
            ("token_file", Path),
            ("token_command", Text),
            ("environment_id", Text),
            ("schedule", Text),
            ("timezone", Text),
            ("jitter_secs", Whole),
            ("wake_secs", Whole),
            ("flush_secs", Whole),
            ("max_lag", Text),
            ("status_page", Text),
            ("status_token_env", Text),
            ("status_token_file", Path),
            ("status_token_command", Text),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::file::ConfigFile;

    /// Returns the keys that the parser of the file knows in a table.
    fn known_to_the_file(table: &str) -> BTreeSet<String> {
        let text = format!("[{table}]\nno_such_key = 1\n");
        let error = ConfigFile::parse(&text, std::path::Path::new("x")).unwrap_err().to_string();
        let names = error.split_once("known here: ").unwrap().1.trim_end_matches(')');
        names.split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn the_list_has_every_key_of_the_file() {
        let error = ConfigFile::parse("[no_such_table]\n", std::path::Path::new("x")).unwrap_err().to_string();
        let names = error.split_once("known here: ").unwrap().1.trim_end_matches(')');
        let listed: BTreeSet<&str> = keys().map(|key| key.table.split('.').next().unwrap()).collect();
        assert_eq!(listed, names.split(", ").collect());
        for table in keys().map(|key| key.table).filter(|table| !table.starts_with("streams")) {
            let listed: BTreeSet<String> =
                keys().filter(|key| key.table == table).map(|key| key.name.to_owned()).collect();
            assert_eq!(listed, known_to_the_file(table), "[{table}]");
        }
        let of_streams: BTreeSet<String> = keys()
            .filter(|key| key.table.split('.').count() == 2)
            .map(|key| key.name.to_owned())
            .chain(["drift".to_owned()])
            .collect();
        assert_eq!(of_streams, known_to_the_file("streams.responses"));
        assert_eq!(
            DRIFT.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(),
            known_to_the_file("streams.users.drift")
        );
    }

    #[test]
    fn no_two_keys_share_a_variable() {
        let variables: BTreeSet<String> = keys().map(|key| key.variable()).collect();
        assert_eq!(variables.len(), keys().count());
        assert!(variables.contains("STUDYSYNC_STREAMS_RESPONSES_DRIFT_UNKNOWN_FIELDS"));
    }
}
