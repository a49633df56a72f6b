//! Searches every text of a store for identifiers: after the rows of a person are removed, other texts may still
//! mention the person.

use arrow::array::RecordBatch;

use super::{
    parallel_read::fold_batches,
    texts::{as_texts, bytes_of, hits, text_columns},
};
use crate::{
    load::{
        LoadError,
        store::{BufferedStore, Filter, Take},
    },
    person::IdentifierMatcher,
    schema::tables,
};

/// Number of rows in which a column mentions a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub table: String,
    pub column: String,
    pub rows: u64,
}

/// What was searched and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchReport {
    /// Number of rows searched.
    pub rows: u64,
    /// Bytes of text searched.
    pub bytes: u64,
    /// Columns that mention a person.
    pub mentions: Vec<Mention>,
    /// Columns of tables that are not ours and mention a person; nothing is changed there.
    pub in_their_tables: Vec<Mention>,
    /// Texts that contain an identifier only inside a longer word, which is no mention.
    pub inside_longer: u64,
}

/// Searches every text and JSON column of every table, also of tables that others keep in the store, with this number
/// of threads. Changes nothing.
pub(in crate::load) fn search(
    store: &mut BufferedStore,
    matcher: &IdentifierMatcher,
    threads: usize,
) -> Result<SearchReport, LoadError> {
    let mut searched = SearchReport::default();
    for table in tables() {
        let columns = text_columns(table);
        let read = |take: &mut Take<'_>| store.read(table, &columns, &Filter::all(), take);
        let mentions = search_table(&mut searched, &table.name, &columns, matcher, threads, read)?;
        searched.mentions.extend(mentions);
    }
    for table in store.store().foreign_tables()? {
        let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
        let read = |take: &mut Take<'_>| store.store().read_foreign(&table, take);
        let mentions = search_table(&mut searched, &table.name, &columns, matcher, threads, read)?;
        searched.in_their_tables.extend(mentions);
    }
    Ok(searched)
}

/// Searches one table, adds its counts to the report, and returns the columns that mention a person.
fn search_table(
    searched: &mut SearchReport,
    table: &str,
    columns: &[&str],
    matcher: &IdentifierMatcher,
    threads: usize,
    read: impl FnOnce(&mut Take<'_>) -> Result<(), LoadError>,
) -> Result<Vec<Mention>, LoadError> {
    let none = || SearchCounts { hits: vec![0; columns.len()], ..SearchCounts::default() };
    let mut hits = vec![0; columns.len()];
    for tally in fold_batches(threads, read, none, |tally, rows| tally.add(&rows, matcher))? {
        searched.rows += tally.rows;
        searched.bytes += tally.bytes;
        searched.inside_longer += tally.inside_longer;
        hits.iter_mut().zip(tally.hits).for_each(|(all, some)| *all += some);
    }
    let found = columns.iter().zip(hits).filter(|(_, rows)| *rows > 0);
    let mention =
        |(column, rows): (&&str, u64)| Mention { table: table.to_owned(), column: (*column).to_owned(), rows };
    Ok(found.map(mention).collect())
}

/// Counts of one thread in one table.
#[derive(Debug, Default)]
struct SearchCounts {
    rows: u64,
    bytes: u64,
    inside_longer: u64,
    /// Rows that mention a person, by column.
    hits: Vec<u64>,
}

impl SearchCounts {
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

#[cfg(test)]
mod tests;
