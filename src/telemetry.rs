//! Where log lines go: to stderr, as text or JSON, without tearing the progress bars apart.

use std::io::{self, Write};

use indicatif::MultiProgress;
use tracing::Level;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Sends log lines of this program from `level` on to stderr. `bars` are hidden while a line is written.
pub fn init(format: LogFormat, level: Level, bars: MultiProgress) {
    // Lines of the libraries underneath help nobody but their authors.
    let filter = EnvFilter::new(format!("off,studysync={level}"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(BesideBars(bars)).with_target(false);
    let outcome = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // A second call (in tests) keeps the first subscriber.
    drop(outcome);
}

#[derive(Clone)]
struct BesideBars(MultiProgress);

impl Write for BesideBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl MakeWriter<'_> for BesideBars {
    type Writer = BesideBars;

    fn make_writer(&self) -> BesideBars {
        self.clone()
    }
}
