//! Shows the progress of a run: one line on a terminal, otherwise a log line every half minute.

use std::{sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::{
    pipeline::{Meter, Progress, log_progress},
    source::Source,
};

use super::Context;

const REFRESH: Duration = Duration::from_millis(200);
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Shows the progress of a run until the returned guard is dropped. Returns `None` with `--quiet`.
pub(super) fn show_run(context: &Context, progress: Arc<Progress>, source: &Source) -> Option<ProgressLine> {
    let mut meter = Meter::new(progress, source.clone());
    show(context, |line| match line.is_hidden() {
        true => tokio::spawn(async move {
            log_progress(move || meter.read()).await;
        }),
        false => tokio::spawn(draw(move || meter.read().line(), line)),
    })
}

/// Shows the text that `text` returns until the returned guard is dropped. Returns `None` with `--quiet`.
pub(super) fn show_text(context: &Context, mut text: impl FnMut() -> String + Send + 'static) -> Option<ProgressLine> {
    show(context, |line| match line.is_hidden() {
        true => tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOG_INTERVAL).await;
                tracing::info!("{}", text());
            }
        }),
        false => tokio::spawn(draw(text, line)),
    })
}

/// Adds a progress line, and calls `start` for the task that updates the line. Returns `None` with `--quiet`.
fn show(context: &Context, start: impl FnOnce(ProgressBar) -> JoinHandle<()>) -> Option<ProgressLine> {
    if context.is_quiet {
        return None;
    }
    let line = context.progress.add(ProgressBar::new_spinner());
    Some(ProgressLine { task: start(line.clone()), line })
}

/// Removes the progress line when it is dropped.
pub(super) struct ProgressLine {
    line: ProgressBar,
    task: JoinHandle<()>,
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.task.abort();
        self.line.finish_and_clear();
    }
}

/// Updates the progress line with the text that `text` returns, until the task is aborted.
async fn draw(mut text: impl FnMut() -> String, line: ProgressBar) {
    // `wide_msg` cuts the text to the width of the terminal. The template is valid; an invalid one would be ignored.
    line.set_style(ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    loop {
        line.set_message(text());
        line.tick();
        tokio::time::sleep(REFRESH).await;
    }
}
