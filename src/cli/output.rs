//! Where a command's data goes: stdout, or a file that is put in place when it is whole.

use std::{
    io::{self, Write},
    path::Path,
};

use super::{CommandError, printer::Printer};
use crate::files::{Access, Output};

/// Why data was not written to its end: its maker failed, or its taker did.
#[derive(Debug)]
pub(super) enum WriteError {
    Made(CommandError),
    Taken(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        WriteError::Taken(error)
    }
}

/// Writes to the file, or to stdout without one. A regular file is written beside its place and renamed at the end:
/// readers see the old file or the whole new one. `access` is that of a new file; an existing file keeps its own.
pub(super) fn write_to<T>(
    file: Option<&Path>,
    access: Access,
    printer: &Printer,
    write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>,
) -> Result<T, CommandError> {
    let Some(path) = file else { return printer.write_made(write) };
    write_file(path, access, write).map_err(|error| match error {
        WriteError::Made(error) => error,
        // Whoever reads a pipe may have enough, as with stdout.
        WriteError::Taken(source) if source.kind() == io::ErrorKind::BrokenPipe => CommandError::PipeClosed,
        WriteError::Taken(source) => CommandError::failed(format!("cannot write {}", path.display()), source),
    })
}

fn write_file<T>(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    let mut out = Output::begin(path, &format!(".{}.part", std::process::id()), access)?;
    let value = write(&mut out)?;
    out.finish()?;
    Ok(value)
}
