//! One window: asked for page by page, each page in the spool before anything else sees it, up to the end of results.
//!
//! The phases of a [`Pull`] are its methods, in the order of [`pull`]. Each takes the pull and gives it back: work that blocks moves it
//! to another thread meanwhile, and a phase that fails leaves nothing to go on with but what is durable.

use tracing::Instrument as _;

use crate::{
    archive::Spool,
    flatten::flatten_page,
    model::{Activity, EndStyle, FlatPage, PageRequest, PageToken, Proof, Scan, Stream},
    person::RedactedPage,
    plan::page_boundaries::{PageMoments, ScanBoundaries},
    source::{Page, SourceError, Step, Stop, Walk},
};

use super::{
    PipelineError, list_end,
    page_buffer::PageBuffer,
    scan::{CompletedScan, OpenScan},
    spans,
    sync_context::SyncContext,
    theme_measure::page_came,
    threads::{blocking, side_by_side},
    ties::{AtEnd, ProbePage, TieProbeError, after_page, at_end, moments_of, next_waiting, reopened},
};

/// Why a window was not pulled to its end.
#[derive(Debug)]
pub(super) enum PullError {
    /// The run is over for now; the pages so far are durable and the next run goes on from them.
    Stopped(Stop),
    /// The service cannot deliver a window of this size.
    TooMuch(SourceError),
    /// This window failed.
    Window(SourceError),
    /// Nothing will go better with another window.
    Run(PipelineError),
}

impl From<PipelineError> for PullError {
    fn from(error: PipelineError) -> Self {
        PullError::Run(error)
    }
}

/// Pulls the rest of a window.
pub(super) async fn pull(context: SyncContext, scan: OpenScan) -> Result<CompletedScan, PullError> {
    let (pull, last_page) = Pull::open(context, scan).await?;
    let mut pull = pull.look_behind_last_page(last_page).await?;
    loop {
        let (settled, at_end) = pull.read_list().await?.probe_waiting_boundaries().await?.ask_for_rechecks().await?;
        match at_end {
            AtEnd::Settled => return settled.complete().await,
            AtEnd::StartsOver => pull = settled.read_again().await?,
        }
    }
}

/// A window that is being pulled.
struct Pull {
    context: SyncContext,
    scan: Scan,
    /// The rows that were asked for at first.
    page_rows: u32,
    /// The first request; of this run, not of the list.
    request: PageRequest,
    /// Whether this is a part of a window that did not come.
    is_part: bool,
    walk: Walk,
    spool: Spool,
    /// The pages in the spool, on their way to the warehouses.
    buffer: PageBuffer,
    boundaries: ScanBoundaries,
    /// The records that the pages list.
    rows: u64,
    /// The token of the next page.
    resume_at: Option<PageToken>,
    /// How the service said that there is no more.
    end: Option<EndStyle>,
    /// Whether the list came to its end: only boundaries are left to look at.
    is_at_end: bool,
}

impl Pull {
    /// A pull from where the scan is, and the page whose boundary an earlier run did not look at.
    async fn open(context: SyncContext, open: OpenScan) -> Result<(Pull, Option<FlatPage>), PipelineError> {
        let OpenScan { scan, page_rows, spool, rows, next, end, boundaries: mut left, is_part } = open;
        let (stream, is_new) = (scan.scope.stream, spool.pages() == 0);
        let rules = context.drift.of(stream);
        let buffer = match is_new {
            true => PageBuffer::new(&context.budget, stream, rules),
            false => PageBuffer::spooled(&context.budget, stream, rules),
        };
        let request = PageRequest { scope: scan.scope, window: scan.window, flags: scan.flags, page_rows, token: next };
        let walk = new_walk(&context, request.clone(), is_part);
        let last_page = left.last_page.take().map(|body| flatten(&context, stream, &body)).transpose()?;
        let boundaries = {
            let (context, scan, path) = (context.clone(), scan.clone(), spool.path().to_owned());
            blocking(move || reopened(&context, &scan, &path, &left)).await??
        };
        if is_new {
            context.suppression.begins(&scan);
        }
        let (resume_at, is_at_end) = (request.token.clone(), end.is_some());
        let pull = Pull {
            context,
            scan,
            page_rows,
            request,
            is_part,
            walk,
            spool,
            buffer,
            boundaries,
            rows,
            resume_at,
            end,
            is_at_end,
        };
        Ok((pull, last_page))
    }

    fn stream(&self) -> Stream {
        self.scan.scope.stream
    }

    /// The scan goes on behind a page; a kill came before its boundary was looked at.
    async fn look_behind_last_page(mut self, last_page: Option<FlatPage>) -> Result<Pull, PullError> {
        let Some(page) = last_page else { return Ok(self) };
        let looked = self.look_behind(&moments_of(self.stream(), &page)).await;
        let (pull, probe_pages) = self.unless_failed(looked).await?;
        Ok(pull.keep_probe_pages(probe_pages).await?)
    }

    /// Reads page after page up to the end of results. What hides behind a page's boundary is looked at before the next one, if it is due.
    async fn read_list(mut self) -> Result<Pull, PullError> {
        while !self.is_at_end {
            let step = self.walk.next().instrument(spans::page()).await;
            let (pull, looked) = self.take_step(step).await?;
            let (pull, probe_pages) = pull.unless_failed(looked).await?;
            self = pull.keep_probe_pages(probe_pages).await?;
        }
        Ok(self)
    }

    /// One step of the list; the rows behind a page's boundary come with it.
    async fn take_step(
        mut self,
        step: Result<Step, SourceError>,
    ) -> Result<(Pull, Result<Vec<ProbePage>, TieProbeError>), PipelineError> {
        let looked = match step {
            Ok(Step::Page(page)) => {
                self.rows += page.rows as u64;
                self.context.progress.pulled(page.rows as u64);
                self.resume_at = page.next.clone();
                (self.end, self.is_at_end) = (page.end, page.next.is_none());
                let moments;
                (self, moments) = self.keep(page.clone()).await?;
                self.learn(&page, &moments).await
            }
            Ok(Step::Restarted { reason }) => {
                tracing::info!(window = %self.scan.window, scope = %self.scan.scope, %reason, "the window starts over");
                self = self.forget_pages().await?;
                self.boundaries.start_over();
                Ok(Vec::new())
            }
            Ok(Step::End(style)) => {
                (self.end, self.is_at_end) = (Some(style), true);
                if style == EndStyle::NotFound {
                    self.context.learned.not_found(self.stream());
                }
                Ok(Vec::new())
            }
            Ok(Step::Unproven) => self.prove_end().await.map(|()| Vec::new()),
            Err(error) => Err(TieProbeError::Source(error)),
        };
        Ok((self, looked))
    }

    /// What a page tells of the service, and what hides behind its boundary.
    async fn learn(&mut self, page: &Page, moments: &PageMoments) -> Result<Vec<ProbePage>, TieProbeError> {
        self.context.learned.page(self.stream(), page, moments);
        page_came(&self.context, &self.scan, moments).await?;
        if self.context.theme_times.may_lack_rows(self.stream()) {
            return Ok(Vec::new());
        }
        self.look_behind(moments).await
    }

    async fn look_behind(&mut self, page: &PageMoments) -> Result<Vec<ProbePage>, TieProbeError> {
        after_page(&self.context, &self.scan, &mut self.boundaries, page, self.resume_at.is_some()).await
    }

    /// A page token was answered with 404.
    async fn prove_end(&mut self) -> Result<(), TieProbeError> {
        let is_end = list_end::is_end(&self.context, &self.scan, self.page_rows, self.spool.path()).await?;
        tracing::debug!(window = %self.scan.window, scope = %self.scan.scope, is_end, "404 on a page token");
        self.walk.settle_end(is_end);
        Ok(())
    }

    /// Looks at the boundaries that have waited for the end.
    async fn probe_waiting_boundaries(mut self) -> Result<Pull, PullError> {
        loop {
            // What is asked for by the moment of a theme's creation is another moment there.
            if self.context.theme_times.may_lack_rows(self.stream()) {
                self.boundaries.pass_waiting();
            }
            let looked = next_waiting(&self.context, &self.scan, &mut self.boundaries).await;
            let (pull, probe_pages) = self.unless_failed(looked).await?;
            let Some(probe_pages) = probe_pages else { return Ok(pull) };
            self = pull.keep_probe_pages(probe_pages).await?;
        }
    }

    /// Whether the scan may end.
    async fn ask_for_rechecks(mut self) -> Result<(Pull, AtEnd), PullError> {
        let asked = at_end(&self.context, &self.scan, &mut self.boundaries).await;
        self.unless_failed(asked).await
    }

    /// Rows may hide behind boundaries that were passed: the list is read from its beginning.
    async fn read_again(self) -> Result<Pull, PipelineError> {
        tracing::info!(window = %self.scan.window, scope = %self.scan.scope, "the window starts over: rows may hide behind the boundaries of its pages");
        let mut pull = self.forget_pages().await?;
        pull.is_at_end = false;
        pull.walk = new_walk(&pull.context, PageRequest { token: None, ..pull.request.clone() }, pull.is_part);
        Ok(pull)
    }

    async fn forget_pages(mut self) -> Result<Pull, PipelineError> {
        (self.rows, self.resume_at) = (0, None);
        self.buffer.restart();
        let (pull, ()) = self.off_the_network(|pull| Ok(pull.spool.restart()?)).await?;
        Ok(pull)
    }

    /// The mark behind the last page.
    async fn complete(self) -> Result<CompletedScan, PullError> {
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

    /// One page into the spool; it is flattened and buffered for the commit. Returns the creation times on it.
    async fn keep(self, page: Page) -> Result<(Pull, PageMoments), PipelineError> {
        let budget = self.context.budget.clone();
        let _processor = budget.processor().await;
        self.off_the_network(move |pull| {
            let (context, scan, stream, body) = (pull.context.clone(), pull.scan.clone(), pull.stream(), &page.body);
            let _turn = context.budget.lock_large_body(body.len());
            let write = || {
                let _busy = context.account.enter(Activity::Write);
                // Whoever is kept out is not written anywhere, not even for a moment.
                let redacted = context.suppression.filtered(&scan, body);
                if append(&mut pull.spool, body, redacted.as_ref(), false)? {
                    pull.remember()?;
                }
                Ok::<_, PipelineError>(redacted)
            };
            let read = |body: &[u8]| {
                let _busy = context.account.enter(Activity::Parse);
                flatten(&context, stream, body)
            };
            let (redacted, flat) = side_by_side("keeps a page", write, || read(body));
            let (redacted, flat) = (redacted??, flat?);
            // The page's boundary is where the service ended it, whoever stands there.
            let moments = moments_of(stream, &flat);
            pull.buffer.push(match redacted {
                Some(redacted) => read(&redacted.body)?,
                None => flat,
            });
            Ok(moments)
        })
        .await
    }

    /// The rows behind a page's boundary, into the spool beside the page.
    async fn keep_probe_pages(self, probe_pages: Vec<ProbePage>) -> Result<Pull, PipelineError> {
        if probe_pages.is_empty() {
            return Ok(self);
        }
        let kept = self.off_the_network(move |pull| {
            for side in probe_pages {
                let redacted = pull.context.suppression.filtered(&pull.scan, &side.body);
                append(&mut pull.spool, &side.body, redacted.as_ref(), true)?;
                let _busy = pull.context.account.enter(Activity::Parse);
                pull.buffer.push(match &redacted {
                    None => side.flat,
                    Some(redacted) => flatten(&pull.context, pull.stream(), &redacted.body)?,
                });
            }
            Ok(())
        });
        kept.await.map(|(pull, ())| pull)
    }

    /// The checkpoint of how far the pages reach.
    fn remember(&self) -> Result<(), PipelineError> {
        let pages = self.spool.pages() as u64;
        self.context
            .state()
            .advance_scan(&self.scan.id, self.walk.page_rows(), pages, self.rows, self.resume_at.as_ref())
            .map_err(PipelineError::State)
    }

    /// What the service answered; after an error, the pages so far stay as far as they are of use.
    async fn unless_failed<T>(self, answered: Result<T, TieProbeError>) -> Result<(Pull, T), PullError> {
        match answered {
            Ok(answer) => Ok((self, answer)),
            Err(TieProbeError::Run(error)) => Err(PullError::Run(error)),
            Err(TieProbeError::Source(error)) => Err(self.give_up(error).await),
        }
    }

    /// What becomes of a window that cannot go on.
    async fn give_up(self, error: SourceError) -> PullError {
        let is_kept = !matches!(
            error,
            SourceError::TooLarge { .. } | SourceError::TokensDie { .. } | SourceError::Looping { .. }
        );
        let tidied = self.off_the_network(move |pull| {
            if is_kept {
                pull.spool.sync()?;
                return pull.remember();
            }
            pull.context.state().forget_scan(&pull.scan.id)?;
            Ok(pull.context.archive.discard(&pull.scan.id)?)
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

    /// Does work that blocks with the pull, off the threads that wait for the network.
    async fn off_the_network<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&mut Pull) -> Result<T, PipelineError> + Send + 'static,
    ) -> Result<(Pull, T), PipelineError> {
        blocking(move || work(&mut self).map(|done| (self, done))).await?
    }
}

fn new_walk(context: &SyncContext, request: PageRequest, is_part: bool) -> Walk {
    let walk = context.source.walk(request);
    if is_part { walk.part_of_a_failed_window() } else { walk }
}

/// A page, or what is left of it, into the spool; says whether everything is durable now.
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

fn flatten(context: &SyncContext, stream: Stream, body: &[u8]) -> Result<FlatPage, PipelineError> {
    Ok(flatten_page(stream, body, context.drift.of(stream))?)
}
