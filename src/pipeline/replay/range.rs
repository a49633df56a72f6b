//! Replay of a range of creation time: builds the range from the scans that touch it, and replaces the range in each
//! warehouse in one transaction.
//!
//! Only complete windows are replaced, so the range may grow. Scans of other windows may have changed rows of the
//! range: rows at the border of a window, and the snapshot of a session with answers in both windows. Such scans are
//! built, too, but only their rows inside the range are copied.

use std::collections::BTreeMap;

use crate::{
    load::{LedgerEntry, Place, Replacement, Warehouse, WarehouseOptions, build_path},
    model::{DAY_MS, Scan, Stream, WarehouseKind, Window, format_ms},
    pipeline::{
        assemble::{System, clear_leftovers, failed, open_warehouses, opening},
        error::PipelineError,
        session::Session,
        sync::recordings::apply_known_outcomes,
    },
};

use super::{
    build::{BuildPlan, ReplayContext, build},
    inventory::{ArchivedScan, require_all},
    report::{ReplacedRange, ReplayResult},
};

/// The assumed maximum length of a session. Scans of windows at most this far from the range may have changed sessions
/// with answers in the range.
const SESSION_LEN_MAX_MS: i64 = 7 * DAY_MS;

/// Replaces the requested range, extended to complete windows, in every warehouse, one stream after the other. If the
/// replay is stopped, streams that were replaced before stay replaced. Fails and changes nothing if the archive lacks a
/// scan of the range.
pub(super) fn replay(context: ReplayContext<'_>, requested: Window) -> Result<ReplayResult, PipelineError> {
    let Session { settings, identity, .. } = context.session;
    let mut replayed = ReplayResult::default();
    let mut warehouses = open_warehouses(settings, identity)?;
    let mut ledgers = Vec::new();
    for warehouse in &mut warehouses {
        let name = warehouse.name();
        ledgers.push((name, warehouse.ledger().map_err(failed(name))?));
        // Publishing releases the files while the range is built.
        warehouse.publish().map_err(failed(name))?;
    }
    // All streams are checked before the first one is replaced.
    let streams = settings.streams.iter().map(|stream| stream.stream).filter(|stream| stream.is_windowed());
    let ranges = streams.filter_map(|stream| stream_range(stream, requested, &context.scans, &ledgers).transpose());
    for StreamRange { stream, window, scans } in ranges.collect::<Result<Vec<_>, _>>()? {
        let replaced = scans.iter().filter(|archived| archived.scan.window.overlaps(window));
        let replacement =
            Replacement { stream, window, scans: replaced.map(|archived| archived.scan.id.clone()).collect() };
        let Some(mut built) = build_range(&context, &scans)? else {
            replayed.is_stopped = true;
            return Ok(replayed);
        };
        replayed.scans += scans.len() as u64;
        let mut rows = BTreeMap::new();
        context.progress.enter("replacing the range");
        for warehouse in &mut warehouses {
            let name = warehouse.name();
            let inserted = warehouse.replace(&mut built, &replacement).map_err(failed(name))?;
            apply_known_outcomes(warehouse, &settings.recordings)?;
            warehouse.publish().map_err(failed(name))?;
            rows.insert(name, inserted);
        }
        let (start, end) = (format_ms(window.start_ms), format_ms(window.end_ms));
        replayed.stretches.push(ReplacedRange { stream: stream.name(), start, end, rows });
    }
    if replayed.stretches.is_empty() {
        replayed.notes.push("no scan of the archive touches this range".to_owned());
    }
    for warehouse in &mut warehouses {
        let name = warehouse.name();
        warehouse.export_reader_copy().map_err(failed(name))?;
    }
    drop(warehouses);
    clear_leftovers(settings)?;
    Ok(replayed)
}

/// The range of one stream, and the scans to build.
struct StreamRange {
    stream: Stream,
    window: Window,
    /// The scans that may have changed rows inside the window: also scans of other windows close to it.
    scans: Vec<ArchivedScan>,
}

/// Returns the range of a stream to replace, or `None` if no scan overlaps it. Fails if the archive lacks a scan.
fn stream_range(
    stream: Stream,
    requested: Window,
    archived: &[ArchivedScan],
    ledgers: &[(&'static str, Vec<LedgerEntry>)],
) -> Result<Option<StreamRange>, PipelineError> {
    let Some(window) = complete_windows(stream, requested, archived, ledgers) else { return Ok(None) };
    let reach = Window::new(
        window.start_ms.saturating_sub(SESSION_LEN_MAX_MS),
        window.end_ms.saturating_add(SESSION_LEN_MAX_MS),
    );
    let is_touching = |scan: &Scan| scan.scope.stream == stream && scan.window.overlaps(reach);
    for (name, ledger) in ledgers {
        require_all(name, ledger.iter().filter(|entry| is_touching(&entry.scan)), archived)?;
    }
    let scans = archived.iter().filter(|archived| is_touching(&archived.scan)).cloned().collect();
    Ok(Some(StreamRange { stream, window, scans }))
}

/// Extends a range until it has no part of a scanned window without the whole window. Returns `None` if no scanned
/// window of the stream overlaps the range.
fn complete_windows(
    stream: Stream,
    requested: Window,
    scans: &[ArchivedScan],
    ledgers: &[(&'static str, Vec<LedgerEntry>)],
) -> Option<Window> {
    let in_ledgers = ledgers.iter().flat_map(|(_, ledger)| ledger).map(|entry| &entry.scan);
    let all = scans.iter().map(|archived| &archived.scan).chain(in_ledgers);
    let mut windows: Vec<Window> = all.filter(|scan| scan.scope.stream == stream).map(|scan| scan.window).collect();
    windows.sort();
    windows.dedup();
    let mut complete: Option<Window> = None;
    loop {
        let range = complete.unwrap_or(requested);
        let overlapping = windows.iter().filter(|window| window.overlaps(range));
        let extended = overlapping.fold(complete, |complete, window| {
            let complete = complete.unwrap_or(*window);
            Some(Window::new(complete.start_ms.min(window.start_ms), complete.end_ms.max(window.end_ms)))
        });
        if extended == complete {
            return complete;
        }
        complete = extended;
    }
}

/// Builds the scans into a new DuckDB file next to the state file. Returns `None` if the replay was stopped.
fn build_range(context: &ReplayContext<'_>, scans: &[ArchivedScan]) -> Result<Option<Warehouse>, PipelineError> {
    let Session { settings, identity, .. } = context.session;
    clear_leftovers(settings)?;
    let path = build_path(&settings.state_path);
    let place = Place { kind: WarehouseKind::DuckDb, location: path.into(), options: WarehouseOptions::default() };
    let opening = opening(settings, identity, &System::default());
    let range = place.open(&opening, None).map_err(failed("replayed"))?;
    let open = || Ok((vec![range], ()));
    let begin = |_: &mut Warehouse, _: &()| Ok(());
    let plan = BuildPlan { warehouses: 1, open, begin, complete: |range: &mut Warehouse, _: &()| range.publish() };
    let built = build(context, scans, plan)?;
    Ok(built.and_then(|(warehouses, ())| warehouses.into_iter().next()))
}
