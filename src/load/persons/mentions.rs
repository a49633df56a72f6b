//! Finds and replaces mentions. After the rows of a person are removed, texts in other rows may still mention the
//! person.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, BooleanArray, RecordBatch, StringArray},
    compute::{cast, or, sort_to_indices, take_record_batch},
    datatypes::DataType,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;

use super::{
    all_rows::{fold_rows, removal_keys_where},
    identifier_columns::{RecordMatcher, RowMatcher},
    identifier_set::IdentifierSet,
};
use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{
            BufferedStore, Filter, KeySet, TableChange, Take, concat_rows, fold_batches, project, removal_columns,
        },
    },
    model::Identifier,
    person::{IdentifierMatcher, text_of_bytes},
    schema::{ColumnType, Identifies, Table, tables},
};

/// The result of a search for people at one location: here in a store, which fills in no `unexplained`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LocationResult {
    /// Number of files, rows or sessions that were searched.
    pub searched: u64,
    /// Size of the searched data.
    pub bytes: u64,
    /// Number of remaining rows, records or files of the people: 0 unless something is wrong.
    pub left: u64,
    /// Number of texts of other people that mention the erased people, by table and column.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mentions: BTreeMap<String, u64>,
    /// Number of rows in tables of other programs that name the erased people, by table and column. An erasure does not
    /// change tables of other programs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub in_tables_of_others: BTreeMap<String, u64>,
    /// Number of occurrences of an identifier in the raw bytes of files, if no mention and no longer identifier of
    /// another person explains them. For "push results", the number of other programs' files that name an erased
    /// person.
    pub unexplained: u64,
    /// Number of texts that contain an identifier only inside a longer word. An identifier inside a longer word does
    /// not count as a mention.
    #[serde(skip)]
    pub inside_longer: u64,
}

/// Searches the text and JSON columns of all tables for identifiers, also of tables that users created in the store.
/// Users' tables are searched with `threads` threads. The search changes no row. `left` of the result counts the rows
/// with an identifier of `people`, without their parent and child rows.
pub(in crate::load) fn search(
    store: &mut BufferedStore,
    people: &[Identifier],
    matcher: &IdentifierMatcher,
    threads: usize,
) -> Result<LocationResult, LoadError> {
    let wanted = IdentifierSet::of(people);
    let record_matcher = RecordMatcher::new(&wanted);
    let mut result = LocationResult::default();
    for table in tables() {
        let columns = text_columns(table);
        let row_matcher = RowMatcher::of(table, &record_matcher);
        let tested = row_matcher.iter().flat_map(RowMatcher::columns).filter(|column| !columns.contains(column));
        let read: Vec<&str> = columns.iter().copied().chain(tested).collect();
        let counts = fold_rows(
            store,
            table,
            &read,
            || SearchCounts::of(&columns),
            |counts, rows| {
                let rows = decoded(table, rows)?;
                if let Some(row_matcher) = &row_matcher {
                    counts.left += row_matcher.matching(&rows)?.into_iter().map(u64::from).sum::<u64>();
                }
                counts.add(&rows, matcher)
            },
        )?;
        let mentions = add_counts(&mut result, &table.name, &columns, counts);
        result.mentions.extend(mentions);
    }
    for table in store.store().foreign_tables()? {
        let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
        let read = |take: &mut Take<'_>| store.store().read_foreign(&table, take);
        let counts =
            fold_batches(threads, read, || SearchCounts::of(&columns), |counts, rows| counts.add(&rows, matcher))?;
        let mentions = add_counts(&mut result, &table.name, &columns, counts);
        result.in_tables_of_others.extend(mentions);
    }
    Ok(result)
}

/// Adds the counts of all threads for one table to the result, and returns the number of mentioning rows by
/// `table.column`.
fn add_counts(
    result: &mut LocationResult,
    table: &str,
    columns: &[&str],
    counts: Vec<SearchCounts>,
) -> BTreeMap<String, u64> {
    let mut hits = vec![0; columns.len()];
    for counts in counts {
        result.searched += counts.rows;
        result.bytes += counts.bytes;
        result.left += counts.left;
        result.inside_longer += counts.inside_longer;
        hits.iter_mut().zip(counts.hits).for_each(|(total, of_thread)| *total += of_thread);
    }
    let found = columns.iter().zip(hits).filter(|(_, rows)| *rows > 0);
    found.map(|(column, rows)| (column_of(table, column), rows)).collect()
}

/// Returns the key of a column in [`LocationResult::mentions`].
fn column_of(table: &str, column: &str) -> String {
    format!("{table}.{column}")
}

/// Counts over some batches of one table. One thread at a time adds to them.
#[derive(Debug, Default)]
struct SearchCounts {
    /// Number of rows searched.
    rows: u64,
    /// Bytes of text searched.
    bytes: u64,
    /// Number of rows with an identifier of the people.
    left: u64,
    /// Number of texts that contain an identifier only inside a longer word.
    inside_longer: u64,
    /// For each column the number of rows that mention a person.
    hits: Vec<u64>,
}

impl SearchCounts {
    /// Creates counts of zero for these columns.
    fn of(columns: &[&str]) -> Self {
        Self { hits: vec![0; columns.len()], ..Self::default() }
    }

    /// Searches a batch and adds its counts. The first columns are those of `hits`.
    fn add(&mut self, rows: &RecordBatch, matcher: &IdentifierMatcher) -> Result<(), LoadError> {
        self.rows += rows.num_rows() as u64;
        for (column, count) in rows.columns().iter().zip(&mut self.hits) {
            let texts = as_texts(column)?;
            self.bytes += bytes_of(&texts).len() as u64;
            if let Some(hits) = hits(&texts, matcher) {
                self.inside_longer += hits.inside_longer;
                *count += hits.is_hit.true_count() as u64;
            }
        }
        Ok(())
    }
}

/// Tables with the reports that the program writes about its runs. `sync_runs` is redacted even if the user did not ask
/// for redaction.
const OWN_TABLES: [&str; 1] = ["sync_runs"];
/// Largest number of keys whose rows are replaced together, to limit the memory.
const KEYS_AT_ONCE: usize = 20_000;

/// Replaces identifiers in the columns that `mentions` of a search lists. With `only_own`, replaces identifiers only in
/// the tables with the program's reports about its runs (`OWN_TABLES`). Returns the number of rows that mentioned a
/// person.
pub(in crate::load) fn redact(
    store: &mut BufferedStore,
    matcher: &IdentifierMatcher,
    mentions: &BTreeMap<String, u64>,
    only_own: bool,
) -> Result<u64, LoadError> {
    let mut redacted = 0;
    for table in tables().iter().filter(|table| !only_own || OWN_TABLES.contains(&table.name.as_str())) {
        let mut columns = text_columns(table);
        columns.retain(|column| mentions.contains_key(&column_of(&table.name, column)));
        if !columns.is_empty() {
            redacted += redact_table(store, table, &columns, matcher, KEYS_AT_ONCE)?;
        }
    }
    Ok(redacted)
}

/// Replaces identifiers in these columns of a table, and returns the number of rows that mentioned a person. Rows are
/// replaced in batches of at most `keys_at_once` keys.
fn redact_table(
    store: &mut BufferedStore,
    table: &'static Table,
    columns: &[&str],
    matcher: &IdentifierMatcher,
    keys_at_once: usize,
) -> Result<u64, LoadError> {
    let mut keys = KeySet::new(removal_columns(table));
    let mut mentioning_rows = 0;
    for found in keys_of_mentioning_rows(store, table, columns, matcher)? {
        mentioning_rows += found.num_rows() as u64;
        keys.add(&found)?;
    }
    for keys in in_batches(table, &keys, keys_at_once)? {
        let mut change = TableChange::new(table);
        change.remove(&keys)?;
        // Removing a child row by its keys removes all child rows of the parent row. So all rows with these keys are
        // read and written again, also the rows without a mention.
        let filter = Filter::within(change.removed_range).with_keys(&change.removed);
        for rows in store.full_rows(table, &filter)? {
            change.add(redacted(table, rows, columns, matcher)?);
        }
        store.change(change)?;
    }
    Ok(mentioning_rows)
}

/// Returns the [`removal_columns`] of the rows that mention a person in one of these columns.
fn keys_of_mentioning_rows(
    store: &mut BufferedStore,
    table: &'static Table,
    columns: &[&str],
    matcher: &IdentifierMatcher,
) -> Result<Vec<RecordBatch>, LoadError> {
    removal_keys_where(store, table, columns, |rows| {
        let mut is_hit = BooleanArray::from(vec![false; rows.num_rows()]);
        for column in decoded(table, project(rows, columns)?)?.columns() {
            if let Some(hits) = hits(&as_texts(column)?, matcher) {
                is_hit = or(&is_hit, &hits.is_hit).map_err(invalid_rows(table))?;
            }
        }
        Ok(is_hit)
    })
}

/// Splits the keys into batches of at most `keys_at_once`. In a table with a partition column the keys are sorted by
/// time first, so that each batch covers a short range.
fn in_batches(table: &'static Table, keys: &KeySet, keys_at_once: usize) -> Result<Vec<RecordBatch>, LoadError> {
    let Some(first) = keys.values().first() else { return Ok(Vec::new()) };
    let mut all = concat_rows(table, &first.schema(), keys.values())?;
    if let Some(times) = table.partition.as_deref().and_then(|column| all.column_by_name(column)) {
        let order = sort_to_indices(times, None, None).map_err(invalid_rows(table))?;
        all = take_record_batch(&all, &order).map_err(invalid_rows(table))?;
    }
    let starts = (0..all.num_rows()).step_by(keys_at_once);
    Ok(starts.map(|start| all.slice(start, keys_at_once.min(all.num_rows() - start))).collect())
}

/// Returns the names of the text and JSON columns of a table.
fn text_columns(table: &'static Table) -> Vec<&'static str> {
    let is_text = |column_type| matches!(column_type, ColumnType::Text | ColumnType::Json);
    table.columns.iter().filter(|column| is_text(column.column_type)).map(|column| column.name.as_str()).collect()
}

/// Returns true if the column contains texts in Base64.
fn is_base64(table: &Table, column: &str) -> bool {
    table.column(column).is_some_and(|column| column.identifies == Some(Identifies::RecordInBase64))
}

/// Returns the rows with the texts in Base64 decoded. A text that is not Base64 stays.
pub(super) fn decoded(table: &Table, rows: RecordBatch) -> Result<RecordBatch, LoadError> {
    map_texts(
        table,
        rows,
        |column| is_base64(table, column),
        |_, text| match STANDARD.decode(text) {
            Ok(bytes) => text_of_bytes(&bytes).into_owned(),
            Err(_) => text.to_owned(),
        },
    )
}

/// The column that repeats another column in capitals, in which a user id is not recognized.
const CAPITALS: &str = "export_question_type";
/// The column that [`CAPITALS`] repeats.
const REPEATED_IN_CAPITALS: &str = "question_type";

/// Returns the rows with identifiers replaced in these columns. Other columns, and texts without an identifier, stay
/// unchanged.
fn redacted(
    table: &Table,
    rows: RecordBatch,
    columns: &[&str],
    matcher: &IdentifierMatcher,
) -> Result<RecordBatch, LoadError> {
    let redacted = map_texts(
        table,
        rows,
        |column| columns.contains(&column),
        |column, text| {
            let bytes = if is_base64(table, column) { STANDARD.decode(text).ok() } else { None };
            let replaced = match bytes {
                Some(bytes) => matcher.redacted_bytes(&bytes).map(|bytes| STANDARD.encode(bytes)),
                None => matcher.redacted(text),
            };
            replaced.unwrap_or_else(|| text.to_owned())
        },
    )?;
    repeat_in_capitals(table, redacted)
}

/// Fills the column [`CAPITALS`] again, because the text that it repeats may have changed.
fn repeat_in_capitals(table: &Table, rows: RecordBatch) -> Result<RecordBatch, LoadError> {
    let schema = rows.schema();
    let (Some((index, _)), Some(repeated)) =
        (schema.column_with_name(CAPITALS), rows.column_by_name(REPEATED_IN_CAPITALS))
    else {
        return Ok(rows);
    };
    let capitals: StringArray = as_texts(repeated)?.iter().map(|text| text.map(str::to_uppercase)).collect();
    let mut columns = rows.columns().to_vec();
    if let Some(column) = columns.get_mut(index) {
        *column = Arc::new(capitals);
    }
    RecordBatch::try_new(schema, columns).map_err(invalid_rows(table))
}

/// Returns the rows with each text in the selected columns replaced by the result of `map`, which gets the name of the
/// column and the text.
fn map_texts(
    table: &Table,
    rows: RecordBatch,
    is_selected: impl Fn(&str) -> bool,
    map: impl Fn(&str, &str) -> String,
) -> Result<RecordBatch, LoadError> {
    let schema = rows.schema();
    if !schema.fields().iter().any(|field| is_selected(field.name())) {
        return Ok(rows);
    }
    let mapped = schema.fields().iter().zip(rows.columns()).map(|(field, column)| {
        let name = field.name();
        if !is_selected(name) {
            return Ok(Arc::clone(column));
        }
        let texts = as_texts(column)?;
        Ok(Arc::new(texts.iter().map(|text| Some(map(name, text?))).collect::<StringArray>()) as ArrayRef)
    });
    let mapped = mapped.collect::<Result<Vec<_>, LoadError>>()?;
    RecordBatch::try_new(schema, mapped).map_err(invalid_rows(table))
}

/// Returns a column converted to texts. Values of other types become the texts in which Arrow displays them.
fn as_texts(column: &ArrayRef) -> Result<StringArray, LoadError> {
    let column = match column.data_type() {
        DataType::Utf8 => Arc::clone(column),
        _ => cast(column, &DataType::Utf8).map_err(|error| LoadError::Bug(format!("a column of texts: {error}")))?,
    };
    Ok(column.as_string::<i32>().clone())
}

/// Returns the bytes of all texts of a column, one text directly after the other.
fn bytes_of(texts: &StringArray) -> &[u8] {
    let position = |offset: Option<&i32>| offset.and_then(|offset| usize::try_from(*offset).ok()).unwrap_or(0);
    let offsets = texts.value_offsets();
    texts.value_data().get(position(offsets.first())..position(offsets.last())).unwrap_or_default()
}

/// Which texts of a column mention a person.
struct Hits {
    /// For each text, true if it mentions a person.
    is_hit: BooleanArray,
    /// Number of texts that contain an identifier only inside a longer word. An identifier inside a longer word does
    /// not count as a mention.
    inside_longer: u64,
}

/// Finds the texts of a column that mention a person. Tests the bytes of all texts together first. Returns `None` if
/// these bytes contain no identifier, which is the usual case.
fn hits(texts: &StringArray, matcher: &IdentifierMatcher) -> Option<Hits> {
    if !matcher.may_be_in(bytes_of(texts)) {
        return None;
    }
    let mut inside_longer = 0;
    let hit = |text: Option<&str>| {
        let text = text.unwrap_or_default().as_bytes();
        let is_hit = matcher.is_in_text(text);
        inside_longer += u64::from(!is_hit && matcher.may_be_in(text) && matcher.has_bytes_in(text));
        Some(is_hit)
    };
    let is_hit = texts.iter().map(hit).collect();
    Some(Hits { is_hit, inside_longer })
}

#[cfg(test)]
mod redact_tests;
#[cfg(test)]
mod search_tests;
