//! Cuts the rows of a partition into slices that can be sorted in memory, one after the other.
//!
//! The engine's sort spills, but what it needs at least grows with the rows, and then it fails. The rows are therefore weighed
//! first, by survey and hour, and sorted a slice at a time; slices follow each other in the order of the file. Only tables whose
//! order begins with one column and the creation time are cut: all that can become large are.

use super::relation::Sources;
use crate::{
    load::{Engine, LoadError},
    schema::{ColumnType, Table, quote_identifier},
};

/// Bytes that the engine needs to sort a row, apart from its texts: pointers, lengths, the sort key.
const ROW_BYTES: u64 = 512;

/// Bytes of rows that are gathered at once, over all who sort. To sort them takes as much again, outside of the engine's limit.
const GATHERED_BYTES_MAX: u64 = 192 * 1024 * 1024;

/// How much is sorted at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct SortLimits {
    /// So few rows are sorted at once without being weighed.
    pub(super) rows_unweighed: u64,
    /// A slice takes at most so many bytes, unless it is a single hour of a single survey.
    pub(super) slice_bytes_max: u64,
    /// Rows of so many bytes are sorted in memory, where they are all that a partition has: see [`super::gather`].
    pub(super) gathered_bytes_max: u64,
}

impl SortLimits {
    /// For an engine with so much memory. A quarter of it leaves room for the rows that are read and written meanwhile.
    pub(super) fn for_memory(memory_limit_bytes: u64) -> Self {
        let slice_bytes_max = memory_limit_bytes / 4;
        let gathered_bytes_max = slice_bytes_max.min(GATHERED_BYTES_MAX);
        Self { rows_unweighed: 50_000, slice_bytes_max, gathered_bytes_max }
    }

    /// The same memory, for so many who sort at the same time.
    pub(super) fn shared_by(self, workers: usize) -> Self {
        let workers = u64::try_from(workers).unwrap_or(u64::MAX).max(1);
        let share = |bytes: u64| bytes / workers;
        Self {
            slice_bytes_max: share(self.slice_bytes_max),
            gathered_bytes_max: share(self.gathered_bytes_max),
            ..self
        }
    }
}

/// Where one slice ends and the next one begins: a survey, and a moment in epoch microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    survey_id: Option<i64>,
    at_us: i64,
}

/// The rows as one `SELECT` for each slice, in the order in which they belong into the file. Their own order is not yet made.
pub(super) fn selects(
    engine: &Engine,
    table: &'static Table,
    sources: &Sources<'_>,
    limits: SortLimits,
) -> Result<Vec<String>, LoadError> {
    let all = sources.select_sql();
    let Some((first, second)) = leading_columns(table) else { return Ok(vec![all]) };
    if sources.rows_max() <= limits.rows_unweighed {
        return Ok(vec![all]);
    }
    let cuts = cuts(engine, table, &all, (&first, &second), limits.slice_bytes_max)?;
    let ends = cuts.iter().copied().map(Some).chain([None]);
    let starts = [None].into_iter().chain(cuts.iter().copied().map(Some));
    Ok(starts.zip(ends).map(|(from, to)| slice_sql(&all, (&first, &second), from, to)).collect())
}

/// The first two columns of the order, if the second one is what the table is partitioned by.
fn leading_columns(table: &Table) -> Option<(String, String)> {
    let (first, second) = (table.sort.first()?, table.sort.get(1)?);
    let is_number = table.column(first)?.column_type == ColumnType::Bigint;
    (is_number && table.partition.as_ref() == Some(second)).then(|| (quote_identifier(first), quote_identifier(second)))
}

/// Weighs the rows and says where to cut. What is kept in memory is a number for each survey and hour.
fn cuts(
    engine: &Engine,
    table: &Table,
    all: &str,
    (first, second): (&str, &str),
    slice_bytes_max: u64,
) -> Result<Vec<Cut>, LoadError> {
    let failed = |source| LoadError::engine(format!("weigh {}", table.name), source);
    let texts = table.columns.iter().filter(|column| matches!(column.column_type, ColumnType::Text | ColumnType::Json));
    let texts: String =
        texts.map(|column| format!(" + coalesce(strlen({}), 0)", quote_identifier(&column.name))).collect();
    let sql = format!(
        "SELECT {first}, epoch_us(date_trunc('hour', {second})) AS at_us, CAST(sum({ROW_BYTES}{texts}) AS BIGINT)
         FROM ({all}) GROUP BY ALL ORDER BY {first} NULLS FIRST, at_us"
    );
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let cells = statement
        .query_map([], |row| Ok((Cut { survey_id: row.get(0)?, at_us: row.get(1)? }, row.get::<_, i64>(2)?)))
        .map_err(failed)?;
    let (mut cuts, mut slice_bytes) = (Vec::new(), 0);
    for cell in cells {
        let (cut, bytes) = cell.map_err(failed)?;
        let bytes = bytes.unsigned_abs();
        if slice_bytes > 0 && slice_bytes + bytes > slice_bytes_max {
            cuts.push(cut);
            slice_bytes = 0;
        }
        slice_bytes += bytes;
    }
    Ok(cuts)
}

fn slice_sql(all: &str, (first, second): (&str, &str), from: Option<Cut>, to: Option<Cut>) -> String {
    let mut conditions = Vec::new();
    if let Some(Cut { survey_id, at_us }) = from {
        let later = format!("{second} >= make_timestamp({at_us})");
        conditions.push(match survey_id {
            // The plain comparison says nothing new, but it can be held against the statistics of files.
            Some(id) => format!("{first} >= {id} AND ({first} > {id} OR {later})"),
            None => format!("({first} IS NOT NULL OR {later})"),
        });
    }
    if let Some(Cut { survey_id, at_us }) = to {
        let earlier = format!("{second} < make_timestamp({at_us})");
        conditions.push(match survey_id {
            Some(id) => format!("({first} IS NULL OR {first} < {id} OR ({first} = {id} AND {earlier}))"),
            None => format!("({first} IS NULL AND {earlier})"),
        });
        let begins_with_a_survey = from.is_some_and(|from| from.survey_id.is_some());
        if let (true, Some(id)) = (begins_with_a_survey, survey_id) {
            conditions.push(format!("{first} <= {id}"));
        }
    }
    if conditions.is_empty() {
        return all.to_owned();
    }
    format!("SELECT * FROM ({all}) WHERE {}", conditions.join(" AND "))
}
