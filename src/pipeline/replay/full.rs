//! Every table: each warehouse is built beside the old one from all that the archive holds, and takes its place.
//!
//! Every warehouse gets every archived scan, also one that an old warehouse was left out of: what comes out is what all
//! of them would hold had they taken part in every run.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{
    archive::Archive,
    config::Settings,
    flatten::flatten_stored_events,
    load::{ErasureRecord, Identity, LedgerEntry, LoadError, RunRecord, Warehouse},
    model::{IntervalSet, RunId, ScanId},
    state::RunEntry,
};

use super::{
    super::{
        PipelineError,
        assemble::{failed, places},
        commit::covered,
        open_warehouses,
        recordings::tell_known,
    },
    build::{Around, Warehouses, build},
    inventory::{Archived, require_all},
    report::{Rebuilt, Replayed},
    step::KeptOut,
    swap::{beside, swap_file, swap_folder},
    task::Task,
};

/// How the names of those files end in which an earlier version carried events from one warehouse to the next.
const CARRIED: &str = "-events.parquet";
/// Runs, or receipts, that are written at once.
const RECORDS_AT_ONCE: usize = 200;
/// Runs of the history that are looked through: all that the checkpoints keep.
const RUNS_MAX: u32 = 1000;

pub(super) fn replay(task: Task<'_>, archive: &Archive) -> Result<Replayed, PipelineError> {
    let mut replayed = Replayed { scans: task.scans.len() as u64, ..Replayed::default() };
    let kept_out = KeptOut { drift: task.settings.drift, suppression: task.suppression };
    let around =
        Around { warehouses: task.settings.warehouse.names().len(), open: || open(&task), complete: carry_over };
    let built = build(&task.scans, kept_out, around, task.account, task.stop, task.progress)?;
    let Some((mut fresh, left)) = built else {
        replayed.is_stopped = true;
        return Ok(replayed);
    };
    drop(left);
    let mut ledgers = BTreeMap::new();
    for destination in &mut fresh {
        let name = destination.name();
        ledgers.insert(name, destination.ledger().map_err(failed(name))?);
        tell_known(destination, &task.settings.recordings)?;
        destination.publish().map_err(failed(name))?;
    }
    drop(fresh);
    let Task { settings, identity, state, scans, .. } = task;
    // Before the swap: a kill in between must not leave checkpoints that count more than the new warehouses prove.
    fit_coverage(state, &scans, &ledgers, &mut replayed)?;
    take_their_place(settings)?;
    for (name, ledger) in &ledgers {
        let location = location_of(settings, name);
        let ids: HashSet<&ScanId> = ledger.iter().map(|entry| &entry.scan.id).collect();
        let known = state.destination(name)?.and_then(|known| known.last_scan_id);
        let last = known.as_ref().filter(|last| ids.contains(last)).or_else(|| ids.iter().max().copied());
        state.remember_destination(name, &location, last)?;
        replayed.warehouses.push(Rebuilt { name, location, ledger_scans: ledger.len() as u64 });
    }
    let names: Vec<&str> = ledgers.keys().copied().collect();
    state.caught_up(&names)?;
    for archived in scans.iter().filter(|archived| archived.is_under_way) {
        finish(state, archive, archived, &ledgers)?;
    }
    if settings.warehouse.publish.is_some() {
        for mut destination in open_warehouses(settings, identity)? {
            let name = destination.name();
            destination.export_reader_copy().map_err(failed(name))?;
        }
    }
    Ok(replayed)
}

/// Looks through the old warehouses, and makes the new ones:
/// a DuckDB file as a clone of the old one, with all that analysts keep in it.
fn open(task: &Task<'_>) -> Result<(Warehouses, BTreeMap<&'static str, Left>), PipelineError> {
    let aside = built_beside(task.settings);
    let mut left = leave_old(task, &aside)?;
    let fresh = open_warehouses(&aside, task.identity)?;
    for name in task.settings.warehouse.names() {
        if !left.contains_key(name) {
            left.insert(name, Left { runs: remembered_runs(task)?, ..Left::default() });
        }
    }
    Ok((fresh, left))
}

/// What a warehouse knows and the archive does not.
#[derive(Default)]
struct Left {
    runs: Vec<RunRecord>,
    receipts: Vec<ErasureRecord>,
    /// The warehouse itself: its events, and what others keep in it, go to the new one.
    old: Option<Old>,
}

/// A warehouse whose place another one is to take. It is closed.
struct Old {
    warehouse: Mutex<Warehouse>,
    path: PathBuf,
}

/// Brings what the old warehouse knew into the new one, and publishes it.
fn carry_over(destination: &mut Warehouse, left: &BTreeMap<&'static str, Left>) -> Result<(), LoadError> {
    let left = left.get(destination.name());
    let Left { runs, receipts, old } =
        left.ok_or_else(|| LoadError::Bug(format!("nothing was asked of {}", destination.name())))?;
    if let Some(old) = old {
        let mut old = old.warehouse.lock().unwrap_or_else(PoisonError::into_inner);
        destination.copy_events(&mut old, &flatten_stored_events)?;
        old.publish()?;
    }
    runs.chunks(RECORDS_AT_ONCE).try_for_each(|runs| destination.record_runs(runs))?;
    receipts.chunks(RECORDS_AT_ONCE).try_for_each(|receipts| destination.record_erasures(receipts))?;
    if let Some(old) = old {
        destination.import_foreign(&old.path)?;
    }
    destination.publish()
}

/// Whether a killed replay of an earlier version left this file: events on their way from one warehouse to the next.
pub fn is_carried_events(path: &Path) -> bool {
    path.to_string_lossy().ends_with(CARRIED)
}

/// Looks at the warehouses that are there, and closes them: whether the archive holds all that they hold, which runs
/// they know, and what webhooks told, which is in no archive.
fn leave_old(task: &Task<'_>, aside: &Settings) -> Result<BTreeMap<&'static str, Left>, PipelineError> {
    // One that cannot be reached is no missing one: opening it says why.
    let is_there = |path: &Path| path.try_exists().unwrap_or(true);
    let mut there = task.settings.clone();
    there.warehouse.duckdb = there.warehouse.duckdb.filter(|path| is_there(path));
    there.warehouse.parquet = there.warehouse.parquet.filter(|path| is_there(path));
    let mut left = BTreeMap::new();
    if there.require_warehouse().is_err() {
        return Ok(left);
    }
    for mut destination in open_warehouses(&there, task.identity)? {
        let name = destination.name();
        require_all(name, &destination.ledger().map_err(failed(name))?, &task.scans)?;
        let runs = destination.runs().map_err(failed(name))?;
        let receipts = destination.erasures().map_err(failed(name))?;
        let of = |settings: &Settings| places(&settings.warehouse).into_iter().find(|place| place.name() == name);
        let (old, fresh) =
            of(&there).zip(of(aside)).ok_or_else(|| PipelineError::WorkerPanicked(format!("the place of {name}")))?;
        destination.create_empty_at(fresh.path()).map_err(failed(name))?;
        // Nothing may be left in a log beside the file that is going to be replaced.
        destination.publish().map_err(failed(name))?;
        let old = Old { warehouse: Mutex::new(destination), path: old.path().to_owned() };
        left.insert(name, Left { runs, receipts, old: Some(old) });
    }
    Ok(left)
}

/// The same settings, with each warehouse where it is built.
fn built_beside(settings: &Settings) -> Settings {
    let mut aside = settings.clone();
    aside.warehouse.duckdb = aside.warehouse.duckdb.as_deref().map(beside);
    aside.warehouse.parquet = aside.warehouse.parquet.as_deref().map(beside);
    aside
}

fn take_their_place(settings: &Settings) -> Result<(), PipelineError> {
    settings.warehouse.duckdb.as_deref().map_or(Ok(()), swap_file)?;
    settings.warehouse.parquet.as_deref().map_or(Ok(()), swap_folder)
}

fn location_of(settings: &Settings, name: &str) -> String {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = match name {
        "duckdb" => settings.warehouse.duckdb.clone(),
        _ => settings.warehouse.parquet.as_deref().map(canonical),
    };
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// The runs that a lost warehouse will have known: those of the history that ended, and may have written.
fn remembered_runs(task: &Task<'_>) -> Result<Vec<RunRecord>, PipelineError> {
    let entries = task.state.runs(RUNS_MAX)?;
    Ok(entries.into_iter().filter_map(|entry| run_record(entry, task.identity)).collect())
}

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

/// The coverage stays as it is where the archive proves it.
/// Else it becomes what the new ledgers prove, and the next sync pulls the rest.
fn fit_coverage(
    state: &mut crate::state::State,
    scans: &[Archived],
    ledgers: &BTreeMap<&'static str, Vec<LedgerEntry>>,
    replayed: &mut Replayed,
) -> Result<(), PipelineError> {
    let scopes = state.covered_scopes()?;
    let mut unproven_ms = 0;
    for scope in &scopes {
        let of_scope = scans.iter().filter(|archived| archived.scan.scope == *scope);
        let archived: IntervalSet = of_scope.map(|archived| archived.scan.window).collect();
        for segment in state.coverage(*scope)? {
            let gaps = if scope.stream.is_windowed() { archived.gaps_in(segment.window) } else { Vec::new() };
            unproven_ms += gaps.iter().map(|gap| gap.len_ms()).sum::<i64>();
        }
    }
    let Some(ledger) = ledgers.values().next() else { return Ok(()) };
    let is_lost = scopes.is_empty() && !ledger.is_empty();
    if unproven_ms == 0 && !is_lost {
        return Ok(());
    }
    let entries: Vec<_> =
        ledger.iter().map(|entry| covered(&entry.scan, entry.rows_read, entry.withheld > 0, entry.proof)).collect();
    let begun: Vec<_> = ledger.iter().map(|entry| (entry.scan.scope, entry.scan.window.start_ms)).collect();
    let names: Vec<&str> = ledgers.keys().copied().collect();
    state.rebuild_coverage(&entries, &[], &begun, &names)?;
    replayed.has_gaps = unproven_ms > 0;
    replayed.notes.push(match is_lost {
        true => format!("the checkpoints knew of nothing; they now count the {} scans of the new ledger", ledger.len()),
        false => "the archive does not prove all that the checkpoints counted; they now count what it proves, and the next sync \
                  pulls the rest"
            .to_owned(),
    });
    Ok(())
}

/// The end of a commit that was cut short before the replay.
fn finish(
    state: &mut crate::state::State,
    archive: &Archive,
    archived: &Archived,
    ledgers: &BTreeMap<&'static str, Vec<LedgerEntry>>,
) -> Result<(), PipelineError> {
    let scan = &archived.scan;
    let entry_of = |ledger: &Vec<LedgerEntry>| ledger.iter().find(|entry| entry.scan.id == scan.id).cloned();
    let entries: Vec<_> = ledgers.iter().map(|(name, ledger)| (*name, entry_of(ledger))).collect();
    let taken_by: Vec<(&str, bool)> = entries.iter().map(|(name, entry)| (*name, entry.is_some())).collect();
    let Some(entry) = entries.into_iter().find_map(|(_, entry)| entry) else {
        // It changes nothing, and tells nothing that the archive does not hold already: the next run looks again.
        return Ok(());
    };
    archive.archive_spool(scan)?;
    let covered = covered(scan, entry.rows_read, entry.withheld > 0, entry.proof);
    Ok(state.checkpoint(&covered, &taken_by)?)
}
