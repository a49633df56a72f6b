//! What every command is handed.

use std::{io::Write as _, path::PathBuf};

use indicatif::MultiProgress;

use super::printer::Printer;

/// What the options before a command say, and where it speaks.
pub(super) struct Context {
    pub config: Option<PathBuf>,
    pub printer: Printer,
    pub bars: MultiProgress,
    pub is_quiet: bool,
}

impl Context {
    /// Says something to people on stderr, unless they asked for quiet.
    pub fn tell(&self, text: &str) {
        if !self.is_quiet {
            // Without stderr there is nobody to be told.
            self.bars.suspend(|| std::io::stderr().write_all(text.as_bytes())).ok();
        }
    }
}
