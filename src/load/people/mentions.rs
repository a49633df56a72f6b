//! Looks for identifiers in every text of a warehouse, and can replace them there: what is left after the rows of people are gone
//! are other people's texts that mention them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray},
    compute::{cast, filter_record_batch},
    datatypes::DataType,
};

use super::{Engine, LoadError};
use crate::{
    load::{
        TableDelta, Targets,
        diff::{delete_columns, delete_relation, delta_rows, equal_columns, upsert_relation},
        stage::Stage,
    },
    person::Finder,
    schema::{ColumnType, Table, quote_identifier, tables},
};

const SEARCH: &str = "search the texts";

/// Tables in which the program tells of itself: nobody's data, and cleaned without being asked.
const OWN_TABLES: [&str; 1] = ["sync_runs"];

/// Rows of a column that mention somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub table: String,
    pub column: String,
    pub rows: u64,
}

/// A table that somebody else keeps in the warehouse, with the columns that can hold texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct TheirTable {
    pub name: String,
    /// As SQL.
    pub relation: String,
    pub columns: Vec<String>,
}

/// What was searched and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// Rows that were looked at.
    pub rows: u64,
    /// Bytes of text in them.
    pub bytes: u64,
    /// Columns that mention somebody.
    pub mentions: Vec<Mention>,
    /// The same of tables that are not ours, in which nothing is changed.
    pub in_their_tables: Vec<Mention>,
    /// Rows in which the bytes of an identifier stand inside a longer text of somebody else's, which is no mention.
    pub inside_longer: u64,
}

fn is_text(column_type: ColumnType) -> bool {
    matches!(column_type, ColumnType::Text | ColumnType::Json)
}

/// Columns that are searched at once: so few that the threads have done at about the same time.
const COLUMNS_AT_ONCE: usize = 4;

/// Some columns of a table, to be searched by one thread.
struct Piece {
    table: String,
    columns: Vec<String>,
    sql: String,
    is_ours: bool,
    /// Whether the rows count: once for a table.
    counts_rows: bool,
}

/// Searches every text of every table, with all threads: each has a session of its own and takes the next piece. Comparing bytes is
/// most of the work, and the engine's own threads would only read ahead of it.
pub(in super::super) fn search(
    engine: &Engine,
    targets: &mut dyn Targets,
    finder: &Finder,
    theirs: &[TheirTable],
) -> Result<Searched, LoadError> {
    let mut pieces = pieces(targets)?;
    pieces.extend(theirs.iter().flat_map(pieces_of_theirs));
    let next = AtomicUsize::new(0);
    let work = &|session: &Engine| {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = pieces.get(at) else { return Ok::<_, LoadError>(done) };
            done.push((at, search_piece(session, piece, finder)?));
        }
    };
    let sessions = (1..engine.threads()).map(|_| engine.beside()).collect::<Result<Vec<_>, _>>()?;
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = sessions.into_iter().map(|session| scope.spawn(move || work(&session))).collect();
        let mut done = work(engine)?;
        for other in others {
            done.extend(other.join().map_err(|_| LoadError::Contract("a thread that searches died".to_owned()))??);
        }
        Ok::<_, LoadError>(done)
    })?;
    done.sort_unstable_by_key(|(at, _)| *at);
    let mut searched = Searched::default();
    for (_, piece) in done {
        searched.rows += piece.rows;
        searched.bytes += piece.bytes;
        searched.mentions.extend(piece.mentions);
        searched.in_their_tables.extend(piece.in_their_tables);
        searched.inside_longer += piece.inside_longer;
    }
    Ok(searched)
}

fn pieces(targets: &mut dyn Targets) -> Result<Vec<Piece>, LoadError> {
    let mut pieces = Vec::new();
    for table in tables() {
        let relation = targets.relation(table, None)?;
        let texts = table.columns.iter().filter(|column| is_text(column.column_type));
        let columns: Vec<&'static str> = texts.map(|column| column.name.as_str()).collect();
        for (at, columns) in columns.chunks(COLUMNS_AT_ONCE).enumerate() {
            let list: Vec<String> = columns.iter().map(|name| quote_identifier(name)).collect();
            let sql = format!("SELECT {} FROM {relation}", list.join(", "));
            let columns = columns.iter().map(|&name| name.to_owned()).collect();
            pieces.push(Piece { table: table.name.clone(), columns, sql, is_ours: true, counts_rows: at == 0 });
        }
    }
    Ok(pieces)
}

/// Whatever is no text there, lists and structures among it, is searched as it is shown.
fn pieces_of_theirs(table: &TheirTable) -> Vec<Piece> {
    let piece = |(at, columns): (usize, &[String])| {
        let list: Vec<String> =
            columns.iter().map(|name| format!("CAST({} AS VARCHAR)", quote_identifier(name))).collect();
        let sql = format!("SELECT {} FROM {}", list.join(", "), table.relation);
        Piece { table: table.name.clone(), columns: columns.to_vec(), sql, is_ours: false, counts_rows: at == 0 }
    };
    table.columns.chunks(COLUMNS_AT_ONCE).enumerate().map(piece).collect()
}

fn search_piece(engine: &Engine, piece: &Piece, finder: &Finder) -> Result<Searched, LoadError> {
    let mut searched = Searched::default();
    let mut rows = vec![0; piece.columns.len()];
    engine.each_batch(SEARCH, &piece.sql, |batch| {
        searched.rows += if piece.counts_rows { batch.num_rows() as u64 } else { 0 };
        for (column, rows) in batch.columns().iter().zip(&mut rows) {
            let texts = texts(column)?;
            let hits = hits(&texts, finder, &mut searched.inside_longer);
            searched.bytes += (texts.value_offsets().last().copied().unwrap_or(0)).unsigned_abs() as u64;
            *rows += hits.map_or(0, |hits| hits.true_count() as u64);
        }
        Ok(())
    })?;
    let found = piece.columns.iter().zip(rows).filter(|(_, rows)| *rows > 0);
    let mentions = if piece.is_ours { &mut searched.mentions } else { &mut searched.in_their_tables };
    mentions.extend(found.map(|(column, rows)| Mention { table: piece.table.clone(), column: column.clone(), rows }));
    Ok(searched)
}

/// What has to change so that nobody is mentioned: rows with other texts in the place of those that do. Only in the tables that
/// tell of the program itself, or in all. An engine that was asked before starts afresh.
pub(in super::super) fn redact(
    engine: &Engine,
    targets: &mut dyn Targets,
    finder: &Finder,
    mentions: &[Mention],
    only_own: bool,
) -> Result<(Vec<TableDelta>, u64), LoadError> {
    Stage::clear(engine)?;
    let (mut deltas, mut redacted) = (Vec::new(), 0);
    for table in tables() {
        let columns: Vec<&str> = mentions
            .iter()
            .filter(|mention| mention.table == table.name)
            .map(|mention| mention.column.as_str())
            .collect();
        if columns.is_empty() || (only_own && !OWN_TABLES.contains(&table.name.as_str())) {
            continue;
        }
        redacted += redact_table(engine, targets, table, &columns, finder)?;
        let deletes = delta_rows(engine, table, &delete_relation(table))?;
        let upserts = delta_rows(engine, table, &upsert_relation(table))?;
        deltas.push(TableDelta { table, deletes, upserts });
    }
    Ok((deltas, redacted))
}

/// Fills the relations of the delta, and returns the rows that mention somebody. Rows are taken out by the key of their set, so
/// all of the set is put in again.
fn redact_table(
    engine: &Engine,
    targets: &mut dyn Targets,
    table: &'static Table,
    columns: &[&str],
    finder: &Finder,
) -> Result<u64, LoadError> {
    let held = targets.relation(table, None)?;
    let keys = delete_columns(table);
    let key_list: Vec<String> = keys.iter().map(|name| quote_identifier(name)).collect();
    let (deletes, upserts) = (delete_relation(table), upsert_relation(table));
    let action = "replace mentions";
    let key_sql = key_list.join(", ");
    engine.execute(
        action,
        &format!("CREATE TEMP TABLE work_mentioning AS SELECT {key_sql} FROM {held} LIMIT 0; CREATE TEMP TABLE {upserts} AS SELECT * FROM {held} LIMIT 0"),
    )?;
    let text_list: Vec<String> = columns.iter().map(|name| quote_identifier(name)).collect();
    let mut rows = 0;
    let mut mentioning = Vec::new();
    engine.each_batch(SEARCH, &format!("SELECT {key_sql}, {} FROM {held}", text_list.join(", ")), |batch| {
        let mut any = BooleanArray::from(vec![false; batch.num_rows()]);
        for column in &batch.columns()[keys.len()..] {
            if let Some(hits) = hits(&texts(column)?, finder, &mut 0) {
                any = arrow::compute::or(&any, &hits).map_err(unfit)?;
            }
        }
        if any.true_count() > 0 {
            rows += any.true_count() as u64;
            let found = filter_record_batch(&batch, &any).map_err(unfit)?;
            mentioning.push(found.project(&(0..keys.len()).collect::<Vec<_>>()).map_err(unfit)?);
        }
        Ok(())
    })?;
    insert(engine, "work_mentioning", &mentioning)?;
    let same = equal_columns("t", "d", &keys);
    let all: Vec<String> = table.columns.iter().map(|column| format!("t.{}", quote_identifier(&column.name))).collect();
    let mut fresh = Vec::new();
    engine.execute(
        action,
        &format!("CREATE TEMP TABLE {deletes} AS SELECT DISTINCT * FROM work_mentioning; DROP TABLE work_mentioning"),
    )?;
    engine.each_batch(
        SEARCH,
        &format!("SELECT {} FROM {held} t SEMI JOIN {deletes} d ON {same}", all.join(", ")),
        |batch| {
            let replaced = table.columns.iter().zip(batch.columns()).map(|(of, column)| {
                if !columns.contains(&of.name.as_str()) {
                    return Ok(Arc::clone(column));
                }
                let replace =
                    |text: Option<&str>| text.map(|text| finder.redacted(text).unwrap_or_else(|| text.to_owned()));
                Ok(Arc::new(texts(column)?.iter().map(replace).collect::<StringArray>()) as ArrayRef)
            });
            let replaced = replaced.collect::<Result<Vec<_>, LoadError>>()?;
            let names: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).zip(replaced).collect();
            fresh.push(
                RecordBatch::try_from_iter_with_nullable(names.into_iter().map(|(name, column)| (name, column, true)))
                    .map_err(unfit)?,
            );
            Ok(())
        },
    )?;
    insert(engine, &upserts, &fresh)?;
    Ok(rows)
}

fn insert(engine: &Engine, table: &str, batches: &[RecordBatch]) -> Result<(), LoadError> {
    engine.insert(table, batches).map_err(|source| LoadError::engine("replace mentions", source))
}

fn texts(column: &ArrayRef) -> Result<StringArray, LoadError> {
    let column = if column.data_type() == &DataType::Utf8 {
        Arc::clone(column)
    } else {
        cast(column, &DataType::Utf8).map_err(unfit)?
    };
    Ok(column.as_string::<i32>().clone())
}

fn unfit(error: arrow::error::ArrowError) -> LoadError {
    LoadError::Contract(error.to_string())
}

/// The rows that mention somebody; `None` if none does, which is nearly always found out at once for all of them.
fn hits(texts: &StringArray, finder: &Finder, inside_longer: &mut u64) -> Option<BooleanArray> {
    let offsets = texts.value_offsets();
    let (first, last) = (*offsets.first()?, *offsets.last()?);
    let bytes = texts.value_data().get(usize::try_from(first).ok()?..usize::try_from(last).ok()?)?;
    if !finder.may_be_in(bytes) {
        return None;
    }
    let mut found = Vec::with_capacity(texts.len());
    for text in texts.iter() {
        let text = text.unwrap_or_default().as_bytes();
        let may_be = finder.may_be_in(text);
        let is_in = may_be && finder.is_in_text(text);
        *inside_longer += u64::from(may_be && !is_in && finder.has_bytes_in(text));
        found.push(is_in);
    }
    found.contains(&true).then(|| BooleanArray::from(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        load::{TimeBounds, engine::tests::engine},
        model::{Identifier, IdentifierKind},
        schema::quote_text,
    };

    const MENTIONS: &str = "as zoe@example.com said";
    const OTHERS: &str = "nobody";
    /// More rows than the engine hands over at once.
    const ROWS: usize = 5_000;

    struct Plain;

    impl Targets for Plain {
        fn relation(&mut self, table: &'static Table, _: Option<TimeBounds>) -> Result<String, LoadError> {
            Ok(format!("memory.main.{}", quote_identifier(&table.name)))
        }
    }

    /// Every text of every table, with somebody in each column of every third row.
    fn filled(threads: u32) -> (tempfile::TempDir, Engine) {
        let (folder, engine) = engine(threads, 256 << 20);
        let text = format!("if(i % 3 = 0, {}, {})", quote_text(MENTIONS), quote_text(OTHERS));
        for table in tables() {
            let columns = table.columns.iter().filter(|column| is_text(column.column_type));
            let list: Vec<String> =
                columns.map(|column| format!("{text} AS {}", quote_identifier(&column.name))).collect();
            let name = Plain.relation(table, None).unwrap();
            let sql = format!("CREATE TABLE {name} AS SELECT {} FROM range({ROWS}) r(i)", list.join(", "));
            engine.execute("fill a table", &sql).unwrap();
        }
        (folder, engine)
    }

    #[test]
    fn p9_every_text_of_every_table_is_searched_once_however_many_threads_do_it() {
        let finder = Finder::new(&[Identifier::read(IdentifierKind::Email, "zoe@example.com").unwrap()]);
        let texts: Vec<(&str, &str)> = tables()
            .iter()
            .flat_map(|table| table.columns.iter().map(|column| (&*table.name, column)))
            .filter(|(_, column)| is_text(column.column_type))
            .map(|(table, column)| (table, column.name.as_str()))
            .collect();
        let mentioning = ROWS.div_ceil(3);
        let bytes = texts.len() * (mentioning * MENTIONS.len() + (ROWS - mentioning) * OTHERS.len());
        for threads in [1, 3] {
            let (_folder, engine) = filled(threads);
            let searched = search(&engine, &mut Plain, &finder, &[]).unwrap();
            let found: Vec<_> =
                searched.mentions.iter().map(|of| (of.table.as_str(), of.column.as_str(), of.rows)).collect();
            let all: Vec<_> = texts.iter().map(|(table, column)| (*table, *column, mentioning as u64)).collect();
            assert_eq!(found, all, "{threads} threads");
            assert_eq!((searched.rows, searched.bytes), ((tables().len() * ROWS) as u64, bytes as u64));
            assert_eq!(searched.inside_longer, 0);
        }
    }

    #[test]
    fn p9_a_table_that_cannot_be_read_is_an_error_and_not_a_table_without_mentions() {
        let finder = Finder::new(&[Identifier::read(IdentifierKind::Email, "zoe@example.com").unwrap()]);
        for threads in [1, 3] {
            let (_folder, engine) = filled(threads);
            engine.execute("drop a table", "DROP TABLE memory.main.responses").unwrap();
            assert!(search(&engine, &mut Plain, &finder, &[]).is_err(), "{threads} threads");
        }
    }
}
