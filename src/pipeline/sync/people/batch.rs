//! Requests one batch of users in parallel, and writes the answers to the spool page by page.
//!
//! Finds the users who are due for a request: users in the warehouse who were never requested, or too long ago. Reads
//! the warehouse in slices, so that neither DuckDB nor this program has all users in memory.

use std::time::Duration;

use arrow::array::AsArray as _;
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::{
    archive::Spool,
    config::WarehouseSettings,
    load::{LoadError, Reader},
    model::{Activity, Proof, Scan, can_request_user},
    pipeline::{
        assemble::{failed, open_reader},
        error::PipelineError,
        scan::{
            context::SyncContext,
            page_buffer::PageBuffer,
            states::{CompletedScan, OpenScan, begin},
            user_pages::PageDraft,
        },
        threads::blocking,
    },
    plan::page_boundaries::ScanBoundaries,
    source::{SourceError, Stop, UserAnswer},
    state::StateError,
};

/// A page with this many users is written.
const PAGE_USERS: usize = 100;
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
        let is_large = page.bytes() >= context.budget.shares.draft();
        let is_full = page.users >= PAGE_USERS || is_large || page_begun_at.elapsed() >= PAGE_AGE;
        if is_full && page.users > 0 {
            writer = writer.write(std::mem::take(&mut page)).await?;
            page_begun_at = Instant::now();
        }
    }
    drop(answers);
    let writer = writer.write(page).await?;
    result.answered = writer.users;
    result.scan = writer.finish().await?;
    Ok(result)
}

impl BatchResult {
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

/// The maximum number of ids that are returned. Further due users are only counted.
const LISTED_MAX: usize = 100_000;
/// Expected number of rows of one slice. The ids of a slice fit several times into DuckDB's memory.
const SLICE_ROWS: u64 = 4_000_000;
/// Time limit of each query.
const TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3600);

/// A query of the user ids in answers, snapshots and users. Vanished rows are left out.
const USER_IDS: &str = "\
    SELECT external_user_id AS id FROM responses WHERE _vanished_at IS NULL
    UNION ALL SELECT external_user_id FROM visitor_snapshots WHERE _vanished_at IS NULL
    UNION ALL SELECT external_user_id FROM users WHERE _vanished_at IS NULL";

/// The users who are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeopleDue {
    /// Number of users in the warehouse.
    pub named: u64,
    /// Number of users who are due.
    pub due: u64,
    /// Ids of at most 100,000 users who are due, sorted.
    pub people: Vec<String>,
    /// Number of users who cannot be requested, because an address cannot contain their id.
    pub unaskable: u64,
}

/// Finds the due users in the warehouse. `is_due` decides by the user id. No process may have the warehouse open for
/// writing. Blocks the thread.
pub fn people_due(
    warehouse: &WarehouseSettings,
    is_due: impl Fn(&str) -> Result<bool, StateError>,
) -> Result<PeopleDue, PipelineError> {
    let (name, mut reader) = open_reader(warehouse, TIME_MAX)?;
    let mut due = PeopleDue::default();
    collect_due(&mut reader, &mut due, is_due).map_err(failed(name))?;
    Ok(due)
}

/// Adds the due users of the warehouse to `found`. Reads the user ids in slices, by a hash of the id.
fn collect_due(
    reader: &mut Reader,
    found: &mut PeopleDue,
    is_due: impl Fn(&str) -> Result<bool, StateError>,
) -> Result<(), LoadError> {
    let mut rows = 0;
    reader.stream("SELECT (SELECT count(*) FROM responses) + (SELECT count(*) FROM users)", 1, |batch| {
        let count = batch.column(0).as_primitive_opt::<arrow::datatypes::Int64Type>();
        rows = count.and_then(|count| count.iter().next().flatten()).unwrap_or(rows);
        Ok::<(), LoadError>(())
    })?;
    let slices = rows.unsigned_abs() / SLICE_ROWS + 1;
    for slice in 0..slices {
        let sql = format!(
            "SELECT DISTINCT id FROM ({USER_IDS}) WHERE id IS NOT NULL AND id <> '' AND hash(id) % {slices} = {slice}"
        );
        reader.stream(&sql, usize::MAX, |batch| {
            let Some(ids) = batch.column(0).as_string_opt::<i32>() else {
                return Err(LoadError::DamagedRows("ids of users are not texts".into()));
            };
            for id in ids.iter().flatten() {
                found.named += 1;
                if !can_request_user(id) {
                    found.unaskable += 1;
                } else if is_due(id).map_err(PipelineError::from)? {
                    found.due += 1;
                    if found.people.len() < LISTED_MAX {
                        found.people.push(id.to_owned());
                    }
                }
            }
            Ok(())
        })?;
    }
    // DuckDB returns rows in any order. A fixed order makes runs comparable.
    found.people.sort_unstable();
    Ok(())
}
