//! A range of creation time: built beside from the scans that touch it, and put into each warehouse in one transaction.
//!
//! Whole windows are replaced. A scan of another window may have touched the range's rows: at its edges (a row outside
//! its window is kept by key) and by the answers of one session, whose snapshot is one row. Such scans are built as
//! well, and only what they gave the range is taken.

use crate::{
    load::{FullTextSearch, LedgerEntry, Place, Replacement, Warehouse},
    model::{DAY_MS, Stream, Window, format_ms},
};

use super::{
    super::{
        PipelineError, System,
        assemble::{failed, opening},
        open_warehouses,
        recordings::tell_known,
    },
    build::{Around, build},
    inventory::{Archived, require_all},
    report::{Replaced, Replayed},
    step::KeptOut,
    swap::beside,
    task::Task,
};

/// How far a window's answers may reach into another: a session counts as over after seven days.
const REACH_MS: i64 = 7 * DAY_MS;

pub(super) fn replay(task: Task<'_>, asked: Window) -> Result<Replayed, PipelineError> {
    let mut replayed = Replayed::default();
    let mut warehouses = open_warehouses(task.settings, task.identity)?;
    let mut ledgers = Vec::new();
    for warehouse in &mut warehouses {
        let name = warehouse.name();
        ledgers.push((name, warehouse.ledger().map_err(failed(name))?));
        // The files are free while the range is built.
        warehouse.publish().map_err(failed(name))?;
    }
    let streams = task.settings.streams.iter().map(|stream| stream.stream).filter(|stream| stream.is_windowed());
    for stream in streams {
        let Some(window) = whole_windows(stream, asked, &task.scans, &ledgers) else { continue };
        let reach = Window::new(window.start_ms.saturating_sub(REACH_MS), window.end_ms.saturating_add(REACH_MS));
        let touching: Vec<Archived> = (task.scans.iter())
            .filter(|archived| archived.scan.scope.stream == stream && archived.scan.window.overlaps(reach))
            .cloned()
            .collect();
        for (name, ledger) in &ledgers {
            let is_touching =
                |entry: &&LedgerEntry| entry.scan.scope.stream == stream && entry.scan.window.overlaps(reach);
            require_all(name, ledger.iter().filter(is_touching), &task.scans)?;
        }
        let scans = touching.iter().filter(|archived| archived.scan.window.overlaps(window));
        let what = Replacement { stream, window, scans: scans.map(|archived| archived.scan.id.clone()).collect() };
        let Some(mut built) = build_range(&task, &touching)? else {
            replayed.is_stopped = true;
            return Ok(replayed);
        };
        replayed.scans += touching.len() as u64;
        let mut rows = std::collections::BTreeMap::new();
        for warehouse in &mut warehouses {
            let name = warehouse.name();
            let put_in = warehouse.replace(&mut built, &what).map_err(failed(name))?;
            tell_known(warehouse, &task.settings.recordings)?;
            warehouse.publish().map_err(failed(name))?;
            rows.insert(name, put_in);
        }
        let (start, end) = (format_ms(window.start_ms), format_ms(window.end_ms));
        replayed.stretches.push(Replaced { stream: stream.name(), start, end, rows });
    }
    if replayed.stretches.is_empty() {
        replayed.notes.push("no scan of the archive touches this range".to_owned());
    }
    for warehouse in &mut warehouses {
        let name = warehouse.name();
        warehouse.export_reader_copy().map_err(failed(name))?;
    }
    drop(warehouses);
    super::clear_leftovers(task.settings)?;
    Ok(replayed)
}

/// The range with every window that overlaps it, and every window that overlaps those; `None` if there is none.
fn whole_windows(
    stream: Stream,
    asked: Window,
    scans: &[Archived],
    ledgers: &[(&'static str, Vec<LedgerEntry>)],
) -> Option<Window> {
    let held = ledgers.iter().flat_map(|(_, ledger)| ledger).map(|entry| &entry.scan);
    let known = scans.iter().map(|archived| &archived.scan).chain(held);
    let mut windows: Vec<Window> = known.filter(|scan| scan.scope.stream == stream).map(|scan| scan.window).collect();
    windows.sort();
    windows.dedup();
    let mut whole: Option<Window> = None;
    let mut reached = asked;
    // Each round takes in at least one more window, or is the last.
    loop {
        let met = windows.iter().filter(|window| window.overlaps(reached));
        let grown = met.fold(whole, |whole, window| {
            let whole = whole.unwrap_or(*window);
            Some(Window::new(whole.start_ms.min(window.start_ms), whole.end_ms.max(window.end_ms)))
        });
        if grown == whole {
            return whole;
        }
        whole = grown;
        reached = whole.unwrap_or(asked);
    }
}

/// Builds the scans into a DuckDB file beside the checkpoints. `None`: it was asked to stop.
fn build_range(task: &Task<'_>, scans: &[Archived]) -> Result<Option<Warehouse>, PipelineError> {
    super::clear_leftovers(task.settings)?;
    let place =
        Place::DuckDb { path: beside(&task.settings.state_path), copy: None, search: FullTextSearch::default() };
    let opening = opening(task.settings, task.identity, &System::default());
    let range = place.open(&opening, None).map_err(failed("replayed"))?;
    let open = || Ok((vec![range], ()));
    let around = Around { warehouses: 1, open, complete: |range: &mut Warehouse, _: &()| range.publish() };
    let kept_out = KeptOut { drift: task.settings.drift, suppression: task.suppression };
    let built = build(scans, kept_out, around, task.account, task.stop, task.progress)?;
    Ok(built.and_then(|(stretches, ())| stretches.into_iter().next()))
}
