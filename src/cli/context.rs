//! The values that every command gets.

use std::path::PathBuf;

use indicatif::MultiProgress;
use serde::Serialize;

use super::{
    CommandError,
    printer::{Printer, write_stderr},
};

/// The global options of the command line, and the outputs for data and messages.
pub(super) struct Context {
    /// The file of `--config`.
    pub config: Option<PathBuf>,
    pub printer: Printer,
    /// The progress line on stderr; hidden if stderr is not a terminal.
    pub progress: MultiProgress,
    pub is_quiet: bool,
}

impl Context {
    /// Writes a message for people to stderr, unless `--quiet` is set.
    pub fn message(&self, text: &str) {
        if !self.is_quiet {
            self.progress.suspend(|| write_stderr(text));
        }
    }

    /// Reports a run that has ended: its summary as a message, and with `--json` also the report on stdout.
    pub fn report<T: Serialize>(
        &self,
        is_json: bool,
        report: &T,
        summary: impl FnOnce(&T) -> String,
    ) -> Result<(), CommandError> {
        self.print_json(is_json, report)?;
        self.message(&summary(report));
        Ok(())
    }

    /// Prints a report as JSON if `is_json` is set.
    pub fn print_json(&self, is_json: bool, report: &impl Serialize) -> Result<(), CommandError> {
        if is_json { Ok(self.printer.print_json(report)?) } else { Ok(()) }
    }
}
