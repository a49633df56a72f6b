//! One window: asked for page by page, each page in the spool before anything else sees it, up to the end of results.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use tokio::runtime::RuntimeFlavor;

use crate::{
    archive::{Archive, Spool},
    flatten::flatten_page,
    model::{
        Activity, DriftPolicy, DriftRules, EndStyle, FlatPage, PageRequest, PageToken, Proof, Scan, Stream, TimeAccount,
    },
    person::{LessPage, Suppression},
    plan::edges::{PageMoments, ScanEdges},
    source::{Page, Source, SourceError, Step, Stop},
    state::State,
};

use super::{
    PipelineError, Progress,
    commit::CommitNote,
    held::{Budget, Held},
    list_end,
    theme_times::ThemeTimes,
    ties::{AtEnd, EdgesLeft, LookError, SidePage, TieWatch, after_page, at_end, moments_of, next_waiting, reopened},
    traits::Learned,
};

/// What every pull of a run shares.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub source: Source,
    pub archive: Archive,
    pub state: Arc<Mutex<State>>,
    pub account: TimeAccount,
    pub budget: Budget,
    pub progress: Arc<Progress>,
    pub ties: TieWatch,
    pub theme_times: ThemeTimes,
    pub learned: Learned,
    pub drift: DriftPolicy,
    /// Who is kept out of everything that is pulled.
    pub suppression: Suppression,
}

impl Shared {
    /// The checkpoints. A panic elsewhere leaves SQLite whole, so a poisoned lock is taken all the same.
    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A window under way: new, or where an earlier run left it.
#[derive(Debug)]
pub(super) struct Begun {
    pub scan: Scan,
    pub page_rows: u32,
    pub spool: Spool,
    pub rows: u64,
    pub next: Option<PageToken>,
    /// How the service said that there is no more, if it did: only edges are left to look at.
    pub end: Option<EndStyle>,
    pub edges: EdgesLeft,
    /// Whether this is a part of a window that did not come.
    pub is_part: bool,
}

/// A complete scan, durable in its spool.
#[derive(Debug)]
pub(super) struct Pulled {
    pub scan: Scan,
    pub page_rows: u32,
    /// The records that its pages list.
    pub rows: u64,
    pub spool: PathBuf,
    pub proof: Proof,
    pub held: Held,
    pub edges: ScanEdges,
    /// How an earlier run was about to commit it, if some warehouse holds it since: the others take it in the same way.
    pub noted: Option<CommitNote>,
}

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

/// Makes the file and the checkpoint of a scan, in this order: a checkpoint never names a file that is not there.
pub(super) fn begin(shared: &Shared, scan: Scan, page_rows: u32) -> Result<Begun, PipelineError> {
    let spool = shared.archive.begin(&scan).map_err(PipelineError::Archive)?;
    shared.state().begin_scan(&scan, page_rows).map_err(PipelineError::State)?;
    Ok(Begun { scan, page_rows, spool, rows: 0, next: None, end: None, edges: EdgesLeft::default(), is_part: false })
}

/// Pulls the rest of a window.
pub(super) async fn pull(shared: Shared, begun: Begun) -> Result<Pulled, PullError> {
    let Begun { scan, page_rows, mut spool, mut rows, next, mut end, edges: mut left, is_part } = begun;
    let stream = scan.scope.stream;
    let rules = shared.drift.of(stream);
    let mut held = if spool.pages() == 0 {
        Held::new(&shared.budget, stream, rules)
    } else {
        Held::spooled(&shared.budget, stream, rules)
    };
    let request = PageRequest { scope: scan.scope, window: scan.window, flags: scan.flags, page_rows, token: next };
    let mut resume_at = request.token.clone();
    let source = shared.source.clone();
    let new_walk = |request: PageRequest| match is_part {
        true => source.walk(request).part_of_a_failed_window(),
        false => source.walk(request),
    };
    let mut walk = new_walk(request.clone());
    let mut is_at_end = end.is_some();
    // The page from which the scan goes on, if a kill came before its edge was looked at.
    let last_page = left.last_page.take();
    let mut last_page = last_page.map(|body| flatten(scan.scope.stream, &body, rules)).transpose()?;
    let mut edges = {
        let (shared, scan, path) = (shared.clone(), scan.clone(), spool.path().to_owned());
        blocking(move || reopened(&shared, &scan, &path, &left)).await??
    };
    if spool.pages() == 0 {
        shared.suppression.begins(&scan);
    }
    loop {
        let sides = if let Some(flat) = last_page.take() {
            let moments = moments_of(scan.scope.stream, &flat);
            after_page(&shared, &scan, &mut edges, &moments, resume_at.is_some()).await.map(Some)
        } else if is_at_end {
            // What is asked for by the moment of a theme's creation is another moment there.
            if shared.theme_times.may_lack_rows(stream) {
                edges.pass_waiting();
            }
            next_waiting(&shared, &scan, &mut edges).await
        } else {
            match walk.next().await {
                Ok(Step::Page(page)) => {
                    rows += page.rows as u64;
                    shared.progress.pulled(page.rows as u64);
                    resume_at = page.next.clone();
                    (end, is_at_end) = (page.end, page.next.is_none());
                    let mark = Mark { page_rows: walk.page_rows(), rows, next: page.next.clone() };
                    let moments;
                    (spool, held, moments) = keep(&shared, &scan, spool, held, &page, mark).await?;
                    shared.learned.page(scan.scope.stream, &page, &moments);
                    match shared.theme_times.page(&shared, &scan, &moments).await {
                        Ok(()) if shared.theme_times.may_lack_rows(stream) => Ok(Some(Vec::new())),
                        Ok(()) => after_page(&shared, &scan, &mut edges, &moments, page.next.is_some()).await.map(Some),
                        Err(error) => Err(error),
                    }
                }
                Ok(Step::Restarted { reason }) => {
                    tracing::info!(window = %scan.window, scope = %scan.scope, %reason, "the window starts over");
                    spool = blocking(move || spool.restart().map(|()| spool)).await?.map_err(PipelineError::Archive)?;
                    held.restart();
                    edges.start_over();
                    (rows, resume_at) = (0, None);
                    continue;
                }
                Ok(Step::End(style)) => {
                    (end, is_at_end) = (Some(style), true);
                    if style == EndStyle::NotFound {
                        shared.learned.not_found(scan.scope.stream);
                    }
                    continue;
                }
                Ok(Step::Unproven) => match list_end::is_end(&shared, &scan, page_rows, spool.path()).await {
                    Ok(is_end) => {
                        tracing::debug!(window = %scan.window, scope = %scan.scope, is_end, "404 on a page token");
                        walk.settle_end(is_end);
                        continue;
                    }
                    Err(error) => Err(error),
                },
                Err(error) => Err(LookError::Source(error)),
            }
        };
        match sides {
            Ok(Some(sides)) => {
                (spool, held) = keep_sides(&shared, &scan, spool, sides, held).await?;
                continue;
            }
            // The end of results, and nothing waits any more.
            Ok(None) => {}
            Err(error) => {
                let mark = Mark { page_rows: walk.page_rows(), rows, next: resume_at };
                return Err(stopped_at_an_edge(shared, scan, spool, mark, error).await);
            }
        }
        match at_end(&shared, &scan, &mut edges).await {
            Ok(AtEnd::Settled) => break,
            Ok(AtEnd::StartsOver) => {
                tracing::info!(window = %scan.window, scope = %scan.scope, "the window starts over: rows may hide behind the edges of its pages");
                spool = blocking(move || spool.restart().map(|()| spool)).await?.map_err(PipelineError::Archive)?;
                held.restart();
                (rows, resume_at, is_at_end) = (0, None, false);
                walk = new_walk(PageRequest { token: None, ..request.clone() });
            }
            Err(error) => {
                let mark = Mark { page_rows: walk.page_rows(), rows, next: resume_at };
                return Err(stopped_at_an_edge(shared, scan, spool, mark, error).await);
            }
        }
    }
    let proof = Proof { pages: spool.pages() as u64, end };
    let busy = shared.account.enter(Activity::Write);
    let spool = blocking(move || spool.complete().map(|()| spool)).await?.map_err(PipelineError::Archive)?;
    drop(busy);
    tracing::debug!(window = %scan.window, scope = %scan.scope, pages = proof.pages, rows, "pulled");
    Ok(Pulled { scan, page_rows, rows, spool: spool.path().to_owned(), proof, held, edges, noted: None })
}

/// How far a scan's pages reach.
struct Mark {
    page_rows: u32,
    rows: u64,
    next: Option<PageToken>,
}

/// One page into the spool; it is flattened and held for the commit. Returns the creation times on it.
async fn keep(
    shared: &Shared,
    scan: &Scan,
    mut spool: Spool,
    mut held: Held,
    page: &Page,
    mark: Mark,
) -> Result<(Spool, Held, PageMoments), PipelineError> {
    let (shared, scan, page) = (shared.clone(), scan.clone(), page.clone());
    let _processor = shared.budget.processor().await;
    blocking(move || {
        let body = &page.body;
        let _turn = shared.budget.turn(body.len());
        let rules = shared.drift.of(scan.scope.stream);
        let write = || {
            let _busy = shared.account.enter(Activity::Write);
            // Whoever is kept out is not written anywhere, not even for a moment.
            let less = shared.suppression.filtered(&scan, body);
            if append(&mut spool, body, less.as_ref(), false)? {
                remember(&shared, &scan, &spool, &mark)?;
            }
            Ok::<_, PipelineError>(less)
        };
        let read = |body: &[u8]| {
            let _busy = shared.account.enter(Activity::Parse);
            flatten(scan.scope.stream, body, rules)
        };
        let (less, flat) = side_by_side("keeps a page", write, || read(body));
        let (less, flat) = (less??, flat?);
        // The page's edge is where the service ended it, whoever stands there.
        let moments = moments_of(scan.scope.stream, &flat);
        held.push(match less {
            Some(less) => read(&less.body)?,
            None => flat,
        });
        Ok((spool, held, moments))
    })
    .await?
}

/// The rows behind a page's edge, into the spool beside the page.
async fn keep_sides(
    shared: &Shared,
    scan: &Scan,
    mut spool: Spool,
    sides: Vec<SidePage>,
    mut held: Held,
) -> Result<(Spool, Held), PipelineError> {
    if sides.is_empty() {
        return Ok((spool, held));
    }
    let (shared, scan) = (shared.clone(), scan.clone());
    blocking(move || {
        for side in sides {
            let less = shared.suppression.filtered(&scan, &side.body);
            append(&mut spool, &side.body, less.as_ref(), true)?;
            let _busy = shared.account.enter(Activity::Parse);
            held.push(match &less {
                None => side.flat,
                Some(less) => flatten(scan.scope.stream, &less.body, shared.drift.of(scan.scope.stream))?,
            });
        }
        Ok((spool, held))
    })
    .await?
}

/// A page, or what is left of it, into the spool; says whether everything is durable now.
fn append(spool: &mut Spool, body: &[u8], less: Option<&LessPage>, is_side: bool) -> Result<bool, PipelineError> {
    let appended = match less {
        Some(less) => spool.append_less(&less.body, less.removed, is_side),
        None if is_side => spool.append_side(body),
        None => spool.append(body),
    };
    appended.map_err(PipelineError::Archive)
}

/// What becomes of a window whose edge could not be looked at: its pages stay, as after any other failure.
async fn stopped_at_an_edge(shared: Shared, scan: Scan, spool: Spool, mark: Mark, error: LookError) -> PullError {
    match error {
        LookError::Source(error) => give_up(shared, scan, spool, mark, error).await,
        LookError::Run(error) => PullError::Run(error),
    }
}

fn flatten(stream: Stream, body: &[u8], rules: DriftRules) -> Result<FlatPage, PipelineError> {
    flatten_page(stream, body, rules).map_err(PipelineError::Flatten)
}

fn remember(shared: &Shared, scan: &Scan, spool: &Spool, mark: &Mark) -> Result<(), PipelineError> {
    let pages = spool.pages() as u64;
    shared
        .state()
        .advance_scan(&scan.id, mark.page_rows, pages, mark.rows, mark.next.as_ref())
        .map_err(PipelineError::State)
}

/// What becomes of a window that cannot go on.
async fn give_up(shared: Shared, scan: Scan, mut spool: Spool, mark: Mark, error: SourceError) -> PullError {
    let is_kept =
        !matches!(error, SourceError::TooLarge { .. } | SourceError::TokensDie { .. } | SourceError::Looping { .. });
    let tidied = blocking(move || {
        if is_kept {
            spool.sync().map_err(PipelineError::Archive)?;
            return remember(&shared, &scan, &spool, &mark);
        }
        shared.state().forget_scan(&scan.id).map_err(PipelineError::State)?;
        shared.archive.discard(&scan.id).map_err(PipelineError::Archive)
    })
    .await;
    match tidied {
        Ok(Ok(())) => match error {
            SourceError::Stopped(stop) => PullError::Stopped(stop),
            SourceError::TooLarge { .. } | SourceError::TokensDie { .. } => PullError::TooMuch(error),
            error if error.ends_the_run() => PullError::Run(PipelineError::Source(error)),
            error => PullError::Window(error),
        },
        Ok(Err(error)) | Err(error) => PullError::Run(error),
    }
}

/// Work that blocks, off the threads that wait for the network.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PipelineError> {
    if is_single_threaded() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| PipelineError::Died(error.to_string()))
}

/// Does both at the same time, the first on a thread of its own, which is named by what it does.
pub(super) fn side_by_side<A: Send, B>(
    name: &'static str,
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (Result<A, PipelineError>, B) {
    if is_single_threaded() {
        return (Ok(first()), second());
    }
    thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        (first.join().map_err(|_| PipelineError::Died(format!("the thread that {name}"))), second)
    })
}

/// Whether the runtime has one thread. Then work that blocks is done there and then: a program that wants everything on one thread gets
/// it, and the simulator an order that its seed decides.
pub(super) fn is_single_threaded() -> bool {
    tokio::runtime::Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}
