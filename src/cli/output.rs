//! Writes the data of a command to a file that is replaced atomically, or to stdout.

use std::{io::Write, path::Path};

use super::{
    CommandError,
    printer::{Printer, WriteError},
};
use crate::files::{Access, Output};

/// Calls `write` with the file, or with stdout if there is no file, and returns its value.
///
/// A regular file is written under another name next to its path, and renamed when it is complete. So readers see
/// either the old file or the new one. `access` applies to a new file; an existing file keeps its access rights.
pub(super) fn write_to<T>(
    file: Option<&Path>,
    access: Access,
    printer: &Printer,
    write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>,
) -> Result<T, CommandError> {
    let Some(path) = file else { return printer.write(write) };
    let write_file = || -> Result<T, WriteError> {
        let mut out = Output::begin(path, &format!(".{}.part", std::process::id()), access)?;
        let value = write(&mut out)?;
        out.finish()?;
        Ok(value)
    };
    write_file().map_err(|error| error.into_command_error(&path.display().to_string()))
}
