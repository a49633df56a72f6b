//! Ends the suppression of erased people, so that runs store their records again: [`end_suppression`]. The people may
//! have signed up again, or the service will never purge them.

use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    EraseError,
    apply::{record_erasures, require_known_warehouses, require_paths},
    error::in_each,
    journal::Journals,
};
use crate::{
    config::Settings,
    load::Warehouse,
    model::format_ms,
    person::{EndedSuppression, SuppressionList},
    pipeline::{self, Session, System},
};

/// The erasures whose suppression ended, as a whole or in part.
#[derive(Clone, Debug, Serialize)]
pub struct EndReport {
    /// True if nothing was changed.
    pub dry_run: bool,
    pub ended: Vec<EndedSuppression>,
}

/// Ends the suppression of the people with these ids: of erasures, or identifiers of people. Sends nothing, and blocks
/// the thread. With `dry_run`, only returns what would end.
///
/// The steps are in the order in which a kill loses nothing: the receipts say that the suppression ended, the windows
/// with records that were left out become due again, and the suppression ends. The same call repeats the steps.
///
/// # Errors
/// An id names nobody who is suppressed, or an erasure is unfinished. Then nothing is changed.
pub fn end_suppression(
    settings: &Settings,
    ids: &[String],
    dry_run: bool,
    stop: &CancellationToken,
) -> Result<EndReport, EraseError> {
    let identity = pipeline::identity(settings)?;
    settings.require_warehouse()?;
    require_paths(settings)?;
    let session = Session::open(settings, &identity, "erase", &System::default())?;
    require_known_warehouses(settings, &session.state())?;
    let folder = settings.erasures_folder();
    // Opened first, because the list may then get the people of other machines.
    let mut warehouses = if dry_run { Vec::new() } else { session.warehouses(stop, None)? };
    let mut list = SuppressionList::read(&folder)?;
    let ended = list.end(ids).map_err(EraseError::NotSuppressed)?;
    let journals = Journals::new(&folder, list.key()?, session.system.failpoints.clone());
    for end in &ended {
        if journals.is_unfinished(&end.erasure_id)? {
            let why =
                format!("the erasure {} was interrupted: repeat its command first, which resumes it", end.erasure_id);
            return Err(EraseError::Names(why));
        }
    }
    let report = EndReport { dry_run, ended };
    if dry_run {
        return Ok(report);
    }
    session.begin_run()?;
    write_receipts(&session, &mut warehouses, &report)?;
    for end in &report.ended {
        require_rescans(&session, end)?;
    }
    list.write()?;
    session.finish_run("done", 0, &serde_json::to_string(&report).unwrap_or_default())?;
    Ok(report)
}

/// Adds the end of the suppression to the receipts: to their files, and to the tables if nobody of the erasure stays
/// suppressed.
fn write_receipts(session: &Session, warehouses: &mut [Warehouse], report: &EndReport) -> Result<(), EraseError> {
    let now_ms = session.now_ms();
    for end in &report.ended {
        let path = session.settings.erasures_folder().join(format!("{}.json", end.erasure_id));
        let note = json!({
            "at": format_ms(now_ms),
            "run_id": session.run_id,
            "identifiers": end.identifiers,
            "identifiers_left": end.left,
        });
        pipeline::edit_receipt_file(&path, |receipt| {
            let notes = receipt.entry("suppression_ended").or_insert_with(|| json!([]));
            notes.as_array_mut().into_iter().for_each(|notes| notes.push(note.clone()));
        })
        .map_err(EraseError::io("write", &path))?;
    }
    let is_over = |id: &str| report.ended.iter().any(|end| end.erasure_id == id && end.left == 0);
    in_each(warehouses, |warehouse| {
        let mut records = warehouse.erasures()?;
        records.retain(|record| is_over(&record.erasure_id));
        records.iter_mut().for_each(|record| record.suppression_ended_ms = Some(now_ms));
        record_erasures(warehouse, &records)
    })
    .map(drop)
}

/// Makes the windows due again in which scans may have left out records of the people.
fn require_rescans(session: &Session, end: &EndedSuppression) -> Result<(), EraseError> {
    let mut state = session.state();
    for scope in state.covered_scopes()? {
        for window in end.windows.get(&scope.stream).into_iter().flatten() {
            state.mark_for_recheck(scope, *window)?;
        }
    }
    Ok(())
}
