//! Pulls one window page by page, up to the end of the list. Each page is written to the spool, so that the next run
//! can resume from the durable pages.
//!
//! The phases of a [`Pull`] are its methods, in the order of [`pull`]. Each phase takes the pull and returns it,
//! because blocking work moves the pull to another thread.

use bytes::Bytes;
use tracing::Instrument as _;

use crate::{
    archive::Spool,
    model::{
        Activity, EndStyle, FlatPage, PageRequest, PageToken, Proof, SECOND_MS, Scan, Stream, ThemeTime, Window,
        behaviour_names,
    },
    person::RedactedPage,
    pipeline::{
        error::PipelineError,
        meter::length_ms,
        service_profile::{
            theme_times::measure_theme_times,
            tie_probe::{ProbePage, moments_of},
        },
        session::page_span,
        threads::blocking,
    },
    plan::{
        halves,
        page_boundaries::{PageMoments, ScanBoundaries},
    },
    source::{Page, PageReservation, SourceError, Stop, Walk, WalkStep},
};

use super::{
    context::SyncContext,
    list_end,
    page_buffer::PageBuffer,
    states::{CompletedScan, OpenScan},
    tie_probes::{EndAction, after_page, end_action, next_waiting, requester_for, restore_boundaries},
};

/// Why a window was not pulled completely.
#[derive(Debug)]
pub enum PullError {
    /// The run stops early. The pages so far are durable, and the next run resumes from them.
    Stopped(Stop),
    /// The service cannot deliver a window of this size. The pages are discarded, so that the halves can be scanned.
    TooMuch(SourceError),
    /// The rows of the window take too much memory. The pages are discarded, so that the halves can be scanned.
    TooWide,
    /// This window failed; other windows may succeed.
    Window(SourceError),
    /// The run failed: other windows would fail as well.
    Run(PipelineError),
}

impl From<PipelineError> for PullError {
    fn from(error: PipelineError) -> Self {
        PullError::Run(error)
    }
}

/// Pulls the remaining pages of a window, and probes the page boundaries where rows may be missing. Starts the list
/// over, at most once, if boundaries without a probe may hide rows, or if the list changed during a probe.
pub async fn pull(context: SyncContext, scan: OpenScan) -> Result<CompletedScan, PullError> {
    let (pull, unprobed_page) = Pull::open(context, scan).await?;
    let mut pull = pull.probe_last_page(unprobed_page).await?;
    loop {
        let (ended, action) = pull.read_list().await?.probe_waiting_boundaries().await?.decide_at_end().await?;
        match action {
            EndAction::MayEnd => return ended.complete().await,
            EndAction::StartOver => pull = ended.start_over().await?,
        }
    }
}

/// A window that is being pulled.
struct Pull {
    context: SyncContext,
    scan: Scan,
    /// Page size of the first request, in rows.
    page_rows: u32,
    /// The first request of this run; after a resume, not the first of the list.
    request: PageRequest,
    /// True if the window is a half of one that the service could not deliver.
    is_half: bool,
    walk: Walk,
    spool: Spool,
    /// The parsed pages, buffered for the warehouses.
    buffer: PageBuffer,
    boundaries: ScanBoundaries,
    /// Number of records on the pages of the list, without probe pages.
    rows: u64,
    /// Milliseconds of creation time that the pages have covered, for the progress.
    fetched_ms: u64,
    /// Bytes of the long texts on the pages that this run has read.
    long_text_bytes: usize,
    /// The token of the next page. `None` before the first page and after the last one.
    resume_at: Option<PageToken>,
    /// How the service marked the end of the list. `None` until the end.
    end: Option<EndStyle>,
    /// True if the list has ended: the pull only has to probe the boundaries that waited for the end.
    is_at_end: bool,
}

impl Pull {
    /// Starts the pull of a new scan, or resumes an unfinished scan after its last durable page. Also returns that page
    /// if its boundary has no conclusive probe, because rows that were created in the last millisecond of the page may
    /// be missing.
    async fn open(context: SyncContext, open: OpenScan) -> Result<(Pull, Option<FlatPage>), PipelineError> {
        let OpenScan {
            scan,
            page_rows,
            mut spool,
            rows,
            next,
            end,
            boundaries: mut stored_boundaries,
            is_half,
            is_rescan,
        } = open;
        let (stream, is_new) = (scan.scope.stream, spool.pages() == 0);
        let rules = context.drift.of(stream);
        let buffer = match (is_new, is_rescan) {
            (true, false) => PageBuffer::new(&context.budget, stream, rules),
            (true, true) => PageBuffer::of_summaries(&context.budget, stream, rules),
            (false, _) => PageBuffer::spooled(&context.budget, stream, rules),
        };
        if is_rescan {
            spool.expect_no_changes();
        }
        let request = PageRequest { scope: scan.scope, window: scan.window, flags: scan.flags, page_rows, token: next };
        let walk = new_walk(&context, request.clone(), is_half);
        let last_page = stored_boundaries.last_page.take().map(|body| context.flatten(stream, &body)).transpose()?;
        let boundaries = {
            let (context, scan, path) = (context.clone(), scan.clone(), spool.path().to_owned());
            blocking(move || restore_boundaries(&context, &scan, &path, &stored_boundaries)).await??
        };
        if is_new {
            context.suppression.begin_scan(&scan);
        }
        let (resume_at, is_at_end) = (request.token.clone(), end.is_some());
        let pull = Pull {
            context,
            scan,
            page_rows,
            request,
            is_half,
            walk,
            spool,
            buffer,
            boundaries,
            rows,
            fetched_ms: 0,
            long_text_bytes: 0,
            resume_at,
            end,
            is_at_end,
        };
        Ok((pull, last_page))
    }

    fn stream(&self) -> Stream {
        self.scan.scope.stream
    }

    fn set_fetched(&mut self, fetched_ms: u64) {
        self.context.progress.fetched(self.fetched_ms, fetched_ms);
        self.fetched_ms = fetched_ms;
    }

    /// Adds the boundary of `unprobed_page`, the last durable page of an earlier run, and probes it if a probe is due.
    /// Does nothing if no probe is missing.
    async fn probe_last_page(mut self, unprobed_page: Option<FlatPage>) -> Result<Pull, PullError> {
        let Some(page) = unprobed_page else { return Ok(self) };
        let probed = self.probe_boundary(&moments_of(self.stream(), &page)).await;
        let (pull, probe_pages) = self.unless_failed(probed).await?;
        Ok(pull.store_probe_pages(probe_pages).await?)
    }

    /// Reads all pages up to the end of the list. A boundary whose probe is due is probed before the next page.
    async fn read_list(mut self) -> Result<Pull, PullError> {
        while !self.is_at_end {
            let step = self.walk.next().instrument(page_span()).await;
            let (pull, probed) = self.take_step(step).await?;
            let (pull, probe_pages) = pull.unless_failed(probed).await?;
            self = pull.store_probe_pages(probe_pages).await?;
            if self.is_too_wide() {
                self.off_the_network(Pull::discard).await?;
                return Err(PullError::TooWide);
            }
        }
        Ok(self)
    }

    /// Returns true if the pages have too many long texts for one window, and the window can be cut.
    fn is_too_wide(&self) -> bool {
        let can_be_cut = self.stream().is_windowed() && halves(self.scan.window).is_some();
        can_be_cut && self.context.budget.are_too_long(self.long_text_bytes)
    }

    /// Handles one answer of the list: stores a page, restarts the list, or records its end. Also returns the probe
    /// pages, which are none unless a page's boundary was probed. The inner error is that of the request or the probe.
    async fn take_step(
        mut self,
        step: Result<WalkStep, SourceError>,
    ) -> Result<(Pull, Result<Vec<ProbePage>, PipelineError>), PipelineError> {
        let probed = match step {
            Ok(WalkStep::Page(mut page)) => {
                self.rows += page.rows as u64;
                self.context.progress.pulled(page.rows as u64);
                self.resume_at = page.next.clone();
                (self.end, self.is_at_end) = (page.end, page.next.is_none());
                let moments;
                (self, moments) = self.keep(std::mem::take(&mut page.body), page.memory.take()).await?;
                moments.covered_ms(self.scan.window).into_iter().for_each(|covered_ms| self.set_fetched(covered_ms));
                self.learn(&page, &moments).await
            }
            Ok(WalkStep::Restarted { reason }) => {
                tracing::info!(window = %self.scan.window, scope = %self.scan.scope, %reason, "the window starts over");
                self = self.forget_pages().await?;
                self.boundaries.start_over();
                Ok(Vec::new())
            }
            Ok(WalkStep::End(style)) => {
                (self.end, self.is_at_end) = (Some(style), true);
                if style == EndStyle::NotFound && self.spool.pages() == 0 {
                    self.context.observed.add_not_found(self.stream());
                }
                Ok(Vec::new())
            }
            Ok(WalkStep::UnprovenEnd) => self.prove_end().await.map(|()| Vec::new()),
            Err(error) => Err(error.into()),
        };
        Ok((self, probed))
    }

    /// Records the behaviour of the service that a page shows, and probes the page's boundary if a probe is due. Probes
    /// no boundary of themes if the service filters them by their answer's time. Returns no pages if nothing was
    /// probed.
    async fn learn(&mut self, page: &Page, moments: &PageMoments) -> Result<Vec<ProbePage>, PipelineError> {
        self.context.observed.add_page(self.stream(), page, moments);
        inspect_page(&self.context, &self.scan, moments).await?;
        if self.context.theme_times.may_lack_rows(self.stream()) {
            return Ok(Vec::new());
        }
        self.probe_boundary(moments).await
    }

    /// Probes the boundary after a page, if a probe is due. Returns no pages otherwise.
    async fn probe_boundary(&mut self, page: &PageMoments) -> Result<Vec<ProbePage>, PipelineError> {
        after_page(&self.context, &self.scan, &mut self.boundaries, page, self.resume_at.is_some()).await
    }

    /// Decides whether a 404 for a page token was the end of the list or an expired token, and tells the walk, which
    /// then ends or restarts the list.
    async fn prove_end(&mut self) -> Result<(), PipelineError> {
        let is_end = list_end::is_end(&self.context, &self.scan, self.page_rows, self.spool.path()).await?;
        tracing::debug!(window = %self.scan.window, scope = %self.scan.scope, is_end, "404 on a page token");
        self.walk.resolve_end(is_end);
        Ok(())
    }

    async fn probe_waiting_boundaries(mut self) -> Result<Pull, PullError> {
        loop {
            // If the service filters themes by their answer's time, a probe for the theme's time would miss the themes.
            // The waiting boundaries then count as unprobed.
            if self.context.theme_times.may_lack_rows(self.stream()) {
                self.boundaries.pass_waiting();
            }
            let probed = next_waiting(&self.context, &self.scan, &mut self.boundaries).await;
            let (pull, probe_pages) = self.unless_failed(probed).await?;
            let Some(probe_pages) = probe_pages else { return Ok(pull) };
            self = pull.store_probe_pages(probe_pages).await?;
        }
    }

    /// Decides whether the scan is complete or has to start over.
    async fn decide_at_end(mut self) -> Result<(Pull, EndAction), PullError> {
        let action = end_action(&self.context, &self.scan, &mut self.boundaries).await;
        self.unless_failed(action).await
    }

    /// Starts the list over, because the service may have lost rows at boundaries without a probe, or because the list
    /// changed during a probe.
    async fn start_over(self) -> Result<Pull, PipelineError> {
        tracing::info!(window = %self.scan.window, scope = %self.scan.scope, "the window starts over: rows may be lost at the boundaries of its pages");
        let mut pull = self.forget_pages().await?;
        pull.is_at_end = false;
        pull.walk = new_walk(&pull.context, PageRequest { token: None, ..pull.request.clone() }, pull.is_half);
        Ok(pull)
    }

    /// Removes all pages of the scan from the buffer and the spool, because the list starts over.
    async fn forget_pages(mut self) -> Result<Pull, PipelineError> {
        (self.rows, self.long_text_bytes, self.resume_at) = (0, 0, None);
        self.set_fetched(0);
        self.buffer.restart();
        let (pull, ()) = self.off_the_network(|pull| Ok(pull.spool.restart()?)).await?;
        Ok(pull)
    }

    /// Writes the end mark behind the last page, and returns the complete scan.
    async fn complete(mut self) -> Result<CompletedScan, PullError> {
        self.set_fetched(length_ms(self.scan.scope, self.scan.window));
        let busy = self.context.account.enter(Activity::Write);
        let (pull, ()) = self.off_the_network(|pull| Ok(pull.spool.complete()?)).await?;
        drop(busy);
        let Pull { scan, page_rows, rows, spool, buffer, boundaries, end, .. } = pull;
        let proof = Proof { pages: spool.pages() as u64, end };
        tracing::debug!(window = %scan.window, scope = %scan.scope, pages = proof.pages, rows, "pulled");
        Ok(CompletedScan {
            scan,
            page_rows,
            rows,
            spool: spool.path().to_owned(),
            proof,
            buffer,
            boundaries,
            noted: None,
        })
    }

    /// Writes a page to the spool, and flattens and buffers it for the commit, without the records of erased people.
    /// Returns the creation times of all records on the page, erased people included.
    async fn keep(self, body: Bytes, memory: Option<PageReservation>) -> Result<(Pull, PageMoments), PipelineError> {
        let budget = self.context.budget.clone();
        let _processor = budget.processor().await;
        self.off_the_network(move |pull| {
            let (context, scan, stream, body) = (pull.context.clone(), pull.scan.clone(), pull.stream(), &body);
            let detail = pull.buffer.detail();
            let _memory = memory;
            let busy = context.account.enter(Activity::Write);
            // Records of erased people are never written to disk.
            let redacted = context.suppression.filtered(&scan, body);
            if append(&mut pull.spool, body, redacted.as_ref(), false)? {
                pull.remember()?;
            }
            drop(busy);
            let _busy = context.account.enter(Activity::Parse);
            let read = |body: &[u8]| context.flatten_in_detail(stream, body, &detail);
            let flat = read(body)?;
            // The page boundary comes from the page as the service sent it, before records are removed.
            let moments = moments_of(stream, &flat);
            context.budget.record_sizes(stream, &flat);
            pull.long_text_bytes += flat.long_text_bytes;
            pull.buffer.push(match redacted {
                Some(redacted) => read(&redacted.body)?,
                None => flat,
            });
            Ok(moments)
        })
        .await
    }

    /// Writes the pages of a tie probe to the spool and the buffer, without the records of erased people.
    async fn store_probe_pages(self, probe_pages: Vec<ProbePage>) -> Result<Pull, PipelineError> {
        if probe_pages.is_empty() {
            return Ok(self);
        }
        let stored = self.off_the_network(move |pull| {
            for probe_page in probe_pages {
                let redacted = pull.context.suppression.filtered(&pull.scan, &probe_page.body);
                append(&mut pull.spool, &probe_page.body, redacted.as_ref(), true)?;
                let _busy = pull.context.account.enter(Activity::Parse);
                pull.buffer.push(match &redacted {
                    None => probe_page.flat,
                    Some(redacted) => {
                        pull.context.flatten_in_detail(pull.stream(), &redacted.body, &pull.buffer.detail())?
                    }
                });
            }
            Ok(())
        });
        stored.await.map(|(pull, ())| pull)
    }

    /// Checkpoints the page size, the numbers of pages and rows in the spool, and the token of the next page. Called
    /// when all pages in the spool are durable.
    fn remember(&self) -> Result<(), PipelineError> {
        let pages = self.spool.pages() as u64;
        self.context
            .state()
            .advance_scan(&self.scan.id, self.walk.page_rows(), pages, self.rows, self.resume_at.as_ref())
            .map_err(PipelineError::State)
    }

    /// Returns the pull and the value of `outcome`. After an error of a request, gives the window up
    /// ([`Pull::give_up`]). Passes on an error that ends the run.
    async fn unless_failed<T>(self, outcome: Result<T, PipelineError>) -> Result<(Pull, T), PullError> {
        match outcome {
            Ok(answer) => Ok((self, answer)),
            Err(PipelineError::Source(error)) => Err(self.give_up(error).await),
            Err(error) => Err(PullError::Run(error)),
        }
    }

    /// Ends a failed pull, and returns the reason. Keeps the pages for the next run, or discards them if the window
    /// has to be cut or read again from its first page.
    async fn give_up(self, error: SourceError) -> PullError {
        let error = error.after_answer(self.context.source.last_answer_ms());
        let keeps_pages = !matches!(
            error,
            SourceError::TooLarge { .. } | SourceError::TokensDie { .. } | SourceError::Looping { .. }
        );
        let tidied = self.off_the_network(move |pull| {
            if keeps_pages {
                pull.spool.sync()?;
                return pull.remember();
            }
            pull.discard()
        });
        match tidied.await {
            Ok(_) => match error {
                SourceError::Stopped(stop) => PullError::Stopped(stop),
                SourceError::TooLarge { .. } | SourceError::TokensDie { .. } => PullError::TooMuch(error),
                error if error.ends_the_run() => PullError::Run(PipelineError::Source(error)),
                error => PullError::Window(error),
            },
            Err(error) => PullError::Run(error),
        }
    }

    /// Forgets the scan with its pages.
    fn discard(&mut self) -> Result<(), PipelineError> {
        self.set_fetched(0);
        self.context.state().forget_scan(&self.scan.id)?;
        Ok(self.context.archive.discard(&self.scan.id)?)
    }

    /// Runs blocking work on the pull, off the threads that wait for the network.
    async fn off_the_network<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&mut Pull) -> Result<T, PipelineError> + Send + 'static,
    ) -> Result<(Pull, T), PipelineError> {
        blocking(move || work(&mut self).map(|done| (self, done))).await?
    }
}

/// Creates the walk over the list of a window. `is_half` is true for a half of a window that the service could not
/// deliver.
fn new_walk(context: &SyncContext, request: PageRequest, is_half: bool) -> Walk {
    let walk = context.source.walk(request);
    if is_half { walk.part_of_a_failed_window() } else { walk }
}

/// Appends a page to the spool: `redacted` if the page has records of erased people, otherwise `body`. Returns true if
/// everything in the spool is durable.
fn append(
    spool: &mut Spool,
    body: &[u8],
    redacted: Option<&RedactedPage>,
    is_probe: bool,
) -> Result<bool, PipelineError> {
    let appended = match redacted {
        Some(redacted) => spool.append_redacted(&redacted.body, redacted.removed, is_probe),
        None if is_probe => spool.append_probe(body),
        None => spool.append(body),
    };
    Ok(appended?)
}

/// Tolerance at the ends of a window, because a theme's time may be rounded.
const ROUNDED_MS: i64 = SECOND_MS;

/// Checks whether a page of themes shows what `start` and `end` mean: a theme outside the window proves that they mean
/// the answer's time. Otherwise measures the meaning if a measure is due. Stores the result. Ignores pages of other
/// streams.
async fn inspect_page(context: &SyncContext, scan: &Scan, page: &PageMoments) -> Result<(), PipelineError> {
    if scan.scope.stream != Stream::Themes {
        return Ok(());
    }
    let Window { start_ms, end_ms } = scan.window;
    let is_outside =
        |at_ms: i64| at_ms < start_ms.saturating_sub(ROUNDED_MS) || at_ms > end_ms.saturating_add(ROUNDED_MS);
    let found = if page.rows.iter().filter_map(|(at_ms, _)| *at_ms).any(is_outside) {
        Some(ThemeTime::Answer)
    } else if !page.rows.is_empty() && context.theme_times.begin_measure() {
        measure_theme_times(&requester_for(context, scan), scan.window, page).await?
    } else {
        None
    };
    let Some(found) = found else { return Ok(()) };
    let Some(now_ms) = context.theme_times.record(found) else { return Ok(()) };
    context
        .state()
        .remember_measured(behaviour_names::THEMES_FILTERED_BY, &found, "the themes on the pages of a run", now_ms)
        .map_err(PipelineError::State)
}
