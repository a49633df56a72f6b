//! Opens the configured warehouse for commands that only read.

use crate::{
    config::{Settings, WarehouseSettings},
    load::{LoadError, Reader, ReaderLimits},
    pipeline::{Memory, unknown_surveys},
};

use super::CommandError;

/// Returns the limits of a reader that the configuration sets.
pub(super) fn reader_limits(warehouse: &WarehouseSettings) -> ReaderLimits {
    ReaderLimits { memory_bytes: Memory::of(warehouse).reader, ..ReaderLimits::default() }
}

/// Opens the configured warehouses with these limits.
pub(super) fn open_reader(warehouse: &WarehouseSettings, limits: ReaderLimits) -> Result<Reader, LoadError> {
    Reader::open_limited(&warehouse.paths, limits)
}

/// Opens the configured warehouses, and checks that they know every survey of `--survey`.
///
/// # Errors
/// No warehouse is configured or readable, or the warehouse does not know a survey. `purpose` completes the error
/// "there is nothing to ...".
pub(super) fn open_for_surveys(settings: &Settings, purpose: &str) -> Result<Reader, CommandError> {
    settings.require_warehouse()?;
    let mut reader = open_reader(&settings.warehouse, reader_limits(&settings.warehouse))?;
    if !settings.surveys.is_empty()
        && let Some(unknown) = unknown_surveys(&mut reader, &settings.surveys)?
    {
        return Err(CommandError::Usage(format!("there is nothing to {purpose}: {unknown}")));
    }
    Ok(reader)
}
