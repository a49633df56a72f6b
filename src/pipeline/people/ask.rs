//! One batch: people are asked for side by side, and each answer is in the spool within seconds.

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

/// A page is written when it has so many people ...
const PAGE_PEOPLE: usize = 100;
/// ... or so many bytes ...
const PAGE_BYTES: usize = 4 << 20;
/// ... or is so old: what a kill costs is asked for again.
const PAGE_AGE: Duration = Duration::from_secs(2);
/// So many people in a row for whom no answer came are not to blame: the service is.
const FAILURES_IN_A_ROW_MAX: u32 = 3;

/// What came of a batch.
#[derive(Default)]
pub(super) struct Answered {
    /// Complete as far as it came; `None` if nobody was answered for.
    pub pulled: Option<CompletedScan>,
    /// People with an answer.
    pub people: usize,
    /// Of them those whom the service refused to be asked for.
    pub refused: u64,
    /// Of them those whom the service does not know.
    pub absent: u64,
    pub stop: Option<Stop>,
    /// The first person for whom no answer came; the others were asked for all the same.
    pub failure: Option<(Scan, SourceError)>,
    /// What ends the run.
    pub fatal: Option<SourceError>,
    /// People in a row for whom no answer came.
    failures_in_a_row: u32,
}

/// Asks for people, so many at once.
pub(super) async fn ask(
    context: &SyncContext,
    scan: Scan,
    people: &[String],
    at_once: usize,
) -> Result<Answered, PipelineError> {
    let OpenScan { mut spool, .. } = {
        let (context, scan) = (context.clone(), scan.clone());
        blocking(move || begin(&context, scan, 0)).await??
    };
    let mut buffer = PageBuffer::new(&context.budget, scan.scope.stream, context.drift.of(scan.scope.stream));
    let (mut answered, mut draft, mut begun_at) = (Answered::default(), PageDraft::default(), Instant::now());
    context.progress.begun();
    let mut asks = futures::stream::iter(people.to_vec())
        .map(|user_id| async {
            let answer = context.source.user(&user_id).await;
            (user_id, answer)
        })
        .buffer_unordered(at_once);
    while let Some((user_id, answer)) = asks.next().await {
        match answer {
            Ok(answer) => {
                context.progress.pulled(1);
                answered.came(&mut draft, user_id, answer);
            }
            Err(error) => answered.failed(&scan, error),
        }
        if answered.fatal.is_some() {
            break;
        }
        let is_full = draft.people >= PAGE_PEOPLE || draft.bytes() >= PAGE_BYTES || begun_at.elapsed() >= PAGE_AGE;
        if is_full && draft.people > 0 {
            answered.people += draft.people;
            (spool, buffer) = keep(context, &scan, spool, buffer, std::mem::take(&mut draft)).await?;
            begun_at = Instant::now();
        }
    }
    drop(asks);
    context.progress.ended();
    if draft.people > 0 {
        answered.people += draft.people;
        (spool, buffer) = keep(context, &scan, spool, buffer, draft).await?;
    }
    answered.pulled = finish(context, scan, spool, buffer, answered.people as u64).await?;
    Ok(answered)
}

impl Answered {
    /// The service answered for a person.
    fn came(&mut self, draft: &mut PageDraft, user_id: String, answer: UserAnswer) {
        self.failures_in_a_row = 0;
        match answer {
            UserAnswer::Found { body } => draft.add_found(&user_id, &body),
            UserAnswer::Absent => {
                self.absent += 1;
                draft.add_absent(user_id);
            }
            UserAnswer::Refused { status } => {
                // What it said may name the person.
                tracing::warn!(status, "the service refused to be asked for a person");
                self.refused += 1;
                draft.add_refused(user_id, status);
            }
        }
    }

    /// No answer came for a person.
    fn failed(&mut self, scan: &Scan, error: SourceError) {
        match error {
            // Those under way come to their end; of the others none is sent any more.
            SourceError::Stopped(stop) => drop(self.stop.get_or_insert(stop)),
            error if error.ends_the_run() => self.fatal = Some(error),
            error => {
                self.failures_in_a_row += 1;
                if self.failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
                    self.fatal = Some(error);
                } else {
                    self.failure.get_or_insert((scan.clone(), error));
                }
            }
        }
    }
}

/// A page into the spool; then it is flattened and buffered for the commit.
async fn keep(
    context: &SyncContext,
    scan: &Scan,
    mut spool: Spool,
    mut buffer: PageBuffer,
    draft: PageDraft,
) -> Result<(Spool, PageBuffer), PipelineError> {
    let asked_ms = context.source.service_now_ms().unwrap_or(scan.started_ms);
    let (context, stream) = (context.clone(), scan.scope.stream);
    blocking(move || {
        let page = draft.write(asked_ms);
        {
            let _busy = context.account.enter(Activity::Write);
            spool.append(&page)?;
        }
        let _turn = context.budget.lock_large_body(page.len());
        let _busy = context.account.enter(Activity::Parse);
        buffer.push(context.flatten(stream, &page)?);
        Ok((spool, buffer))
    })
    .await?
}

async fn finish(
    context: &SyncContext,
    scan: Scan,
    mut spool: Spool,
    buffer: PageBuffer,
    rows: u64,
) -> Result<Option<CompletedScan>, PipelineError> {
    let context = context.clone();
    blocking(move || {
        if spool.pages() == 0 {
            context.state().forget_scan(&scan.id)?;
            context.archive.discard(&scan.id)?;
            return Ok(None);
        }
        let _busy = context.account.enter(Activity::Write);
        spool.complete()?;
        let proof = Proof { pages: spool.pages() as u64, end: None };
        let (spool, boundaries) = (spool.path().to_owned(), ScanBoundaries::new(0));
        Ok(Some(CompletedScan { scan, page_rows: 0, rows, spool, proof, buffer, boundaries, noted: None }))
    })
    .await?
}
