//! What every command is handed.

use std::path::PathBuf;

use indicatif::MultiProgress;

use super::printer::Printer;

/// What the options before a command say, and where it speaks.
pub(super) struct Context {
    pub config: Option<PathBuf>,
    pub printer: Printer,
    pub bars: MultiProgress,
    pub is_quiet: bool,
}
