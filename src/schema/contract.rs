//! The shape of a contract file. `schemas/README.md` explains it to people.

use std::sync::OnceLock;

use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};

use crate::model::{Flag, IdentifierKind};

/// One relation of the warehouse.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// snake_case; also the stem of the contract's file.
    pub name: String,
    /// How its rows live.
    pub kind: TableKind,
    /// What it is for, for analysts.
    pub comment: String,
    /// What one row is.
    pub grain: String,
    /// The columns that name a row.
    pub key: Vec<String>,
    /// The stream whose scans fill it.
    #[serde(default)]
    pub stream: Option<String>,
    /// The table with whose rows a child is replaced, or whose versions a history keeps.
    #[serde(default)]
    pub parent: Option<String>,
    /// Of a child: its rows only come when the scan asked for this, and stay as they are when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<Flag>,
    /// Of a versioned table: the child table whose rows it keeps versions of; none where `flatten` fills it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions_of: Option<String>,
    /// The time column by which Parquet is cut; a table without one is a single file.
    #[serde(default)]
    pub partition: Option<String>,
    /// Order of the rows in Parquet.
    #[serde(default)]
    pub sort: Vec<String>,
    /// The columns, in order.
    #[serde(rename = "column")]
    pub columns: Vec<Column>,
    /// Made once: every page asks for it.
    #[serde(skip)]
    pub(super) flat_schema: OnceLock<SchemaRef>,
}

/// How the rows of a table live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TableKind {
    /// Rows with a life of their own: content hash, first seen, vanished.
    Base,
    /// Replaced as a set with a row of the parent.
    Child,
    /// Versions of the parent's rows.
    History,
    /// Parts of the parent's rows, each opened and closed when it changes.
    Versioned,
    /// Only ever appended.
    Log,
}

/// One column.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// snake_case; a leading underscore marks what the program itself needs.
    pub name: String,
    /// The type.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Whether NULL is allowed.
    #[serde(default = "yes")]
    pub nullable: bool,
    /// Where the value comes from.
    #[serde(default)]
    pub origin: Origin,
    /// Path of the field in the service's record.
    #[serde(default)]
    pub json: Option<String>,
    /// The column holds the fields below this path that have no column of their own, as a JSON object; empty for the
    /// record itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_of: Option<String>,
    /// For a column of words: those that are known. Others are kept, and reported as drift.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Only sent when the scan asked for this.
    #[serde(default)]
    pub flag: Option<Flag>,
    /// Whether it says something of a person.
    #[serde(default)]
    pub personal: Personal,
    /// Whom it identifies, if it does; erasure finds people by these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifies: Option<Identifies>,
    /// Its value counts as such only in rows where this column holds the name of an attribute for mail addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_by: Option<String>,
    /// What it means, for analysts.
    pub comment: String,
}

fn yes() -> bool {
    true
}

impl Column {
    /// Whether its values go into the hash of a row's content: what the service sent, and the JSON of fields without a
    /// column.
    pub fn is_hashed(&self) -> bool {
        self.origin == Origin::Wire || self.column_type == ColumnType::Json
    }
}

/// The types a column can have: those that every reader of Parquet understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    Text,
    /// JSON as text: DuckDB's own JSON type refuses texts that a hostile service can send, and some readers see it as
    /// bytes.
    Json,
    Bigint,
    Double,
    Boolean,
    /// UTC, microseconds.
    Timestamp,
    BigintList,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A field of the record.
    #[default]
    Wire,
    /// Computed by `flatten` from the record.
    Derived,
    /// Filled when a scan is applied.
    Load,
}

/// Whether a column says something of a person; erasure starts from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Personal {
    #[default]
    None,
    /// An id that stands for a person.
    Pseudonym,
    /// Free text or addresses that may name one.
    Possible,
    /// Names a person.
    Direct,
}

/// What a column says about who a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Identifies {
    UserId,
    /// A mail address; in a `json` column those members that are named like one.
    Email,
    VisitorId,
    VisitorUuid,
    AnonymousId,
    Session,
    /// The JSON text of a whole record, whose own fields identify somebody.
    Record,
}

impl Identifies {
    /// The kind of identifier that stands in the column; `None` for whole records.
    pub fn kind(self) -> Option<IdentifierKind> {
        match self {
            Identifies::UserId => Some(IdentifierKind::UserId),
            Identifies::Email => Some(IdentifierKind::Email),
            Identifies::VisitorId => Some(IdentifierKind::VisitorId),
            Identifies::VisitorUuid => Some(IdentifierKind::VisitorUuid),
            Identifies::AnonymousId => Some(IdentifierKind::AnonymousId),
            Identifies::Session => Some(IdentifierKind::Session),
            Identifies::Record => None,
        }
    }
}

impl Table {
    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The names of all columns, in order.
    pub fn column_names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| column.name.as_str()).collect()
    }

    /// The columns of the key, in the order of the table.
    pub fn key_in_order(&self) -> Vec<&str> {
        self.column_names().into_iter().filter(|name| self.key.iter().any(|key| key == name)).collect()
    }

    /// The columns that `flatten` fills, in order.
    pub fn flat_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.origin != Origin::Load)
    }

    /// The columns that carry content: not the key, and not what the program notes about a row.
    pub fn content_columns(&self) -> impl Iterator<Item = &Column> {
        self.flat_columns().filter(|column| !column.name.starts_with('_') && !self.key.contains(&column.name))
    }
}

/// Reads a contract and checks that its parts fit together.
pub(super) fn parse(text: &str) -> Result<Table, String> {
    let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let named = table.key.iter().chain(&table.sort).chain(&table.partition);
    for name in named {
        if table.column(name).is_none() {
            return Err(format!("{}: no column is called {name}", table.name));
        }
    }
    for column in &table.columns {
        if column.named_by.as_ref().is_some_and(|name| table.column(name).is_none()) {
            return Err(format!("{}.{}: no column is called as named_by says", table.name, column.name));
        }
        if column.identifies.is_some() && column.personal == Personal::None {
            return Err(format!("{}.{}: what identifies somebody is personal", table.name, column.name));
        }
    }
    if table.kind == TableKind::Child && table.parent.is_none() {
        return Err(format!("{}: a child names its parent", table.name));
    }
    Ok(table)
}
