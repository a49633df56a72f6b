//! The format of a contract file, which `schemas/README.md` describes.

use std::sync::OnceLock;

use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};

use crate::model::{Flag, IdentifierKind};

/// The contract of one table of the warehouse.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The name in snake_case; also the stem of the contract's file.
    pub name: String,
    /// How scans change the rows of the table.
    pub kind: TableKind,
    /// The purpose of the table, for analysts.
    pub comment: String,
    /// What one row represents.
    pub grain: String,
    /// The columns that identify a row.
    pub key: Vec<String>,
    /// The stream whose scans fill the table; `None` if no scan fills it.
    #[serde(default)]
    pub stream: Option<String>,
    /// For a child or versioned table: the table to whose rows the rows of this table belong. For a history: the table
    /// whose versions it stores.
    #[serde(default)]
    pub parent: Option<String>,
    /// For a child: the flag that a scan must have to fill the table. A scan without the flag leaves the rows
    /// unchanged. `None` if every scan fills the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<Flag>,
    /// For a versioned table: the child table whose versions it stores; `None` if `flatten` fills the versioned table
    /// directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions_of: Option<String>,
    /// The time column of the Parquet partitions; `None` if the table is a single file.
    #[serde(default)]
    pub partition: Option<String>,
    /// The columns by which rows are sorted in Parquet.
    #[serde(default)]
    pub sort: Vec<String>,
    /// The columns, in order.
    #[serde(rename = "column")]
    pub columns: Vec<Column>,
    /// Cache of [`Table::flat_schema`].
    #[serde(skip)]
    pub(super) flat_schema: OnceLock<SchemaRef>,
}

/// How scans change the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TableKind {
    /// Independent rows, with a content hash and the times when they were first seen and vanished.
    Base,
    /// Rows that belong to a row of the parent. All child rows are replaced together when their parent row changes.
    Child,
    /// Versions of the rows of the parent.
    History,
    /// Versions of child rows, with the times when each version began and ended.
    Versioned,
    /// Rows that record events or the program's own work, such as the ledger and the rejects. The program adds rows,
    /// and replaces some by newer ones.
    Log,
}

/// One column.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The name in snake_case. Names of the program's own columns begin with an underscore.
    pub name: String,
    /// The type.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Whether the value can be NULL.
    #[serde(default = "yes")]
    pub nullable: bool,
    /// Where the value comes from.
    #[serde(default)]
    pub origin: Origin,
    /// The path of the field in the service's record; `None` if the column does not store a single field.
    #[serde(default)]
    pub json: Option<String>,
    /// For a JSON column with the fields that have no column of their own or do not fit it: the path of the object that
    /// contains these fields, empty for the record itself. `None` for every other column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_of: Option<String>,
    /// For an enumeration: the known values. Other values are stored too, and reported as drift.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// The flag that a scan must have to receive the field; `None` if every scan receives it.
    #[serde(default)]
    pub flag: Option<Flag>,
    /// Fields whose values are links that the service signs anew for each request, so their query strings are not
    /// compared. In a JSON column, the names of members. In a text column, the name of the field in the column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_links: Vec<String>,
    /// The column whose value this column repeats under a name by which tables are joined. Rows that an earlier version
    /// wrote without this column have the value, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<String>,
    /// False for a value that follows only from the spelling of the JSON that the service sent, such as the order of
    /// members. A difference of such a value is no difference of the row.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub compared: bool,
    /// Whether the values are personal data.
    #[serde(default)]
    pub personal: Personal,
    /// What in the column identifies a person, by which an erasure finds people; `None` if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifies: Option<Identifies>,
    /// For the value of an attribute: the column with the attribute's name. The value is an identifier only if the
    /// attribute has a name for mail addresses, such as `email`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_by: Option<String>,
    /// What a copy for analysts has in this column; `None` if it follows from `personal` and `identifies`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analyst_copy: Option<AnalystValue>,
    /// The meaning of the column, for analysts.
    pub comment: String,
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

impl Column {
    /// Returns true if the row's content hash covers the column: a field that the service sent, or JSON. JSON columns
    /// contain the fields without a column.
    pub fn is_hashed(&self) -> bool {
        self.origin == Origin::Wire || self.column_type == ColumnType::Json
    }

    /// Returns what a copy without personal data has in this column.
    pub fn analyst_value(&self) -> AnalystValue {
        let is_id = self.column_type != ColumnType::Json && self.named_by.is_none();
        self.analyst_copy.unwrap_or(match (self.personal, self.identifies) {
            (Personal::None, _) => AnalystValue::Keep,
            (Personal::Pseudonym, _) | (_, Some(Identifies::Identifier(_))) if is_id => AnalystValue::Pseudonym,
            _ => AnalystValue::Drop,
        })
    }
}

/// The type of a column. Every reader of Parquet supports these types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    Text,
    /// JSON as text. DuckDB's JSON type refuses some texts that a hostile service can send, and some readers see it as
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
    /// `flatten` copies it from a field of the record.
    #[default]
    Wire,
    /// `flatten` computes it from the record.
    Derived,
    /// `load` fills it when a scan is applied.
    Load,
}

/// How much a column reveals about a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Personal {
    /// Nothing.
    #[default]
    None,
    /// An id that stands for a person.
    Pseudonym,
    /// Free text or URLs that may name a person.
    Possible,
    /// Data that names a person.
    Direct,
}

/// What a copy without personal data has in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnalystValue {
    /// The value as it is.
    Keep,
    /// The value as it is, unless the user asks to leave out the texts that people wrote.
    OpenText,
    /// A keyed hash of the value, by which tables can be joined.
    Pseudonym,
    /// NULL.
    Drop,
}

/// What in a column identifies a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Identifies {
    /// The JSON text of a complete record, whose fields contain identifiers.
    Record,
    /// The bytes of a complete record in Base64. A search decodes them first.
    RecordInBase64,
    /// An identifier; in a `json` column, the members with a name such as `email`.
    #[serde(untagged)]
    Identifier(IdentifierKind),
}

impl Identifies {
    /// Returns the kind of the identifiers in the column; `None` if the column contains complete records.
    pub fn kind(self) -> Option<IdentifierKind> {
        match self {
            Identifies::Identifier(kind) => Some(kind),
            Identifies::Record | Identifies::RecordInBase64 => None,
        }
    }
}

/// Returns the begin of the name of a partition's folder, which `_month` or `_date` follows: `created` for the
/// partition column `created_at`.
pub fn partition_stem(column: &str) -> &str {
    column.strip_suffix("_at").unwrap_or(column)
}

impl Table {
    /// Returns the column with this name; `None` if there is none.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Returns the names of all columns, in order.
    pub fn column_names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| column.name.as_str()).collect()
    }

    /// Returns the columns of the key, in the order of the table.
    pub fn key_in_order(&self) -> Vec<&str> {
        self.column_names().into_iter().filter(|name| self.key.iter().any(|key| key == name)).collect()
    }

    /// Returns the columns that `flatten` fills, in order.
    pub fn flat_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.origin != Origin::Load)
    }

    /// Returns the columns that `flatten` fills with content of the record: without the key, and without columns whose
    /// name begins with an underscore.
    pub fn content_columns(&self) -> impl Iterator<Item = &Column> {
        self.flat_columns().filter(|column| !column.name.starts_with('_') && !self.key.contains(&column.name))
    }
}

/// Parses a contract. Fails if the contract names a missing column, a child table has no parent, or a column that
/// identifies a person is not personal.
pub(super) fn parse(text: &str) -> Result<Table, String> {
    let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let references = table.key.iter().chain(&table.sort).chain(&table.partition);
    for name in references {
        if table.column(name).is_none() {
            return Err(format!("{}: there is no column {name}", table.name));
        }
    }
    for column in &table.columns {
        if column.named_by.as_ref().is_some_and(|name| table.column(name).is_none()) {
            return Err(format!("{}.{}: there is no column with the name in named_by", table.name, column.name));
        }
        if column.copy_of.as_ref().is_some_and(|name| table.column(name).is_none()) {
            return Err(format!("{}.{}: there is no column that copy_of names", table.name, column.name));
        }
        if column.identifies.is_some() && column.personal == Personal::None {
            return Err(format!("{}.{}: a column that identifies a person must be personal", table.name, column.name));
        }
        let has_pseudonym = matches!(column.column_type, ColumnType::Text | ColumnType::Bigint);
        if column.analyst_value() == AnalystValue::Pseudonym && !has_pseudonym {
            return Err(format!("{}.{}: a pseudonym is a text or an integer", table.name, column.name));
        }
    }
    if table.kind == TableKind::Child && table.parent.is_none() {
        return Err(format!("{}: a child table must name its parent", table.name));
    }
    Ok(table)
}
