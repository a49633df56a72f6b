//! The progress of a run on a terminal: share of the time that is due, rows, requests, and what is waited for and why.

use std::{sync::Arc, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::{
    pipeline::{Progress, Snapshot},
    source::{Source, WaitReason},
};

const REFRESH: Duration = Duration::from_millis(150);

/// Draws the bar until the returned guard is dropped. Draws nothing where stderr is no terminal.
pub(super) fn watch(bars: &MultiProgress, progress: Arc<Progress>, source: Source) -> Watch {
    let bar = bars.add(ProgressBar::new(0));
    // A template that is known to be right: the default bar is drawn otherwise.
    let style =
        ProgressStyle::with_template("{spinner} [{bar:32}] {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("=> "));
    let drawn = bar.clone();
    let started = Instant::now();
    let task = tokio::spawn(async move {
        loop {
            let now = progress.snapshot();
            drawn.set_length(now.due_ms.max(1));
            drawn.set_position(now.done_ms.min(now.due_ms));
            drawn.set_message(message(&now, &source, started));
            drawn.tick();
            tokio::time::sleep(REFRESH).await;
        }
    });
    Watch { bar, task }
}

/// Ends the drawing when it is dropped.
pub(super) struct Watch {
    bar: ProgressBar,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.finish_and_clear();
    }
}

fn message(now: &Snapshot, source: &Source, started: Instant) -> String {
    let elapsed = started.elapsed().as_secs_f64().max(0.001);
    let rate = now.rows_pulled as f64 / elapsed;
    let requests = source.request_stats().total;
    let under_way = match now.windows_under_way {
        0 => "writing".to_owned(),
        count => format!("{count} under way"),
    };
    let mut text = format!(
        "{} windows ({under_way})  {} records, {rate:.0}/s  {requests} requests",
        now.windows_done, now.rows_pulled
    );
    if let Some(waiting) = source.waiting() {
        let left = waiting.until.saturating_duration_since(Instant::now()).as_secs_f64();
        let why = match waiting.why {
            WaitReason::Told => "the service said so",
            WaitReason::Backoff => "backing off",
            WaitReason::Pace => "keeping to the learned rate",
        };
        if left >= 0.1 {
            text.push_str(&format!("  waiting {left:.1} s: {why}"));
        }
    }
    text
}
