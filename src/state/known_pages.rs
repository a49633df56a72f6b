//! What the pages of the last scan of each window come to, so that a page which comes again as it was need not be read again.
//!
//! A memory of a function: what is lost of it costs time, and it says nothing of any warehouse.

use rusqlite::{Row, Transaction, params};

use crate::model::{Digest, Scan};

use super::{State, StateError, stored_survey};

/// Bytes of a stored hash.
const HASH_BYTES: usize = 16;
/// Bytes of a record at the edge.
const EDGE_BYTES: usize = HASH_BYTES + size_of::<i64>();

/// A page of which every record was placed, and nothing was left to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPage {
    /// A hash of the list of records, as it was sent.
    pub page: u128,
    /// What its records come to.
    pub digest: Digest,
    /// The creation time of its last record, epoch milliseconds; `None` if it has none.
    pub last_ms: Option<i64>,
    /// The records of that millisecond, by the hash of the key and that of the content.
    pub edge: Vec<(u128, i64)>,
    /// A millisecond that several of its records share.
    pub tie_ms: Option<i64>,
}

impl State {
    /// The pages of the last scan of the window that begins as the scan's does. `reader` stands for whatever a page is read by: what others
    /// read is not known.
    pub fn known_pages(&self, scan: &Scan, reader: i64) -> Result<Vec<KnownPage>, StateError> {
        let sql = "SELECT records, sum, last_ms, edge, tie_ms, page FROM known_pages \
                   WHERE stream = ?1 AND survey_id = ?2 AND start_ms = ?3 AND reader = ?4";
        let mut statement = self.connection.prepare_cached(sql).map_err(self.failed("read"))?;
        let (stream, survey) = (scan.scope.stream.name(), stored_survey(scan.scope.survey_id));
        let pages = statement.query_map(params![stream, survey, scan.window.start_ms, reader], known_page_of);
        pages.and_then(Iterator::collect).map_err(self.failed("read"))
    }
}

/// Forgets all of them: the next scans read each page again.
pub(super) fn forget_all(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM known_pages", []).map(drop)
}

/// Puts the pages of a scan in the place of those of the scans before it.
pub(super) fn know(
    transaction: &Transaction<'_>,
    scan: &Scan,
    reader: i64,
    pages: &[KnownPage],
) -> rusqlite::Result<()> {
    let (stream, survey) = (scan.scope.stream.name(), stored_survey(scan.scope.survey_id));
    // Windows that begin inside this one were other cuts of it.
    transaction
        .prepare_cached(
            "DELETE FROM known_pages WHERE stream = ?1 AND survey_id = ?2 AND start_ms >= ?3 AND start_ms < ?4",
        )?
        .execute((stream, survey, scan.window.start_ms, scan.window.end_ms))?;
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO known_pages (stream, survey_id, start_ms, page, reader, records, sum, last_ms, edge, tie_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for KnownPage { page, digest, last_ms, edge, tie_ms } in pages {
        let edge: Vec<u8> =
            edge.iter().flat_map(|(key, row)| key.to_be_bytes().into_iter().chain(row.to_be_bytes())).collect();
        let records = i64::try_from(digest.records).unwrap_or(i64::MAX);
        let (page, sum) = (page.to_be_bytes(), digest.sum.to_be_bytes());
        insert.execute(params![
            stream,
            survey,
            scan.window.start_ms,
            page,
            reader,
            records,
            sum,
            last_ms,
            edge,
            tie_ms
        ])?;
    }
    Ok(())
}

fn known_page_of(row: &Row<'_>) -> rusqlite::Result<KnownPage> {
    let (records, sum, page): (i64, [u8; HASH_BYTES], [u8; HASH_BYTES]) = (row.get(0)?, row.get(1)?, row.get(5)?);
    let edge: Vec<u8> = row.get(3)?;
    let edge = edge.as_chunks::<EDGE_BYTES>().0.iter().filter_map(|record| {
        let (key, row) = record.split_first_chunk()?;
        Some((u128::from_be_bytes(*key), i64::from_be_bytes(row.try_into().ok()?)))
    });
    let edge = edge.collect();
    let digest = Digest { records: records.unsigned_abs(), sum: u128::from_be_bytes(sum) };
    Ok(KnownPage { page: u128::from_be_bytes(page), digest, last_ms: row.get(2)?, edge, tie_ms: row.get(4)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FlagSet, Proof, RunId, ScanId, Scope, Stream, Window};
    use crate::state::Covered;

    fn page(page: u128) -> KnownPage {
        let digest = Digest { records: 1000, sum: u128::MAX - page };
        KnownPage { page, digest, last_ms: Some(-5), edge: vec![(page, i64::MIN), (u128::MAX, 3)], tie_ms: Some(-7) }
    }

    fn scan(start_ms: i64, end_ms: i64) -> Scan {
        Scan {
            id: ScanId::new(start_ms),
            run_id: RunId::new(1),
            scope: Scope::all(Stream::Responses),
            window: Window::new(start_ms, end_ms),
            flags: FlagSet::ALL,
            started_ms: 5_000,
        }
    }

    #[test]
    fn a_page_is_known_by_its_reader_in_its_window_until_another_scan_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(&folder.path().join("state.sqlite"), "http://127.0.0.1:1", "test").unwrap();
        let checkpoint = |state: &mut State, scan: &Scan, pages: &[KnownPage]| {
            let covered = Covered { scan: scan.clone(), scanned_ms: 5_000, rows: 1, proof: Proof::default() };
            state.checkpoint_with_pages(&covered, &[], 7, pages).unwrap();
        };
        let (day, later) = (scan(0, 1000), scan(1000, 2000));
        let find = |state: &State, scan: &Scan, reader: i64, hash: u128| {
            state.known_pages(scan, reader).unwrap().into_iter().find(|known| known.page == hash)
        };
        checkpoint(&mut state, &day, &[page(1), page(2), page(2)]);
        checkpoint(&mut state, &later, &[page(3)]);
        assert_eq!(find(&state, &day, 7, 2), Some(page(2)));
        assert_eq!(find(&state, &day, 8, 2), None, "another reader knows it");
        assert_eq!(find(&state, &day, 7, 3), None, "a page of another window is known");
        let survey = Scan { scope: Scope { stream: Stream::Responses, survey_id: Some(4) }, ..day.clone() };
        assert_eq!(find(&state, &survey, 7, 2), None, "a page of another scope is known");

        checkpoint(&mut state, &day, &[page(1)]);
        assert_eq!(find(&state, &day, 7, 1), Some(page(1)));
        assert_eq!(find(&state, &day, 7, 2), None, "a page that did not come again is known");
        assert_eq!(find(&state, &later, 7, 3), Some(page(3)));
        checkpoint(&mut state, &scan(0, 3000), &[]);
        assert_eq!(find(&state, &later, 7, 3), None, "a window that is cut otherwise keeps its pages");

        checkpoint(&mut state, &day, &[page(1)]);
        state.forget_people(["somebody"].into_iter()).unwrap();
        assert_eq!(find(&state, &day, 7, 1), None, "a person's hashes are left");
    }
}
