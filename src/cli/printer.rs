//! The one place that writes to stdout.

use std::io::{self, Write};

use super::{CommandError, output::WriteError};

/// Writes data to stdout. A reader that closes the pipe ends the program quietly, as for any filter.
#[derive(Debug)]
pub(super) struct Printer {
    _private: (),
}

impl Printer {
    pub fn stdout() -> Self {
        Self { _private: () }
    }

    /// Writes the text as it is, and a line end if it has none.
    pub fn print(&self, text: &str) -> Result<(), CommandError> {
        self.write(|out| {
            out.write_all(text.as_bytes())?;
            if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") }
        })
    }

    /// Writes a value as one line of JSON.
    pub fn print_json(&self, value: &impl serde::Serialize) -> Result<(), CommandError> {
        let text =
            serde_json::to_string(value).map_err(|error| CommandError::failed("cannot write JSON", error.into()))?;
        self.print(&text)
    }

    /// Lets `write` write, buffered.
    pub fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CommandError> {
        self.write_made(|out| Ok(write(out)?))
    }

    /// Lets `write` write what it makes meanwhile, buffered.
    pub fn write_made<T>(
        &self,
        write: impl FnOnce(&mut dyn Write) -> Result<T, WriteError>,
    ) -> Result<T, CommandError> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = write(&mut out).and_then(|value| {
            out.flush()?;
            Ok(value)
        });
        written.map_err(|error| match error {
            WriteError::Made(error) => error,
            WriteError::Taken(source) if source.kind() == io::ErrorKind::BrokenPipe => CommandError::PipeClosed,
            WriteError::Taken(source) => CommandError::failed("cannot write to stdout", source),
        })
    }

    /// Whether a person reads stdout, as far as can be told.
    pub fn is_terminal(&self) -> bool {
        io::IsTerminal::is_terminal(&io::stdout())
    }
}
