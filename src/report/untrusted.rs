//! The rows of the view `untrusted`: what is known against the data.

use super::rows::{Row, query};
use crate::{
    load::{LoadError, Reader},
    model::{Untrusted, format_ms},
};

/// Maximum rows that are read.
const ROWS_MAX: usize = 1000;

/// Returns what is known against the data, the newest range first within a reason; at most 1,000 rows. Empty for a
/// warehouse of an earlier version, which lacks the view until the next run.
///
/// # Errors
/// The warehouse cannot be read.
pub fn untrusted(reader: &mut Reader) -> Result<Vec<Untrusted>, LoadError> {
    let exists = "SELECT count(*) AS views FROM duckdb_views() WHERE view_name = 'untrusted'";
    let sql = format!(
        "SELECT reason, stream, survey_id, epoch_ms(range_start) AS start_ms, epoch_ms(range_end) AS end_ms, records,
             epoch_ms(found_at) AS found_ms, detail
         FROM untrusted ORDER BY reason, stream, range_start DESC, survey_id, detail LIMIT {ROWS_MAX}"
    );
    let moment = |row: Row<'_>, name: &str| row.integer(name).map(format_ms);
    let make = |row: Row<'_>| Untrusted {
        reason: row.text("reason").unwrap_or_default(),
        stream: row.text("stream"),
        survey_id: row.integer("survey_id"),
        range_start: moment(row, "start_ms"),
        range_end: moment(row, "end_ms"),
        records: row.integer("records"),
        found_at: moment(row, "found_ms"),
        detail: row.text("detail").unwrap_or_default(),
    };
    match query(reader, &sql, make) {
        // Views over Parquet files are created when a statement names them, so only the failure asks for the view.
        Err(error) if query(reader, exists, |row| row.count("views"))?.first() != Some(&0) => Err(error),
        found => Ok(found.unwrap_or_default()),
    }
}
