//! Searches all texts of a store for identifiers. After the rows of a person are removed, texts in other rows may still
//! mention the person.

use arrow::array::RecordBatch;

use super::{
    parallel_read::fold_batches,
    texts::{as_texts, bytes_of, decoded, hits, text_columns},
};
use crate::{
    load::{
        LoadError,
        store::{BufferedStore, Filter, Take},
    },
    person::IdentifierMatcher,
    schema::tables,
};

/// A column that mentions a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub table: String,
    pub column: String,
    /// Number of rows whose text in the column mentions a person.
    pub rows: u64,
}

/// Result of a search: how much text was searched, and which columns mention a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchReport {
    /// Number of rows searched.
    pub rows: u64,
    /// Bytes of text searched.
    pub bytes: u64,
    /// Columns of tables of this program that mention a person.
    pub mentions: Vec<Mention>,
    /// Columns that mention a person, of tables that users created. The program does not change these tables.
    pub in_foreign_tables: Vec<Mention>,
    /// Number of texts that contain an identifier only inside a longer word. An identifier inside a longer word does
    /// not count as a mention.
    pub inside_longer: u64,
}

/// Searches the text and JSON columns of all tables for identifiers, also of tables that users created in the store.
/// Uses `threads` threads. The search changes no row.
pub(in crate::load) fn search(
    store: &mut BufferedStore,
    matcher: &IdentifierMatcher,
    threads: usize,
) -> Result<SearchReport, LoadError> {
    let mut searched = SearchReport::default();
    for table in tables() {
        let columns = text_columns(table);
        let read =
            |take: &mut Take<'_>| store.read(table, &columns, &Filter::all(), &mut |rows| take(decoded(table, rows)?));
        let mentions = search_table(&mut searched, &table.name, &columns, matcher, threads, read)?;
        searched.mentions.extend(mentions);
    }
    for table in store.store().foreign_tables()? {
        let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
        let read = |take: &mut Take<'_>| store.store().read_foreign(&table, take);
        let mentions = search_table(&mut searched, &table.name, &columns, matcher, threads, read)?;
        searched.in_foreign_tables.extend(mentions);
    }
    Ok(searched)
}

/// Searches one table, adds its counts to the report, and returns the columns that mention a person. `read` reads the
/// columns and passes batches of them to the search.
fn search_table(
    searched: &mut SearchReport,
    table: &str,
    columns: &[&str],
    matcher: &IdentifierMatcher,
    threads: usize,
    read: impl FnOnce(&mut Take<'_>) -> Result<(), LoadError>,
) -> Result<Vec<Mention>, LoadError> {
    let no_counts = || SearchCounts { hits: vec![0; columns.len()], ..SearchCounts::default() };
    let mut hits = vec![0; columns.len()];
    for counts in fold_batches(threads, read, no_counts, |counts, rows| counts.add(&rows, matcher))? {
        searched.rows += counts.rows;
        searched.bytes += counts.bytes;
        searched.inside_longer += counts.inside_longer;
        hits.iter_mut().zip(counts.hits).for_each(|(total, of_thread)| *total += of_thread);
    }
    let found = columns.iter().zip(hits).filter(|(_, rows)| *rows > 0);
    let mention =
        |(column, rows): (&&str, u64)| Mention { table: table.to_owned(), column: (*column).to_owned(), rows };
    Ok(found.map(mention).collect())
}

/// What one thread counts while it searches one table.
#[derive(Debug, Default)]
struct SearchCounts {
    /// Number of rows searched.
    rows: u64,
    /// Bytes of text searched.
    bytes: u64,
    /// Number of texts that contain an identifier only inside a longer word.
    inside_longer: u64,
    /// For each column the number of rows that mention a person.
    hits: Vec<u64>,
}

impl SearchCounts {
    /// Searches a batch and adds its counts. The batch has one column for each entry of `hits`.
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
