//! Where a command's data goes: stdout, or a file that is put in place when it is whole.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use super::{CommandError, printer::Printer};

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

/// Writes to the file, or to stdout without one. A file is written beside its place and renamed at the end: whoever looks sees
/// the old one or the whole new one.
pub(super) fn write_to<T>(
    file: Option<&Path>,
    printer: &Printer,
    write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>,
) -> Result<T, CommandError> {
    let Some(path) = file else { return printer.write_made(write) };
    let failed = |source| CommandError::failed(format!("cannot write {}", path.display()), source);
    let partial = beside(path);
    let written = write_file(&partial, write).map_err(|error| match error {
        WriteError::Made(error) => error,
        WriteError::Taken(source) => failed(source),
    });
    let placed = written.and_then(|value| std::fs::rename(&partial, path).map(|()| value).map_err(failed));
    if placed.is_err() {
        std::fs::remove_file(&partial).ok();
    }
    placed
}

fn write_file<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>) -> Result<T, WriteError> {
    let mut out = BufWriter::new(File::create(path)?);
    let value = write(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(value)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
