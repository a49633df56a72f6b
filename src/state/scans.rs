//! Stores the unfinished scans: how many durable pages each scan has, and which page is next.

use rusqlite::{Row, params};

use crate::model::{DurableStep, FlagSet, PageToken, RunId, Scan, ScanId, Scope, Stream, Window};

use super::{State, StateError, loaded_survey, stored_count, stored_survey};

/// A scan that has begun and has no checkpoint yet. The spool has the scan's pages, perhaps more than `pages`, because
/// not every page updates the row of the scan in this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedScan {
    pub scan: Scan,
    /// Page size of the last request. A run that resumes the scan begins with this size.
    pub page_rows: u32,
    /// Number of durable pages.
    pub pages: u64,
    /// Number of records on the durable pages.
    pub rows: u64,
    /// Token of the page after the durable pages. `None` before the first page and after the last one.
    pub next_page_token: Option<PageToken>,
}

impl State {
    /// Records a scan before its first request.
    pub fn begin_scan(&self, scan: &Scan, page_rows: u32) -> Result<(), StateError> {
        self.hit(DurableStep::ScanBegun)?;
        let sql = "INSERT INTO scans (scan_id, run_id, stream, survey_id, start_ms, end_ms, flags, started_ms, page_rows) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let Scan { id, run_id, scope, window, flags, started_ms } = scan;
        let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
        let row = params![
            id.0,
            run_id.0,
            stream,
            survey,
            window.start_ms,
            window.end_ms,
            flags.bits(),
            started_ms,
            page_rows
        ];
        self.database.execute(sql, row).map(drop)
    }

    /// Stores the page size, the numbers of durable pages and rows, and the token of the page after them. `next` is
    /// `None` after the last page of the list.
    pub fn advance_scan(
        &self,
        scan: &ScanId,
        page_rows: u32,
        pages: u64,
        rows: u64,
        next: Option<&PageToken>,
    ) -> Result<(), StateError> {
        self.hit(DurableStep::ScanAdvanced)?;
        let sql =
            "UPDATE scans SET page_rows = ?2, pages = ?3, rows_read = ?4, next_page_token = ?5 WHERE scan_id = ?1";
        let next = next.map(|token| &token.0);
        self.database.execute(sql, (&scan.0, page_rows, stored_count(pages), stored_count(rows), next)).map(drop)
    }

    /// Deletes the row of a scan that will not be committed.
    pub fn forget_scan(&self, scan: &ScanId) -> Result<(), StateError> {
        self.hit(DurableStep::ScanForgotten)?;
        self.database.execute("DELETE FROM scans WHERE scan_id = ?1", [&scan.0]).map(drop)
    }

    /// Returns the unfinished scans, oldest first.
    pub fn unfinished_scans(&self) -> Result<Vec<UnfinishedScan>, StateError> {
        let sql = "SELECT scan_id, run_id, stream, survey_id, start_ms, end_ms, flags, started_ms, page_rows, pages, rows_read, \
                   next_page_token FROM scans ORDER BY scan_id";
        let mut statement = self.database.connection.prepare(sql).map_err(self.database.failed("read"))?;
        let mut rows = statement.query([]).map_err(self.database.failed("read"))?;
        let mut scans = Vec::new();
        while let Some(row) = rows.next().map_err(self.database.failed("read"))? {
            let stream: String = row.get(2).map_err(self.database.failed("read"))?;
            scans.push(read_scan(row, self.parse_stream(&stream)?).map_err(self.database.failed("read"))?);
        }
        Ok(scans)
    }
}

/// Reads a scan from a row of the table `scans`.
fn read_scan(row: &Row<'_>, stream: Stream) -> rusqlite::Result<UnfinishedScan> {
    let count = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
    Ok(UnfinishedScan {
        scan: Scan {
            id: ScanId(row.get(0)?),
            run_id: RunId(row.get(1)?),
            scope: Scope { stream, survey_id: loaded_survey(row.get(3)?) },
            window: Window::new(row.get(4)?, row.get(5)?),
            flags: FlagSet::from_bits(row.get(6)?),
            started_ms: row.get(7)?,
        },
        page_rows: row.get(8)?,
        pages: count(9)?,
        rows: count(10)?,
        next_page_token: row.get::<_, Option<String>>(11)?.map(PageToken),
    })
}
