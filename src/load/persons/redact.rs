//! Replaces identifiers in texts that mention a person.

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::{or, sort_to_indices, take_record_batch},
};

use super::{
    parallel_read::removal_keys_where,
    search::Mention,
    texts::{as_texts, decoded, hits, redacted},
};
use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TableChange, concat_rows, project, removal_columns},
    },
    person::IdentifierMatcher,
    schema::{Table, tables},
};

/// Tables with the reports that the program writes about its runs. `sync_runs` is redacted even if the user did not ask
/// for redaction.
const OWN_TABLES: [&str; 1] = ["sync_runs"];
/// Largest number of keys whose rows are replaced together, to limit the memory.
const KEYS_AT_ONCE: usize = 20_000;

/// Replaces identifiers in the columns that `mentions` lists. With `only_own`, replaces identifiers only in the tables
/// with the program's reports about its runs (`OWN_TABLES`). Returns the number of rows that mentioned a person.
pub(in crate::load) fn redact(
    store: &mut BufferedStore,
    matcher: &IdentifierMatcher,
    mentions: &[Mention],
    only_own: bool,
) -> Result<u64, LoadError> {
    let mut redacted = 0;
    for table in tables().iter().filter(|table| !only_own || OWN_TABLES.contains(&table.name.as_str())) {
        let in_table = mentions.iter().filter(|mention| mention.table == table.name);
        let columns: Vec<&str> = in_table.map(|mention| mention.column.as_str()).collect();
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

#[cfg(test)]
mod tests;
