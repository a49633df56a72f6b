//! Writes data to stdout, and messages to stderr. No other file of the program writes to stdout.

use std::io::{self, Write};

use serde::Serialize;

use super::CommandError;

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
            WriteError::Output(source) => CommandError::failed(format!("cannot write {output}"), source),
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

    /// Writes a text, and a line end if the text has none. Succeeds if the reader has closed the pipe: the exit code of
    /// a command that failed must not become 0 because nobody reads its report.
    pub fn print(&self, text: &str) -> Result<(), CommandError> {
        let written = self.write(|out| {
            out.write_all(text.as_bytes())?;
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

    /// Writes a value as one line of JSON.
    pub fn print_json(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let text =
            serde_json::to_string(value).map_err(|error| CommandError::failed("cannot write JSON", error.into()))?;
        self.print(&text)
    }

    /// Writes a value as one line of JSON if `is_json`, otherwise as the text that `describe` returns.
    pub fn print_value<T: Serialize>(
        &self,
        is_json: bool,
        value: &T,
        describe: impl FnOnce(&T) -> String,
    ) -> Result<(), CommandError> {
        if is_json { self.print_json(value) } else { self.print(&describe(value)) }
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

/// Writes a text to stderr. A failure is ignored, because the exit code still shows the result.
pub(super) fn write_stderr(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}
