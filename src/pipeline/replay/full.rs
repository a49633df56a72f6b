//! Full replay: rebuilds every table of every warehouse from the archive. The new warehouse is built next to the old
//! one, and replaces it at the end.
//!
//! Every warehouse gets every archived scan, also scans that the old warehouse missed. The result is the same as if
//! each warehouse had taken part in every run.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::{
    archive::Archive,
    config::Settings,
    flatten::flatten_stored_events,
    load::{ErasureRecord, Identity, LedgerEntry, LoadError, RunRecord, Warehouse, build_path},
    model::{IntervalSet, Location, RunId, ScanId},
    pipeline::{
        assemble::{System, existing_warehouses, failed, open_warehouses, opening, places},
        error::PipelineError,
        scan::commit::checkpoint_of_entry,
        session::Session,
        sync::recordings::apply_known_outcomes,
    },
    state::{RunEntry, State},
    wording::counted,
};

use super::{
    build::{BuildPlan, ReplayContext, build},
    inventory::{ArchivedScan, require_all},
    report::{RebuiltWarehouse, ReplayResult},
};

/// Suffix of the files in which an earlier version of the program kept events during a replay.
const EVENTS_SUFFIX: &str = "-events.parquet";
/// Number of runs or receipts that are written at a time.
const RECORDS_AT_ONCE: usize = 200;
/// The maximum number of runs that are read from the history. The checkpoints keep no more.
const RUNS_MAX: u32 = 1000;

/// Rebuilds every warehouse of the settings, fits the coverage to the new ledgers, and replaces the old warehouses. If
/// the replay is stopped, changes nothing and says so in the result.
pub(super) fn replay(context: ReplayContext<'_>, archive: &Archive) -> Result<ReplayResult, PipelineError> {
    let Session { settings, identity, .. } = context.session;
    let mut replayed = ReplayResult { scans: context.scans.len() as u64, ..ReplayResult::default() };
    let plan = BuildPlan {
        warehouses: settings.warehouse.names().len(),
        open: || open(&context),
        begin: copy_events,
        complete: copy_unarchived,
    };
    let Some((mut rebuilt, unarchived)) = build(&context, &context.scans, plan)? else {
        replayed.is_stopped = true;
        return Ok(replayed);
    };
    drop(unarchived);
    context.progress.enter("publishing");
    let mut ledgers = BTreeMap::new();
    for destination in &mut rebuilt {
        let name = destination.name();
        ledgers.insert(name, destination.ledger().map_err(failed(name))?);
        apply_known_outcomes(destination, &settings.recordings)?;
        destination.publish().map_err(failed(name))?;
    }
    drop(rebuilt);
    let (mut state, scans) = (context.session.state(), context.scans);
    // The coverage changes before the swap: after a kill in between, the checkpoints must not cover more than the new
    // warehouses have.
    fit_coverage(&mut state, &scans, &ledgers, &mut replayed)?;
    context.progress.enter("replacing the warehouses");
    let places = places(&settings.warehouse);
    let opening = opening(settings, identity, &System::default());
    let archived = scans.iter().map(|archived| &archived.scan.id).collect();
    places.iter().try_for_each(|place| place.replace(&opening, &archived).map_err(failed(place.name())))?;
    for place in &places {
        let (name, location) = (place.name(), place.address());
        let Some(ledger) = ledgers.get(name) else { continue };
        let ids: HashSet<&ScanId> = ledger.iter().map(|entry| &entry.scan.id).collect();
        let known = state.destination(name)?.and_then(|known| known.last_scan_id);
        let last = known.as_ref().filter(|last| ids.contains(last)).or_else(|| ids.iter().max().copied());
        state.remember_destination(name, &location, last)?;
        replayed.warehouses.push(RebuiltWarehouse { name, location, ledger_scans: ledger.len() as u64 });
    }
    let names: Vec<&str> = ledgers.keys().copied().collect();
    state.mark_up_to_date(&names)?;
    for archived in scans.iter().filter(|archived| archived.is_unfinished) {
        finish_commit(&mut state, archive, archived, &ledgers)?;
    }
    if !settings.warehouse.publish.paths.is_empty() {
        context.progress.enter("writing the copy for readers");
        for mut destination in open_warehouses(settings, identity)? {
            let name = destination.name();
            destination.export_reader_copy().map_err(failed(name))?;
        }
    }
    Ok(replayed)
}

/// Reads the data that the archive lacks from the old warehouses, and creates the new warehouses. A lost warehouse gets
/// the runs in the history of the checkpoints.
fn open(context: &ReplayContext<'_>) -> Result<(Vec<Warehouse>, Unarchived), PipelineError> {
    let Session { settings, identity, .. } = context.session;
    let mut unarchived = read_unarchived(context)?;
    let new_settings = settings_of_build(settings);
    let rebuilt = open_warehouses(&new_settings, identity)?;
    for name in settings.warehouse.names() {
        if !unarchived.contains_key(name) {
            unarchived
                .insert(name, UnarchivedData { runs: runs_of_history(context.session)?, ..UnarchivedData::default() });
        }
    }
    Ok((rebuilt, unarchived))
}

/// The unarchived data of each warehouse, by its name.
type Unarchived = BTreeMap<&'static str, UnarchivedData>;

/// The data of a warehouse that no archive has.
#[derive(Default)]
struct UnarchivedData {
    runs: Vec<RunRecord>,
    /// The receipts of erasures.
    receipts: Vec<ErasureRecord>,
    /// The old warehouse, from which webhook events and objects of other programs are copied. `None` if it is lost.
    old: Option<OldWarehouse>,
}

/// A closed warehouse that will be replaced.
struct OldWarehouse {
    warehouse: Mutex<Warehouse>,
    location: Location,
}

/// Copies the webhook events of the old warehouse into a new one. Does nothing without an old warehouse.
fn copy_events(destination: &mut Warehouse, unarchived: &Unarchived) -> Result<(), LoadError> {
    if let Some(old) = &data_of(destination, unarchived)?.old {
        let mut old = old.warehouse.lock().unwrap_or_else(PoisonError::into_inner);
        destination.copy_events(&mut old, &flatten_stored_events)?;
        old.publish()?;
    }
    Ok(())
}

/// Copies the other unarchived data into a new warehouse: runs, receipts of erasures, and users' tables and indexes.
/// Publishes the new warehouse. Without an old warehouse, copies only runs and receipts.
fn copy_unarchived(destination: &mut Warehouse, unarchived: &Unarchived) -> Result<(), LoadError> {
    let UnarchivedData { runs, receipts, old } = data_of(destination, unarchived)?;
    runs.chunks(RECORDS_AT_ONCE).try_for_each(|runs| destination.record_runs(runs))?;
    receipts.chunks(RECORDS_AT_ONCE).try_for_each(|receipts| destination.record_erasures(receipts))?;
    // The tables of users in a catalog stay where they are.
    if let Some(old) = old.as_ref().filter(|old| old.location.catalog.is_none()) {
        destination.import_foreign(&old.location.path)?;
    }
    destination.publish()
}

fn data_of<'a>(destination: &Warehouse, unarchived: &'a Unarchived) -> Result<&'a UnarchivedData, LoadError> {
    let name = destination.name();
    unarchived.get(name).ok_or_else(|| LoadError::Bug(format!("no unarchived data of {name}")))
}

/// Returns true for a file with events that a killed replay of an earlier version of the program left.
pub fn is_carried_events(path: &Path) -> bool {
    path.to_string_lossy().ends_with(EVENTS_SUFFIX)
}

/// Reads the unarchived data of the warehouses that exist, and closes them. Checks that the archive has all their
/// scans.
fn read_unarchived(context: &ReplayContext<'_>) -> Result<Unarchived, PipelineError> {
    let mut existing = context.session.settings.clone();
    existing.warehouse.locations = existing_warehouses(&existing.warehouse);
    let mut unarchived = BTreeMap::new();
    if existing.require_warehouse().is_err() {
        return Ok(unarchived);
    }
    let opened = open_warehouses(&existing, &context.session.identity)?;
    for (mut destination, location) in opened.into_iter().zip(existing.warehouse.locations.into_values()) {
        let name = destination.name();
        require_all(name, &destination.ledger().map_err(failed(name))?, &context.scans)?;
        let runs = destination.runs().map_err(failed(name))?;
        let receipts = destination.erasures().map_err(failed(name))?;
        destination.create_empty_at(&build_path(&location.path)).map_err(failed(name))?;
        // Publishing empties the log: the swap refuses a file with a log.
        destination.publish().map_err(failed(name))?;
        let old = OldWarehouse { warehouse: Mutex::new(destination), location };
        unarchived.insert(name, UnarchivedData { runs, receipts, old: Some(old) });
    }
    Ok(unarchived)
}

/// Returns the settings with the path at which each warehouse is built, instead of the path of the warehouse.
fn settings_of_build(settings: &Settings) -> Settings {
    let mut new_settings = settings.clone();
    for location in new_settings.warehouse.locations.values_mut() {
        *location = build_path(&location.path).into();
    }
    new_settings
}

fn runs_of_history(session: &Session) -> Result<Vec<RunRecord>, PipelineError> {
    let entries = session.state().runs(RUNS_MAX)?;
    Ok(entries.into_iter().filter_map(|entry| run_record(entry, &session.identity)).collect())
}

/// Returns the row about a run. Returns `None` for a run that writes no rows or has not finished.
fn run_record(entry: RunEntry, identity: &Identity) -> Option<RunRecord> {
    let writes = matches!(entry.command.as_str(), "sync" | "backfill" | "users pull" | "wake");
    let finished_ms = entry.finished_ms.filter(|_| writes)?;
    Some(RunRecord {
        run_id: RunId(entry.run_id),
        command: entry.command,
        outcome: entry.outcome.unwrap_or_default(),
        exit_code: entry.exit_code.unwrap_or_default(),
        started_ms: entry.started_ms,
        finished_ms,
        base_url: identity.base_url.clone(),
        environment: identity.environment.clone(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        report: entry.report.unwrap_or_default(),
    })
}

/// Rebuilds the coverage from the new ledgers, if the archive lacks scans of covered windows or the coverage was lost.
/// Adds a note to the result. The next sync pulls windows that are no longer covered.
fn fit_coverage(
    state: &mut State,
    scans: &[ArchivedScan],
    ledgers: &BTreeMap<&'static str, Vec<LedgerEntry>>,
    replayed: &mut ReplayResult,
) -> Result<(), PipelineError> {
    let scopes = state.covered_scopes()?;
    let mut unproven_ms = 0;
    for scope in &scopes {
        let of_scope = scans.iter().filter(|archived| archived.scan.scope == *scope);
        let archived: IntervalSet = of_scope.map(|archived| archived.scan.window).collect();
        for interval in state.coverage(*scope)? {
            let gaps = if scope.stream.is_windowed() { archived.gaps_in(interval.window) } else { Vec::new() };
            unproven_ms += gaps.iter().map(|gap| gap.len_ms()).sum::<i64>();
        }
    }
    let Some(ledger) = ledgers.values().next() else { return Ok(()) };
    let is_lost = scopes.is_empty() && !ledger.is_empty();
    if unproven_ms == 0 && !is_lost {
        return Ok(());
    }
    let checkpoints: Vec<_> = ledger.iter().map(checkpoint_of_entry).collect();
    let extents: Vec<_> = ledger.iter().map(|entry| (entry.scan.scope, entry.scan.window.start_ms)).collect();
    let names: Vec<&str> = ledgers.keys().copied().collect();
    state.rebuild_coverage(&checkpoints, &[], &extents, &names)?;
    replayed.has_gaps = unproven_ms > 0;
    replayed.notes.push(match is_lost {
        true => format!("the checkpoints knew of nothing; they now count {} of the new ledger", counted(ledger.len() as u64, "scan")),
        false => "the archive does not prove all that the checkpoints counted; they now count what it proves, and the next sync \
                  pulls the rest"
            .to_owned(),
    });
    Ok(())
}

/// Finishes a commit that a kill interrupted before the replay: archives the spool, and stores the checkpoint. If no
/// ledger has the scan, does nothing, and the next run commits the scan.
fn finish_commit(
    state: &mut State,
    archive: &Archive,
    archived: &ArchivedScan,
    ledgers: &BTreeMap<&'static str, Vec<LedgerEntry>>,
) -> Result<(), PipelineError> {
    let scan = &archived.scan;
    let entry_of = |ledger: &Vec<LedgerEntry>| ledger.iter().find(|entry| entry.scan.id == scan.id).cloned();
    let entries: Vec<_> = ledgers.iter().map(|(name, ledger)| (*name, entry_of(ledger))).collect();
    let warehouses: Vec<(&str, bool)> = entries.iter().map(|(name, entry)| (*name, entry.is_some())).collect();
    let Some(entry) = entries.into_iter().find_map(|(_, entry)| entry) else { return Ok(()) };
    archive.archive_spools([scan])?;
    Ok(state.checkpoint(&checkpoint_of_entry(&entry), &warehouses)?)
}
