//! The declaration of a table of the configuration file, with [`table!`]. From it follow the struct that serde reads,
//! the defaults, the ranges, the environment variables, the file that `init` writes and the reference.

use std::{ops::RangeInclusive, path::PathBuf};

use serde::Serialize;

use super::paths::ArchiveChoice;
use crate::model::Stream;

/// The prefix of this program's environment variables.
pub(super) const PREFIX: &str = "STUDYSYNC_";

pub(super) const DAY_SECS: u64 = 24 * 3600;
pub(super) const YEAR_SECS: u64 = 366 * DAY_SECS;

/// Declares a table of the file: its struct, which implements [`Table`]. Each key has its help, its name and its type.
///
/// - `key: u64 = 60` has a default, which the field has if the file does not set the key.
/// - `key: Option<u64> => default(60)` has a default that the code chooses; the file that `init` writes shows this one.
/// - `key: Option<u64> => example(400)` has no default; the file that `init` writes shows an example.
///
/// `, in 1..=10` is the range of a number. `, of &[Stream::Themes]` are the streams that have the key. A table with
/// a table inside names it after its own name: `StreamTable, drift: DriftTable`.
macro_rules! table {
    ($table:ident $(, $inner:ident: $inner_table:ty)? { $(
        $($help:literal)*
        $name:ident: $type:ty $(= $default:expr)? $(=> $shown:expr)? $(, in $range:expr)? $(, of $streams:expr)?;
    )+ }) => {
        #[derive(Clone, Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct $table { $(pub $name: $type,)+ $(pub $inner: $inner_table,)? }

        impl Default for $table {
            fn default() -> $table {
                $table {
                    $($name: $crate::config::declare::table!(@first $($default)?, Default::default()),)+
                    $($inner: Default::default(),)?
                }
            }
        }

        impl $crate::config::declare::Table for $table {
            fn settings(&mut self, table: &str) -> Vec<$crate::config::declare::Setting<'_>> {
                use $crate::config::declare::{self, Setting, SettingKey, Value};
                let settings = vec![$(Setting {
                    key: SettingKey {
                        table: table.to_owned(),
                        name: stringify!($name),
                        value_type: <$type as Value>::value_type(),
                        help: &[$($help),*],
                        shown: declare::table!(@first $($shown)?, declare::default(&self.$name)),
                        range: declare::table!(@first $(Some($range))?, None),
                        streams: declare::table!(@first $($streams)?, &[]),
                    },
                    toml: toml::Value::try_from(&self.$name).ok(),
                    value: &mut self.$name,
                }),+];
                $(
                    let inner = self.$inner.settings(&format!("{table}.{}", stringify!($inner)));
                    let settings = settings.into_iter().chain(inner).collect();
                )?
                settings
            }
        }
    };
    (@first $first:expr, $second:expr) => { $first };
    (@first , $second:expr) => { $second };
}

pub(super) use table;

/// A table of the file.
pub(super) trait Table {
    /// Returns the keys with their values; `table` is the name of the table in TOML. The keys of a table inside follow.
    fn settings(&mut self, table: &str) -> Vec<Setting<'_>>;
}

/// A key with its value, set or not.
pub(super) struct Setting<'file> {
    pub key: SettingKey,
    /// The value in TOML; `None` for an optional value that is not set.
    pub toml: Option<toml::Value>,
    pub value: &'file mut dyn Value,
}

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    Text,
    Path,
    /// A path, or the word `none`.
    PathOrNone,
    /// A path, or a table.
    PathOrTable,
    /// A whole number of 0 or more.
    Whole,
    Number,
    /// `true` or `false`.
    Switch,
    /// A list of texts.
    List,
}

/// A value that a key can have.
pub(super) trait Value {
    fn value_type() -> ValueType
    where
        Self: Sized;

    /// Returns false for an optional value that is not set.
    fn is_set(&self) -> bool {
        true
    }

    /// Returns the paths of the value, to expand them; none if the value has no path, or is not set.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    /// Returns the number, to check its range; `None` if the value is no whole number, or not set.
    fn number(&self) -> Option<u64> {
        None
    }
}

impl Value for String {
    fn value_type() -> ValueType {
        ValueType::Text
    }
}

impl Value for Vec<String> {
    fn value_type() -> ValueType {
        ValueType::List
    }
}

impl Value for bool {
    fn value_type() -> ValueType {
        ValueType::Switch
    }
}

impl Value for f64 {
    fn value_type() -> ValueType {
        ValueType::Number
    }
}

impl Value for u64 {
    fn value_type() -> ValueType {
        ValueType::Whole
    }

    fn number(&self) -> Option<u64> {
        Some(*self)
    }
}

impl Value for u32 {
    fn value_type() -> ValueType {
        ValueType::Whole
    }

    fn number(&self) -> Option<u64> {
        Some(u64::from(*self))
    }
}

impl Value for usize {
    fn value_type() -> ValueType {
        ValueType::Whole
    }

    fn number(&self) -> Option<u64> {
        u64::try_from(*self).ok()
    }
}

impl Value for PathBuf {
    fn value_type() -> ValueType {
        ValueType::Path
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![self]
    }
}

impl Value for ArchiveChoice {
    fn value_type() -> ValueType {
        ValueType::PathOrNone
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.folder_mut().into_iter().collect()
    }
}

impl<V: Value> Value for Option<V> {
    fn value_type() -> ValueType {
        V::value_type()
    }

    fn is_set(&self) -> bool {
        self.is_some()
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.as_mut().map_or_else(Vec::new, Value::paths)
    }

    fn number(&self) -> Option<u64> {
        self.as_ref()?.number()
    }
}

/// A key of the configuration file.
#[derive(Clone, Debug)]
pub struct SettingKey {
    /// The table's name in TOML, for example `streams.responses.drift`.
    pub table: String,
    pub name: &'static str,
    pub(super) value_type: ValueType,
    /// The lines of the comment above the key in the file that `init` writes.
    pub(super) help: &'static [&'static str],
    pub(super) shown: Shown,
    /// The range of a whole number.
    pub(super) range: Option<RangeInclusive<u64>>,
    /// The streams that have the key; empty for a key that belongs to no stream.
    pub(super) streams: &'static [Stream],
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

    /// Returns true if the file that `init` writes shows an example of the key's value, not its default.
    pub fn is_example(&self) -> bool {
        self.shown.is_example
    }
}

/// The value of a key in the file that `init` writes.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub toml: String,
    /// True if the value is an example, not the default.
    pub is_example: bool,
    /// True if the line is no comment.
    pub is_set: bool,
    /// A comment below the key.
    pub below: Option<&'static str>,
}

/// Shows the value that the setting has if nothing sets it.
pub(super) fn default(value: impl Serialize) -> Shown {
    let toml = toml::Value::try_from(value).map(|value| value.to_string()).unwrap_or_default();
    Shown { toml, is_example: false, is_set: false, below: None }
}

/// Shows a value that is not the default.
pub(super) fn example(value: impl Serialize) -> Shown {
    Shown { is_example: true, ..default(value) }
}

impl Shown {
    /// Sets the value in the file that `init` writes, instead of showing it in a comment.
    pub fn set(self) -> Shown {
        Shown { is_set: true, ..self }
    }

    /// Adds a comment below the key.
    pub fn below(self, comment: &'static str) -> Shown {
        Shown { below: Some(comment), ..self }
    }
}
