//! Writes the file that node_exporter's textfile collector reads. The file is replaced atomically and readable for
//! every user.

use std::{
    io::{self, Write as _},
    path::Path,
};

use crate::files::{Access, Output};

use super::MetricValues;

/// Replaces the file by a file with these metrics. The collector reads only `*.prom`, so it ignores the temporary file.
///
/// # Errors
/// The folder is missing, or cannot be written.
pub fn write_textfile(path: &Path, values: &MetricValues) -> io::Result<()> {
    let suffix = format!(".{}.part", std::process::id());
    let mut output = Output::begin(path, &suffix, Access::Everybody)?;
    output.write_all(values.text().as_bytes())?;
    output.finish()
}
