//! Writes data to stdout or to a file that is replaced atomically, and messages to stderr. No other file of the program
//! writes to stdout. Also the values that every command gets, and words and numbers in the output of several commands.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use indicatif::MultiProgress;
use serde::Serialize;

pub(super) use crate::wording::counted;

use crate::{
    files::{Access, Output},
    pipeline::Failure,
    report::format,
};

use super::{
    CommandError,
    terminal::{styled_error, styled_hint, wrapped_for_terminal},
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
        if is_json { self.printer.print_json(report) } else { Ok(()) }
    }
}

/// The cause of incomplete output.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The data could not be produced.
    Data(CommandError),
    /// The output did not accept the data.
    Output(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        WriteError::Output(error)
    }
}

impl WriteError {
    /// Returns the error of the command. `output` names the output in the message. A closed pipe becomes `PipeClosed`,
    /// which is not a failure.
    pub fn into_command_error(self, output: &str) -> CommandError {
        match self {
            WriteError::Data(error) => error,
            WriteError::Output(source) if source.kind() == io::ErrorKind::BrokenPipe => CommandError::PipeClosed,
            WriteError::Output(source) => CommandError::failed(format!("cannot write {output}"))(source),
        }
    }
}

/// Writes data to stdout.
#[derive(Debug)]
pub(super) struct Printer {
    _private: (),
}

impl Printer {
    pub fn stdout() -> Self {
        Self { _private: () }
    }

    /// Writes a text, and a line end if the text has none. Removes colours unless stdout shows them. Succeeds if the
    /// reader has closed the pipe: the exit code of a command that failed must not become 0 because nobody reads its
    /// report.
    pub fn print(&self, text: &str) -> Result<(), CommandError> {
        let written = self.write(|out| {
            match anstream::AutoStream::choice(&io::stdout()) {
                anstream::ColorChoice::Never => write!(out, "{}", anstream::adapter::strip_str(text))?,
                _ => out.write_all(text.as_bytes())?,
            }
            if !text.ends_with('\n') {
                out.write_all(b"\n")?;
            }
            Ok(())
        });
        match written {
            Err(CommandError::PipeClosed) => Ok(()),
            written => written,
        }
    }

    /// Writes a text for people, wrapped on a terminal.
    pub fn print_wrapped(&self, text: &str) -> Result<(), CommandError> {
        self.print(&wrapped_for_terminal(text))
    }

    /// Writes a value as one line of JSON.
    pub fn print_json(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let text = serde_json::to_string(value).map_err(CommandError::failed("cannot write JSON"))?;
        self.print(&text)
    }

    /// Writes a value as one line of JSON if `is_json`, otherwise as the text that `describe` returns,
    /// wrapped on a terminal.
    pub fn print_value<T: Serialize>(
        &self,
        is_json: bool,
        value: &T,
        describe: impl FnOnce(&T) -> String,
    ) -> Result<(), CommandError> {
        if is_json { self.print_json(value) } else { self.print_wrapped(&describe(value)) }
    }

    /// Calls `write` with a buffered stdout, and returns its value.
    pub fn write<T>(&self, write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>) -> Result<T, CommandError> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = write(&mut out).and_then(|value| {
            out.flush()?;
            Ok(value)
        });
        written.map_err(|error| error.into_command_error("to stdout"))
    }

    /// Returns true if stdout is a terminal.
    pub fn is_terminal(&self) -> bool {
        io::IsTerminal::is_terminal(&io::stdout())
    }
}

/// Writes a text to stderr. Wraps long lines on a terminal, and removes colours unless stderr shows them. A failure is
/// ignored, because the exit code still shows the result.
pub(super) fn write_stderr(text: &str) {
    anstream::stderr().write_all(wrapped_for_terminal(text).as_bytes()).ok();
}

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

/// Returns the name of a stream, or of one survey of it: `responses of survey 4100`.
pub(super) fn scope_name(stream: &str, survey_id: Option<i64>) -> String {
    survey_id.map_or_else(|| stream.to_owned(), |id| format!("{stream} of survey {id}"))
}

/// Returns the number with its noun, with the digits in groups: `12,345 rows`.
pub(super) fn counted_grouped(number: u64, noun: &str) -> String {
    format::counted(i64::try_from(number).unwrap_or(i64::MAX), noun)
}

/// Joins the counts that are not zero: `3 new, 1 changed`. Returns `None` if all are zero.
pub(super) fn nonzero_counts(counts: &[(u64, &str)]) -> Option<String> {
    let nonzero = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let nonzero: Vec<String> = nonzero.collect();
    (!nonzero.is_empty()).then(|| nonzero.join(", "))
}

/// Returns the line about a run that stopped early; empty if `reason` is `None`.
pub(super) fn stopped_line(reason: Option<&String>) -> String {
    let line = |reason| format!("  stopped early: {reason}. Run the same command again to resume\n");
    reason.map(line).unwrap_or_default()
}

/// Maximum lines of one kind in a summary. The JSON lists more.
pub(super) const LINES_MAX: usize = 20;

/// Returns the first [`LINES_MAX`] of these texts, and a line with the number of the others.
pub(super) fn shortened_list(texts: Vec<String>, noun: &str) -> String {
    let more = texts.len().saturating_sub(LINES_MAX);
    let shown: String = texts.into_iter().take(LINES_MAX).collect();
    let rest =
        (more > 0).then(|| format!("  and {}: --json lists all\n", counted(more as u64, &format!("more {noun}"))));
    shown + &rest.unwrap_or_default()
}

/// Returns a line for each failure, with its hint in the next line. Windows of a stream that failed for the same cause
/// have one line with their number.
pub(super) fn failure_lines(failures: &[Failure]) -> String {
    let mut groups: Vec<(&Failure, u64)> = Vec::new();
    for failure in failures {
        let is_alike = |(first, _): &&mut (&Failure, u64)| {
            first.cause.is_some() && (first.stream, &first.cause) == (failure.stream, &failure.cause)
        };
        match groups.iter_mut().find(is_alike) {
            Some((_, windows)) => *windows += 1,
            None => groups.push((failure, 1)),
        }
    }
    let lines = |(failure, windows): (&Failure, u64)| {
        let hint =
            failure.hint.as_ref().map(|hint| format!("    {} {hint}\n", styled_hint("hint:"))).unwrap_or_default();
        let what = match &failure.cause {
            Some(cause) if windows > 1 => format!("{} {}: {cause}", failure.stream, counted(windows, "window")),
            _ => failure.sentence(),
        };
        format!("  {} {what}\n{hint}", styled_error("FAILED"))
    };
    shortened_list(groups.into_iter().map(lines).collect(), "failure")
}

/// Returns an outcome's name without underscores: `needs a look`.
pub(super) fn outcome_words(outcome: &str) -> String {
    outcome.replace('_', " ")
}
