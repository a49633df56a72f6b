//! Opens the configured warehouse for commands that only read.

use crate::{
    config::Settings,
    load::Reader,
    pipeline::{Memory, unknown_surveys},
};

use super::CommandError;

/// Opens the configured warehouses, and checks that they know every survey of `--survey`.
///
/// # Errors
/// No warehouse is configured or readable, or the warehouse does not know a survey. `purpose` completes the error
/// "there is nothing to ...".
pub(super) fn open_for_surveys(settings: &Settings, purpose: &str) -> Result<Reader, CommandError> {
    settings.require_warehouse()?;
    let limits = Memory::of(&settings.warehouse).reader_limits();
    let mut reader = Reader::open_limited(&settings.warehouse.paths, limits)?;
    if !settings.surveys.is_empty()
        && let Some(unknown) = unknown_surveys(&mut reader, &settings.surveys)?
    {
        return Err(CommandError::Usage(format!("there is nothing to {purpose}: {unknown}")));
    }
    Ok(reader)
}
