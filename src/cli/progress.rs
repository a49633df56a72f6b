//! Shows the progress of a run: one line on a terminal, otherwise a log line after five seconds and every half minute.

use std::{io, sync::Arc, time::Duration};

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use tokio::task::JoinHandle;

use crate::{
    pipeline::{Meter, Progress, log_progress},
    source::Source,
};

use super::Context;

const REFRESH: Duration = Duration::from_millis(200);
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum updates of the terminal per second.
const UPDATES_PER_SEC: u8 = 20;

/// Returns the place of the progress lines on stderr; hidden if stderr is not a terminal.
pub(super) fn on_stderr() -> MultiProgress {
    let target = match ProgressDrawTarget::stderr().is_hidden() {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::term_like_with_hz(Box::new(Terminal(Term::buffered_stderr())), UPDATES_PER_SEC),
    };
    MultiProgress::with_draw_target(target)
}

/// The terminal on stderr. Never fails: `indicatif` panics on some errors, and a run must not end because its terminal
/// is gone.
#[derive(Debug)]
struct Terminal(Term);

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        TermLike::width(&self.0)
    }

    fn height(&self) -> u16 {
        TermLike::height(&self.0)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n).or(Ok(()))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n).or(Ok(()))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n).or(Ok(()))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n).or(Ok(()))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.0.write_line(text).or(Ok(()))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text).or(Ok(()))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line().or(Ok(()))
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().or(Ok(()))
    }
}

/// Shows the progress of a run until the returned guard is dropped. Returns `None` with `--quiet`.
pub(super) fn show_run(context: &Context, progress: Arc<Progress>, source: &Source) -> Option<ProgressLine> {
    let mut meter = Meter::new(progress, source.clone());
    show(context, |line| match line.is_hidden() {
        true => tokio::spawn(async move {
            log_progress(move || meter.read()).await;
        }),
        false => tokio::spawn(draw(move || meter.read().line(usize::from(Term::stderr().size().1)), line)),
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
