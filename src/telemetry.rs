//! Where log lines go: to stderr, as text or JSON, without tearing the progress bars apart.

use std::io::{self, Write};

use indicatif::MultiProgress;
use tracing::Level;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt::MakeWriter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Something else that looks at spans.
pub type SpanLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// Sends log lines of this program from `level` on to stderr. `bars` are hidden while a line is written.
/// `spans` goes to whoever traces runs.
pub fn init(format: LogFormat, level: Level, bars: MultiProgress, spans: Option<SpanLayer<Registry>>) {
    // Lines of the libraries underneath help nobody but their authors.
    let filter = EnvFilter::new(format!("off,studysync={level}"));
    let lines = tracing_subscriber::fmt::layer().with_writer(BesideBars(bars)).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let outcome = tracing_subscriber::registry().with(spans).with(lines.with_filter(filter)).try_init();
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
