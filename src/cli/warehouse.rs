//! Opens the configured warehouse for commands that only read.

use crate::{
    config::Settings,
    load::{LockPatience, Reader, ReaderLimits, WhileLocked},
    pipeline::{Memory, unknown_surveys},
};

use super::CommandError;

/// Opens the configured warehouses. While a run has the DuckDB file open, reads the complete copy for readers, or waits
/// as long as a run waits for readers. A copy without personal data would give other rows.
pub(super) fn open_reader(settings: &Settings, limits: ReaderLimits) -> Result<Reader, CommandError> {
    let warehouse = &settings.warehouse;
    let patience = LockPatience { wait: warehouse.lock_wait, ..LockPatience::default() };
    let while_locked = WhileLocked { copy: warehouse.publish.complete_copy().cloned(), patience };
    Ok(Reader::open_while_locked(&warehouse.locations, limits, &while_locked)?)
}

/// Opens the configured warehouses, and checks that they know every survey of `--survey`.
///
/// # Errors
/// No warehouse is configured or readable, or the warehouse does not know a survey. `purpose` completes the error
/// "there is nothing to ...".
pub(super) fn open_for_surveys(settings: &Settings, purpose: &str) -> Result<Reader, CommandError> {
    settings.require_warehouse()?;
    let limits = Memory::of(&settings.warehouse).reader_limits();
    let mut reader = open_reader(settings, limits)?;
    if !settings.surveys.is_empty()
        && let Some(unknown) = unknown_surveys(&mut reader, &settings.surveys)?
    {
        return Err(CommandError::Usage(format!("there is nothing to {purpose}: {unknown}")));
    }
    Ok(reader)
}
