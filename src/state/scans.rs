//! Scans that were begun and are not committed: how far they came.

use rusqlite::params;

use crate::model::{DurableStep, FlagSet, PageToken, RunId, Scan, ScanId, Scope, Stream, Window};

use super::{State, StateError, loaded_survey, stored_survey};

/// A scan under way. Its pages are in the archive;
/// the archive leads, and what stands here is what it held when it was last made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderWay {
    pub scan: Scan,
    /// The page size that it uses; a restart after a time-out begins with it.
    pub page_rows: u32,
    /// Durable pages.
    pub pages: u64,
    /// Records on them.
    pub rows: u64,
    /// Where to go on after them.
    pub next_page_token: Option<PageToken>,
}

impl State {
    /// Remembers a scan before its first request.
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
        self.connection.execute(sql, row).map_err(self.failed("write"))?;
        Ok(())
    }

    /// Remembers how far a scan's durable pages reach.
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
        let counts = (i64::try_from(pages).unwrap_or(i64::MAX), i64::try_from(rows).unwrap_or(i64::MAX));
        self.connection
            .execute(sql, params![scan.0, page_rows, counts.0, counts.1, next.map(|token| &token.0)])
            .map_err(self.failed("write"))?;
        Ok(())
    }

    /// Forgets a scan that will not be committed.
    pub fn forget_scan(&self, scan: &ScanId) -> Result<(), StateError> {
        self.hit(DurableStep::ScanForgotten)?;
        self.connection.execute("DELETE FROM scans WHERE scan_id = ?1", [&scan.0]).map_err(self.failed("write"))?;
        Ok(())
    }

    /// The scans under way, oldest first.
    pub fn scans_under_way(&self) -> Result<Vec<UnderWay>, StateError> {
        let sql = "SELECT scan_id, run_id, stream, survey_id, start_ms, end_ms, flags, started_ms, page_rows, pages, rows_read, \
                   next_page_token FROM scans ORDER BY scan_id";
        let mut statement = self.connection.prepare(sql).map_err(self.failed("read"))?;
        let mut rows = statement.query([]).map_err(self.failed("read"))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(self.failed("read"))? {
            found.push(self.scan_of(row)?);
        }
        Ok(found)
    }

    fn scan_of(&self, row: &rusqlite::Row<'_>) -> Result<UnderWay, StateError> {
        let stream: String = row.get(2).map_err(self.failed("read"))?;
        let stream: Stream = stream.parse().map_err(|what| StateError::Unreadable { path: self.path.clone(), what })?;
        let read = || -> rusqlite::Result<UnderWay> {
            let scan = Scan {
                id: ScanId(row.get(0)?),
                run_id: RunId(row.get(1)?),
                scope: Scope { stream, survey_id: loaded_survey(row.get(3)?) },
                window: Window::new(row.get(4)?, row.get(5)?),
                flags: FlagSet::from_bits(row.get(6)?),
                started_ms: row.get(7)?,
            };
            let (pages, rows): (i64, i64) = (row.get(9)?, row.get(10)?);
            Ok(UnderWay {
                scan,
                page_rows: row.get(8)?,
                pages: pages.unsigned_abs(),
                rows: rows.unsigned_abs(),
                next_page_token: row.get::<_, Option<String>>(11)?.map(PageToken),
            })
        };
        read().map_err(self.failed("read"))
    }
}
