//! Writes log lines to stderr, as text or JSON, and hides the progress bars while a line is written.

use std::io::{self, Write};

use console::Term;
use indicatif::MultiProgress;
use tracing::Level;
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::wording::wrapped_lines;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// A layer that records spans.
pub type SpanLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// Starts logging to stderr. Only lines of this program at `level` and above are written. `bars` are hidden while a
/// line is written. `spans` is a layer that records spans; `None` records no spans.
pub fn init(format: LogFormat, level: Level, bars: MultiProgress, spans: Option<SpanLayer<Registry>>) {
    // Log lines of libraries do not help users.
    let filter = EnvFilter::new(format!("off,studysync={level}"));
    let writer = move || StderrWriter { bars: bars.clone(), is_text: format == LogFormat::Text };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // A second call, which only tests make, fails and keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(spans).with(lines.with_filter(filter)).try_init();
}

/// Writes to stderr while the progress bars are hidden. Wraps text on a terminal. Never fails: a run must not end
/// because the terminal or the reader of stderr is gone. On an error, `tracing_subscriber` would panic.
struct StderrWriter {
    bars: MultiProgress,
    is_text: bool,
}

impl Write for StderrWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let terminal = Term::stderr();
        let written = match self.is_text && terminal.is_term() {
            true => wrapped_lines(&String::from_utf8_lossy(bytes), terminal.size().1.into()).into_bytes(),
            false => bytes.to_vec(),
        };
        self.bars.suspend(|| io::stderr().write_all(&written).ok());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush().ok();
        Ok(())
    }
}
