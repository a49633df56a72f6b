//! The ledger, table `sync_windows`: the scans that were applied, with their counts.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{Array as _, ArrayRef, BooleanArray, RecordBatch},
    compute::filter_record_batch,
};

use super::{
    access::{add_rows, records_in, scan_keys},
    cells::{Cell, Row, RowBuilder},
};
use crate::{
    load::{
        LedgerEntry, LoadError, RowCounts,
        contract::contract,
        error::invalid_rows,
        scan::CountCorrection,
        store::{BufferedStore, Filter, TableChange, boolean_column, number_column, text_column, with_column},
    },
    model::{EndStyle, FlagSet, IntervalSet, Proof, Scan, ScanId, Scope, Stream, Window},
};

const TABLE: &str = "sync_windows";
const KEYS_CHECKED: &str = "keys_checked";

/// What the ledger says about scans and windows.
#[derive(Debug, Default)]
pub(in crate::load) struct KnownScans {
    ids: HashSet<ScanId>,
    /// Windows of which the latest scan withheld missing rows.
    withheld: HashMap<Scope, IntervalSet>,
}

impl KnownScans {
    /// Reads the ledger.
    pub fn read(store: &mut BufferedStore) -> Result<Self, LoadError> {
        let (mut known, mut has_withheld) = (Self::default(), false);
        store.read(contract(TABLE)?, &["scan_id", "withheld"], &Filter::all(), &mut |rows| {
            known.ids.extend(text_column(&rows, "scan_id")?.iter().flatten().map(|id| ScanId(id.to_owned())));
            has_withheld |= number_column(&rows, "withheld")?.iter().flatten().any(|withheld| withheld > 0);
            Ok(())
        })?;
        if has_withheld {
            let mut entries = entries(store)?;
            entries.sort_unstable_by(|left, right| left.scan.order().cmp(&right.scan.order()));
            entries.iter().for_each(|entry| known.note(&entry.scan, entry.withheld));
        }
        Ok(known)
    }

    /// Returns true if the scan is in the ledger.
    pub fn has(&self, scan: &ScanId) -> bool {
        self.ids.contains(scan)
    }

    /// Returns true if the ledger must have this scan even if it changes no row: it found the rows that the ledger says
    /// are withheld. A worker without a state file would scan the window again.
    pub fn must_record(&self, scan: &Scan, withheld: u64) -> bool {
        let is_in_window = |window: &Window| window.overlaps(scan.window);
        let found = self.withheld.get(&scan.scope);
        withheld == 0 && found.is_some_and(|windows| windows.windows().iter().any(is_in_window))
    }

    /// Adds a scan.
    pub fn add(&mut self, scan: &Scan, withheld: u64) {
        self.ids.insert(scan.id.clone());
        self.note(scan, withheld);
    }

    fn note(&mut self, scan: &Scan, withheld: u64) {
        match (withheld, self.withheld.get_mut(&scan.scope)) {
            (0, None) => {}
            (0, Some(windows)) => windows.remove(scan.window),
            _ => self.withheld.entry(scan.scope).or_default().insert(scan.window),
        }
    }
}

/// Returns the counts of an applied scan; `None` if the scan was not applied.
pub(in crate::load) fn counts_of(store: &mut BufferedStore, scan: &ScanId) -> Result<Option<RowCounts>, LoadError> {
    let scans = scan_keys([scan])?;
    Ok(records_in(store, contract(TABLE)?, &Filter::all().with_keys(&scans), counts)?.pop())
}

/// Returns all rows of the ledger, in no particular order. The windows are limited to the years 1 to 9999.
///
/// # Errors
/// `DamagedRows` if the ledger contains a stream that this program does not know.
pub(in crate::load) fn entries(store: &mut BufferedStore) -> Result<Vec<LedgerEntry>, LoadError> {
    records_in(store, contract(TABLE)?, &Filter::all(), entry)
}

/// Adds the ledger row of an applied scan. `proof` says how the scan proved its window complete.
pub(in crate::load) fn add(
    store: &mut BufferedStore,
    scan: &Scan,
    counts: &RowCounts,
    proof: Proof,
) -> Result<(), LoadError> {
    let table = contract(TABLE)?;
    let mut rows = RowBuilder::new(table);
    rows.add(|column| cell(column, scan, counts, proof))?;
    add_rows(store, table, rows.finish()?)
}

/// Corrects the counts of an applied scan. Returns the new counts; `None` if the ledger does not have the scan.
pub(in crate::load) fn correct(
    store: &mut BufferedStore,
    scan: &ScanId,
    correction: CountCorrection,
) -> Result<Option<RowCounts>, LoadError> {
    let (table, scans) = (contract(TABLE)?, scan_keys([scan])?);
    let read = |row: Row<'_>| Ok((entry(row)?, counts(row)?));
    let Some((entry, counts)) = records_in(store, table, &Filter::all().with_keys(&scans), read)?.pop() else {
        return Ok(None);
    };
    let counts = correction.of(&counts);
    let mut rows = RowBuilder::new(table);
    rows.add(|column| cell(column, &entry.scan, &counts, entry.proof))?;
    let rows = rows.finish()?;
    let mut change = TableChange::new(table);
    change.remove(&rows)?;
    change.add(rows);
    store.change(change)?;
    Ok(Some(counts))
}

/// Returns true if the ledger has a scan of responses by a version that did not compare keys over all windows.
pub(in crate::load) fn has_unchecked_keys(store: &mut BufferedStore) -> Result<bool, LoadError> {
    let mut has_unchecked = false;
    store.read(contract(TABLE)?, &["stream", KEYS_CHECKED], &Filter::all(), &mut |rows| {
        has_unchecked |= unchecked(&rows)?.true_count() > 0;
        Ok(())
    })?;
    Ok(has_unchecked)
}

/// Notes that the keys of all scans of responses were compared over all windows.
pub(in crate::load) fn mark_keys_checked(store: &mut BufferedStore) -> Result<(), LoadError> {
    let table = contract(TABLE)?;
    let mut change = TableChange::new(table);
    for rows in store.full_rows(table, &Filter::all())? {
        let rows = filter_record_batch(&rows, &unchecked(&rows)?).map_err(invalid_rows(table))?;
        let checked: ArrayRef = Arc::new(BooleanArray::from(vec![true; rows.num_rows()]));
        change.remove(&rows)?;
        change.add(with_column(&rows, KEYS_CHECKED, &checked)?);
    }
    store.change(change)
}

/// Returns, for each ledger row, true if it is a scan of responses whose keys were not compared over all windows.
fn unchecked(rows: &RecordBatch) -> Result<BooleanArray, LoadError> {
    let (streams, checked) = (text_column(rows, "stream")?, boolean_column(rows, KEYS_CHECKED)?);
    let is_unchecked = |row: usize| streams.value(row) == Stream::Responses.name() && checked.is_null(row);
    Ok((0..rows.num_rows()).map(is_unchecked).map(Some).collect())
}

/// Returns the value of a ledger column for a scan; NULL for an unknown column.
fn cell<'a>(column: &str, scan: &'a Scan, counts: &RowCounts, proof: Proof) -> Cell<'a> {
    match column {
        "scan_id" => Cell::Text(&scan.id.0),
        "stream" => Cell::Text(scan.scope.stream.name()),
        "survey_id" => Cell::integer_or_null(scan.scope.survey_id),
        "window_start" => Cell::at_ms(scan.window.start_ms),
        "window_end" => Cell::at_ms(scan.window.end_ms),
        "flags" => Cell::Integer(scan.flags.bits().into()),
        "scanned_at" | "_synced_at" => Cell::at_ms(scan.started_ms),
        KEYS_CHECKED => Cell::Boolean(true),
        "pages" => Cell::count(proof.pages),
        "end_style" => Cell::text_or_null(proof.end.map(EndStyle::name)),
        "_run_id" => Cell::Text(&scan.run_id.0),
        other => counts.named(other).map_or(Cell::Null, Cell::count),
    }
}

fn counts(row: Row<'_>) -> Result<RowCounts, LoadError> {
    RowCounts::read(|name| match name {
        // NULL in rows of versions that counted such rows as updated.
        "filled_in" => Ok(row.integer_or_null(name)?.map_or(0, i64::unsigned_abs)),
        _ => row.count(name),
    })
}

/// Reads a ledger row. Fails if the row names an unknown stream.
fn entry(row: Row<'_>) -> Result<LedgerEntry, LoadError> {
    let stream = row.text("stream")?;
    let unknown = |_| LoadError::DamagedRows(format!("the ledger names the unknown stream '{stream}'"));
    let stream: Stream = stream.parse().map_err(unknown)?;
    let scan = Scan {
        id: ScanId(row.text("scan_id")?.to_owned()),
        run_id: row.run_id("_run_id")?,
        scope: Scope { stream, survey_id: row.integer_or_null("survey_id")? },
        window: Window::new(row.moment_ms("window_start")?, row.moment_ms("window_end")?),
        flags: FlagSet::from_bits(u8::try_from(row.integer("flags")?).unwrap_or_default()),
        started_ms: row.moment_ms("scanned_at")?,
    };
    let proof = Proof {
        pages: row.integer_or_null("pages")?.map_or(0, i64::unsigned_abs),
        end: row.text_or_null("end_style")?.and_then(EndStyle::from_name),
    };
    Ok(LedgerEntry { scan, rows_read: row.count("rows_read")?, withheld: row.count("withheld")?, proof })
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixture::{memory, put},
        *,
    };
    use crate::model::RunId;

    fn scan(id: &str, stream: Stream, survey_id: Option<i64>) -> Scan {
        Scan {
            id: ScanId(id.into()),
            run_id: RunId("run".into()),
            scope: Scope { stream, survey_id },
            window: Window::new(-5, 1_772_366_400_123),
            flags: FlagSet::ALL,
            started_ms: 1_772_366_400_001,
        }
    }

    fn all_counts() -> RowCounts {
        RowCounts {
            rows_read: 1,
            inserted: 2,
            updated: 3,
            unchanged: 4,
            soft_deleted: 5,
            vanished: 6,
            withheld: 7,
            rejected: 8,
            collisions: 9,
            outside_window: 10,
            filled_in: 11,
        }
    }

    #[test]
    fn added_entries_are_read_back() {
        let (_shelf, mut store) = memory();
        let proof = Proof { pages: 3, end: Some(EndStyle::EmptyText) };
        let (first, second) = (scan("a", Stream::Responses, Some(4)), scan("b", Stream::Users, None));
        add(&mut store, &first, &all_counts(), proof).unwrap();
        store.commit("a").unwrap();
        add(&mut store, &second, &RowCounts::default(), Proof::default()).unwrap();
        let known = KnownScans::read(&mut store).unwrap();
        assert_eq!(known.ids, HashSet::from([first.id.clone(), second.id.clone()]));
        assert!(known.must_record(&scan("c", Stream::Responses, Some(4)), 0), "the ledger says that rows are withheld");
        assert!(!known.must_record(&scan("c", Stream::Responses, Some(4)), 7));
        assert!(!known.must_record(&scan("c", Stream::Responses, None), 0), "rows of another scope are withheld");
        assert_eq!(counts_of(&mut store, &first.id).unwrap(), Some(all_counts()));
        assert_eq!(counts_of(&mut store, &second.id).unwrap(), Some(RowCounts::default()));
        assert_eq!(counts_of(&mut store, &ScanId("c".into())).unwrap(), None);
        let mut found = entries(&mut store).unwrap();
        found.sort_by(|left, right| left.scan.id.cmp(&right.scan.id));
        let expected = [
            LedgerEntry { scan: first, rows_read: 1, withheld: 7, proof },
            LedgerEntry { scan: second, rows_read: 0, withheld: 0, proof: Proof::default() },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_latest_scan_says_if_rows_are_withheld() {
        let (_shelf, mut store) = memory();
        let (first, second) = (scan("a", Stream::Responses, None), scan("b", Stream::Responses, None));
        add(&mut store, &second, &RowCounts::default(), Proof::default()).unwrap();
        add(&mut store, &first, &all_counts(), Proof::default()).unwrap();
        assert!(!KnownScans::read(&mut store).unwrap().must_record(&scan("c", Stream::Responses, None), 0));
    }

    #[test]
    fn windows_are_limited_to_the_years_1_to_9999() {
        let (_shelf, mut store) = memory();
        let wide = Scan { window: Window::new(i64::MIN, i64::MAX), ..scan("a", Stream::Surveys, None) };
        add(&mut store, &wide, &RowCounts::default(), Proof::default()).unwrap();
        let window = entries(&mut store).unwrap()[0].scan.window;
        assert_eq!(window, Window::new(-62_135_596_800_000, 253_402_300_799_999));
    }

    #[test]
    fn an_unknown_stream_is_an_error() {
        let (_shelf, mut store) = memory();
        put(&mut store, TABLE, &[&[("scan_id", Cell::Text("a")), ("stream", Cell::Text("rivers"))]]);
        assert!(entries(&mut store).unwrap_err().to_string().contains("rivers"));
        assert_eq!(KnownScans::read(&mut store).unwrap().ids.len(), 1);
    }
}
