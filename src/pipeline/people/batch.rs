//! Requests one batch of users in parallel, and writes the answers to the spool page by page.

use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;

use crate::{
    archive::Spool,
    model::{Activity, Proof, Scan},
    plan::page_boundaries::ScanBoundaries,
    source::{SourceError, Stop, UserAnswer},
};

use super::{
    super::{
        PipelineError,
        page_buffer::PageBuffer,
        scan::{CompletedScan, OpenScan, begin},
        sync_context::SyncContext,
        threads::blocking,
    },
    page::PageDraft,
};

/// A page with this many users is written.
const PAGE_USERS: usize = 100;
/// A page of this size is written.
const PAGE_BYTES: usize = 4 << 20;
/// A page of this age is written at the next answer. A kill loses the answers of the page under construction; the next
/// run requests them again.
const PAGE_AGE: Duration = Duration::from_secs(2);
/// Consecutive requests without an answer after which the run fails: the service is probably down.
const CONSECUTIVE_FAILURES_MAX: u32 = 3;

/// The result of requesting one batch.
#[derive(Default)]
pub(super) struct BatchResult {
    /// The scan with all answers. `None` if the service answered no request.
    pub scan: Option<CompletedScan>,
    /// Users with an answer.
    pub answered: usize,
    /// Users with an answer for whom the service refused the request.
    pub refused: u64,
    /// Users with an answer whom the service does not know.
    pub absent: u64,
    /// Why requests were stopped before the end of the batch. `None` if no request was stopped.
    pub stop: Option<Stop>,
    /// The first failed request. It does not end the batch.
    pub failure: Option<(Scan, SourceError)>,
    /// The error that ends the batch and the run.
    pub fatal: Option<SourceError>,
    /// Failed requests since the last answer.
    consecutive_failures: u32,
}

/// Requests these users, at most `in_flight_max` at a time. Answers that came before a failure or a stop are kept.
pub(super) async fn request_batch(
    context: &SyncContext,
    scan: Scan,
    user_ids: &[String],
    in_flight_max: usize,
) -> Result<BatchResult, PipelineError> {
    let mut writer = BatchWriter::begin(context, scan.clone()).await?;
    let (mut result, mut page, mut page_begun_at) = (BatchResult::default(), PageDraft::default(), Instant::now());
    context.progress.begun();
    let mut answers = futures::stream::iter(user_ids.to_vec())
        .map(|user_id| async {
            let answer = context.source.user(&user_id).await;
            (user_id, answer)
        })
        .buffer_unordered(in_flight_max);
    while let Some((user_id, answer)) = answers.next().await {
        match answer {
            Ok(answer) => {
                context.progress.pulled(1);
                result.add_answer(&mut page, user_id, answer);
            }
            Err(error) => result.add_failure(&scan, error),
        }
        if result.fatal.is_some() {
            break;
        }
        let is_full = page.users >= PAGE_USERS || page.bytes() >= PAGE_BYTES || page_begun_at.elapsed() >= PAGE_AGE;
        if is_full && page.users > 0 {
            writer = writer.write(std::mem::take(&mut page)).await?;
            page_begun_at = Instant::now();
        }
    }
    drop(answers);
    context.progress.ended();
    let writer = writer.write(page).await?;
    result.answered = writer.users;
    result.scan = writer.finish().await?;
    Ok(result)
}

impl BatchResult {
    /// Counts an answer, and adds it to the page.
    fn add_answer(&mut self, page: &mut PageDraft, user_id: String, answer: UserAnswer) {
        self.consecutive_failures = 0;
        match answer {
            UserAnswer::Found { body } => page.add_found(&user_id, &body),
            UserAnswer::Absent => {
                self.absent += 1;
                page.add_absent(user_id);
            }
            UserAnswer::Refused { status } => {
                // The text of the refusal is not logged: it may name the user.
                tracing::warn!(status, "the service refused the request for a user");
                self.refused += 1;
                page.add_refused(user_id, status);
            }
        }
    }

    /// Records a request without an answer. An error that every request would get ends the run at once. Another error
    /// ends the run after [`CONSECUTIVE_FAILURES_MAX`] consecutive failures.
    fn add_failure(&mut self, scan: &Scan, error: SourceError) {
        match error {
            // Requests in flight finish; the client sends no further request.
            SourceError::Stopped(stop) => drop(self.stop.get_or_insert(stop)),
            error if error.ends_the_run() => self.fatal = Some(error),
            error => {
                self.consecutive_failures += 1;
                if self.consecutive_failures >= CONSECUTIVE_FAILURES_MAX {
                    self.fatal = Some(error);
                } else {
                    self.failure.get_or_insert((scan.clone(), error));
                }
            }
        }
    }
}

/// Writes the pages of a batch to its spool, and buffers their rows for the commit.
struct BatchWriter {
    context: SyncContext,
    scan: Scan,
    spool: Spool,
    buffer: PageBuffer,
    /// Number of users on the pages.
    users: usize,
}

impl BatchWriter {
    /// Creates the scan of the batch in the checkpoints and the archive.
    async fn begin(context: &SyncContext, scan: Scan) -> Result<Self, PipelineError> {
        let (context, stream) = (context.clone(), scan.scope.stream);
        let buffer = PageBuffer::new(&context.budget, stream, context.drift.of(stream));
        blocking(move || {
            let OpenScan { scan, spool, .. } = begin(&context, scan, 0)?;
            Ok(BatchWriter { context, scan, spool, buffer, users: 0 })
        })
        .await?
    }

    /// Appends a page. An empty page is not written.
    async fn write(mut self, page: PageDraft) -> Result<Self, PipelineError> {
        if page.users == 0 {
            return Ok(self);
        }
        blocking(move || {
            self.users += page.users;
            let body = page.write(self.context.source.service_now_ms().unwrap_or(self.scan.started_ms));
            {
                let _busy = self.context.account.enter(Activity::Write);
                self.spool.append(&body)?;
            }
            let context = self.context.clone();
            let _turn = context.budget.lock_large_body(body.len());
            let _busy = context.account.enter(Activity::Parse);
            self.buffer.push(context.flatten(self.scan.scope.stream, &body)?);
            Ok(self)
        })
        .await?
    }

    /// Completes the spool, and returns the scan. If the spool has no page, discards the scan and returns `None`.
    async fn finish(self) -> Result<Option<CompletedScan>, PipelineError> {
        let BatchWriter { context, scan, mut spool, buffer, users } = self;
        blocking(move || {
            if spool.pages() == 0 {
                context.state().forget_scan(&scan.id)?;
                context.archive.discard(&scan.id)?;
                return Ok(None);
            }
            let _busy = context.account.enter(Activity::Write);
            spool.complete()?;
            let proof = Proof { pages: spool.pages() as u64, end: None };
            let (rows, spool, boundaries) = (users as u64, spool.path().to_owned(), ScanBoundaries::new(0));
            Ok(Some(CompletedScan { scan, page_rows: 0, rows, spool, proof, buffer, boundaries, noted: None }))
        })
        .await?
    }
}
