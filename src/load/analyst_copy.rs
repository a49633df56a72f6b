//! Copies for readers, and the rules of a copy without personal data: which columns keep their values, get pseudonyms,
//! or are NULL.
//!
//! DuckDB copies rows in SQL, Parquet in Arrow batches; both give the same values.

use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, new_null_array},
    datatypes::SchemaRef,
};

use super::{
    Identity, LoadError,
    error::invalid_rows,
    pseudonyms::{self, PseudonymKey},
};
use crate::schema::{self, AnalystValue, Column, Table, quote_identifier};

/// The word of `without` that stands for all texts that people wrote.
pub const OPEN_TEXTS: &str = "open_texts";
/// Changes when equal settings give another copy than before.
const RULES_VERSION: u32 = 1;

/// A copy of a warehouse for readers: a DuckDB file or a Parquet folder, as the warehouse is.
#[derive(Clone, Debug)]
pub struct ReaderCopy {
    pub path: PathBuf,
    pub content: CopyContent,
}

/// What a copy for readers contains. A Parquet warehouse has no complete copy.
#[derive(Clone, Debug)]
pub enum CopyContent {
    /// Every value.
    Complete,
    /// What the rules of a copy without personal data leave.
    Analysts(AnalystCopy),
    /// The rules are not read, because the copy is not written: only its place matters.
    NotRead,
}

impl ReaderCopy {
    /// Returns the rules of a copy without personal data; `None` for a complete copy.
    pub(super) fn rules(&self) -> Result<Option<&AnalystCopy>, LoadError> {
        match &self.content {
            CopyContent::Complete => Ok(None),
            CopyContent::Analysts(rules) => Ok(Some(rules)),
            CopyContent::NotRead => Err(LoadError::Bug("a copy without its rules".to_owned())),
        }
    }
}

/// The rules of a copy without personal data. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AnalystCopy(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    /// The columns that are NULL at the user's request: table and column.
    without: BTreeSet<[&'static str; 2]>,
    pseudonyms: Pseudonyms,
}

/// What replaces identifiers.
#[derive(Clone)]
pub enum Pseudonyms {
    /// NULL.
    Off,
    /// A hash with a key.
    Keyed(Box<PseudonymKey>),
}

impl fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Pseudonyms::Off) { "Off" } else { "Keyed" })
    }
}

/// A SELECT of the rows of a table for the copy.
pub(super) struct CopySql {
    pub sql: String,
    /// The value of `$1` in `sql`, which must not be logged; `None` if `sql` has no parameter.
    pub key: Option<Vec<u8>>,
}

impl AnalystCopy {
    /// Creates the rules. `without` names columns that are NULL besides those that may name a person: `column` in each
    /// table that has it, `table.column`, or [`OPEN_TEXTS`].
    ///
    /// # Errors
    /// A sentence about a name that is none, or that names a column without which rows have no place.
    pub fn new(without: &[String], pseudonyms: Pseudonyms) -> Result<AnalystCopy, String> {
        let mut columns = BTreeSet::new();
        for name in without {
            columns.extend(columns_named(name)?);
        }
        Ok(AnalystCopy(Arc::new(Rules { without: columns, pseudonyms })))
    }

    /// Returns what the copy has in a column.
    fn value(&self, table: &Table, column: &Column) -> AnalystValue {
        let is_left_out = self.0.without.contains(&[table.name.as_str(), column.name.as_str()]);
        match column.analyst_value() {
            _ if is_left_out => AnalystValue::Drop,
            AnalystValue::Pseudonym if matches!(self.0.pseudonyms, Pseudonyms::Off) => AnalystValue::Drop,
            AnalystValue::OpenText => AnalystValue::Keep,
            value => value,
        }
    }

    /// Returns the columns that are NULL in the copy, although the contract says that they are never NULL.
    pub(super) fn nullable<'t>(&self, table: &'t Table) -> Vec<&'t str> {
        let is_null = |column: &&Column| !column.nullable && self.value(table, column) == AnalystValue::Drop;
        table.columns.iter().filter(is_null).map(|column| column.name.as_str()).collect()
    }

    /// Returns a text that differs between copies of different rules, keys, contracts or services. It does not reveal
    /// the key.
    pub(super) fn fingerprint(&self, identity: &Identity) -> String {
        let mut text = format!("{RULES_VERSION} {} {}\n", identity.base_url, identity.environment);
        for table in schema::tables() {
            for column in &table.columns {
                text += &format!("{}.{} {:?}\n", table.name, column.name, self.value(table, column));
            }
        }
        match &self.0.pseudonyms {
            Pseudonyms::Off => PseudonymKey::new("").fingerprint(&text),
            Pseudonyms::Keyed(key) => key.fingerprint(&text),
        }
    }

    /// Returns a SELECT of all rows of the SQL relation `from`, which has the columns of the table.
    pub(super) fn select(&self, table: &Table, from: &str) -> CopySql {
        let values: Vec<String> =
            table.columns.iter().map(|column| sql_of(column, self.value(table, column))).collect();
        let has_pseudonyms = |column: &Column| self.value(table, column) == AnalystValue::Pseudonym;
        let key = match &self.0.pseudonyms {
            Pseudonyms::Keyed(key) if table.columns.iter().any(has_pseudonyms) => Some(key.bytes()),
            _ => None,
        };
        CopySql { sql: format!("SELECT {} FROM {from}", values.join(", ")), key }
    }

    /// Returns the names of the columns of a table that a copy reads.
    pub(super) fn columns_read<'t>(&self, table: &'t Table) -> Vec<&'t str> {
        let is_read = |column: &&Column| self.value(table, column) != AnalystValue::Drop;
        table.columns.iter().filter(is_read).map(|column| column.name.as_str()).collect()
    }

    /// Returns the rows of the copy, with the columns of `schema`. `rows` has the columns of
    /// [`AnalystCopy::columns_read`].
    pub(super) fn rows(&self, table: &Table, schema: &SchemaRef, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
        let column = |column: &Column| -> ArrayRef {
            match (rows.column_by_name(&column.name), &self.0.pseudonyms) {
                (None, _) => new_null_array(&column.column_type.arrow(), rows.num_rows()),
                (Some(values), Pseudonyms::Keyed(key)) if self.value(table, column) == AnalystValue::Pseudonym => {
                    key.pseudonyms(values)
                }
                (Some(values), _) => Arc::clone(values),
            }
        };
        let copied = table.columns.iter().map(|found| (found.name.as_str(), column(found), true));
        let copied = RecordBatch::try_from_iter_with_nullable(copied);
        copied.and_then(|copied| super::store::fit(&copied, schema)).map_err(invalid_rows(table))
    }
}

/// Returns the columns that a name of `without` means, each with its table. The error names a similar column.
fn columns_named(name: &str) -> Result<Vec<[&'static str; 2]>, String> {
    let is_meant = |table: &Table, column: &Column| match name {
        OPEN_TEXTS => column.analyst_value() == AnalystValue::OpenText,
        name => name == column.name || name.split_once('.') == Some((table.name.as_str(), column.name.as_str())),
    };
    let mut found = Vec::new();
    let mut likest: Option<(f64, &str)> = None;
    for table in schema::tables() {
        for column in &table.columns {
            if is_meant(table, column) {
                found.push([table.name.as_str(), column.name.as_str()]);
            }
            let likeness = strsim::jaro_winkler(name.rsplit('.').next().unwrap_or(name), &column.name);
            if likest.is_none_or(|(most, _)| likeness > most) {
                likest = Some((likeness, &column.name));
            }
        }
    }
    match likest {
        Some((_, nearest)) if found.is_empty() => {
            Err(format!("there is no column '{name}'; did you mean '{nearest}'? `studysync schema` lists all"))
        }
        _ => Ok(found),
    }
}

/// Returns the SQL of a column of the copy. The key of pseudonyms is `$1`.
fn sql_of(column: &Column, value: AnalystValue) -> String {
    let name = quote_identifier(&column.name);
    match value {
        AnalystValue::Keep | AnalystValue::OpenText => name,
        AnalystValue::Drop => format!("NULL::{} AS {name}", column.column_type.duckdb()),
        AnalystValue::Pseudonym => format!("{}($1, {name}) AS {name}", pseudonyms::FUNCTION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyed(secret: &str) -> Pseudonyms {
        Pseudonyms::Keyed(Box::new(PseudonymKey::new(secret)))
    }

    #[test]
    fn names_of_columns_are_checked() {
        let rules = |name: &str| AnalystCopy::new(&[name.to_owned()], keyed("k"));
        for name in ["visitor_id", "responses.url", OPEN_TEXTS, "meta_browser"] {
            assert!(rules(name).is_ok(), "{name}");
        }
        for name in ["visitor_ids", "responses.visitor_ids"] {
            assert!(rules(name).unwrap_err().contains("did you mean 'visitor_id'"), "{name}");
        }
    }

    #[test]
    fn the_fingerprint_follows_key_and_columns() {
        let identity = Identity { base_url: "https://a.example".to_owned(), environment: "default".to_owned() };
        let of = |without: &[&str], pseudonyms: Pseudonyms| {
            let without: Vec<String> = without.iter().map(|name| (*name).to_owned()).collect();
            AnalystCopy::new(&without, pseudonyms).unwrap().fingerprint(&identity)
        };
        let all = [
            of(&[], keyed("one")),
            of(&[], keyed("two")),
            of(&["visitor_id"], keyed("one")),
            of(&[OPEN_TEXTS], keyed("one")),
            of(&[], Pseudonyms::Off),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(of(&["url"], keyed("one")), all[0], "url is left out anyway");
    }
}
