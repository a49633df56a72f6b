//! The progress of a run: one line on a terminal, a log line every half minute elsewhere.

use std::{sync::Arc, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::{
    pipeline::{Meter, Progress, log_progress},
    source::Source,
};

const REFRESH: Duration = Duration::from_millis(200);
const LOG_EVERY: Duration = Duration::from_secs(30);

/// Shows the progress of a run until the returned guard is dropped.
pub(super) fn watch(bars: &MultiProgress, progress: Arc<Progress>, source: Source) -> Watch {
    let mut meter = Meter::new(progress, source);
    begin(bars, |bar| match bar.is_hidden() {
        true => tokio::spawn(async move {
            log_progress(move || meter.read()).await;
        }),
        false => tokio::spawn(draw(move || meter.read().line(), bar)),
    })
}

/// Shows a line until the returned guard is dropped.
pub(super) fn watch_line(bars: &MultiProgress, mut line: impl FnMut() -> String + Send + 'static) -> Watch {
    begin(bars, |bar| match bar.is_hidden() {
        true => tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOG_EVERY).await;
                tracing::info!("{}", line());
            }
        }),
        false => tokio::spawn(draw(line, bar)),
    })
}

/// Adds a line to the terminal, which is hidden where there is none, and begins what shows the progress.
fn begin(bars: &MultiProgress, show: impl FnOnce(ProgressBar) -> JoinHandle<()>) -> Watch {
    let bar = bars.add(ProgressBar::new_spinner());
    Watch { task: show(bar.clone()), bar }
}

/// Ends the progress line when it is dropped.
pub(super) struct Watch {
    bar: ProgressBar,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.finish_and_clear();
    }
}

async fn draw(mut line: impl FnMut() -> String, bar: ProgressBar) {
    // `wide_msg` cuts what a narrow terminal has no room for. The template is known to be right:
    // the default is drawn otherwise.
    bar.set_style(ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    loop {
        bar.set_message(line());
        bar.tick();
        tokio::time::sleep(REFRESH).await;
    }
}
