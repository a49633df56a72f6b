//! The file that node_exporter's textfile collector reads: whole at every moment, and readable for everybody.

use std::{
    io::{self, Write as _},
    path::Path,
};

use crate::files::{Access, Output};

use super::Exposition;

/// Writes the metrics in the place of the file before.
/// The collector reads `*.prom` alone, so it never sees the file that is being written.
///
/// # Errors
/// The folder is missing, or cannot be written.
pub fn write_textfile(path: &Path, metrics: &Exposition) -> io::Result<()> {
    let suffix = format!(".{}.part", std::process::id());
    let mut output = Output::begin(path, &suffix, Access::Everybody)?;
    output.write_all(metrics.text().as_bytes())?;
    output.finish()
}
