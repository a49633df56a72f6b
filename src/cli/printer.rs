//! The one place that writes to stdout.

use std::io::{self, Write};

use super::CommandError;

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

    /// Lets `write` write, buffered.
    pub fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CommandError> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        match write(&mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CommandError::PipeClosed),
            outcome => outcome.map_err(|source| CommandError::failed("cannot write to stdout", source)),
        }
    }
}
