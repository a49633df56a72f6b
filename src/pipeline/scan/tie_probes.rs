//! Probes the page boundaries of one scan. A boundary is probed before the next page, waits for the end of the list, or
//! is not probed at all.

use std::path::Path;

use crate::{
    archive::{RecoveredSpool, read_pages},
    model::{Scan, Stream, Ties},
    pipeline::{
        error::PipelineError,
        service_profile::tie_probe::{MomentRequester, ProbePage, moments_of},
    },
    plan::page_boundaries::{PageBoundary, PageMoments, ScanBoundaries},
    source::envelope,
};

use super::context::SyncContext;

/// What the spool of an unfinished scan says about the scan's page boundaries. An earlier run wrote the spool.
#[derive(Debug, Default)]
pub struct StoredBoundaries {
    /// Number of boundaries without a conclusive probe, apart from that of the last page.
    pub unprobed: u64,
    /// The body of the last page. `None` if its boundary has a conclusive probe, or there is no page.
    pub last_page: Option<Vec<u8>>,
    /// True if some page is redacted, so that its last row and with it its boundary may be unknown.
    pub is_redacted: bool,
}

/// Restores the boundaries of a scan that an earlier run began. If the service may lose rows, reads the unprobed
/// boundaries from the spool, so that they wait for a probe again. Otherwise, or if a page is redacted, only counts
/// them as unprobed. The caller adds the boundary of the last page.
pub fn restore_boundaries(
    context: &SyncContext,
    scan: &Scan,
    spool: &Path,
    stored: &StoredBoundaries,
) -> Result<ScanBoundaries, PipelineError> {
    let stream = scan.scope.stream;
    if stored.unprobed == 0 || stored.is_redacted || !context.ties.may_lose(stream) {
        return Ok(ScanBoundaries::new(stored.unprobed));
    }
    let window = stream.is_windowed().then_some(scan.window);
    let (mut boundaries, mut probes, mut last_page) = (ScanBoundaries::new(0), Vec::new(), None);
    let mut is_within_probe = false;
    let mut bodies = read_pages(spool)?;
    while let Some(body) = bodies.next() {
        let body = body?;
        let flat = context.flatten(stream, &body)?;
        let moments = moments_of(stream, &flat);
        if !bodies.is_probe() {
            // A page's boundary is added when the next page is read, so that the last page has none. `Unknown` makes
            // the boundary wait for a probe.
            let previous: Option<PageMoments> = last_page.replace(moments);
            previous.and_then(|page| boundaries.page(&page, true, window, Ties::Unknown, |_| true));
            is_within_probe = false;
            continue;
        }
        // A probe of several pages may lack rows at the boundaries of its pages. It does not count, so it is repeated.
        let is_last_of_probe = envelope::parse(&body).is_ok_and(|probe| probe.next.is_none());
        if is_last_of_probe && !is_within_probe {
            probes.push(moments);
        }
        is_within_probe = !is_last_of_probe;
    }
    boundaries.forget_probed(&probes);
    Ok(boundaries)
}

/// Restores the boundaries of a scan that an earlier run completed. Boundaries that waited for a probe become unprobed,
/// because a complete scan is not probed any more.
pub fn restore_completed(
    context: &SyncContext,
    scan: &Scan,
    spool: &Path,
    stored: &StoredBoundaries,
) -> Result<ScanBoundaries, PipelineError> {
    let mut boundaries = restore_boundaries(context, scan, spool, stored)?;
    boundaries.pass_waiting();
    Ok(boundaries)
}

impl StoredBoundaries {
    /// Reads the boundaries from a recovered spool. A probe of the last page is conclusive if it is a single probe page
    /// without a next page; another probe is repeated.
    pub fn of(recovered: &RecoveredSpool) -> StoredBoundaries {
        if recovered.header.scan.scope.stream == Stream::Users {
            // Users are requested one by one, without page boundaries.
            return StoredBoundaries::default();
        }
        let content = &recovered.content;
        let is_probed = match content.last_probes.as_slice() {
            [probe] => envelope::parse(probe).is_ok_and(|probe| probe.next.is_none()),
            _ => false,
        };
        // Probes of earlier boundaries that waited for the end of the list are also stored after the last page. If an
        // earlier page has no probe, the last probe may be one of that page.
        let is_probed = is_probed && content.without_probe == 0;
        let last_page = content.last_page.clone().filter(|_| !is_probed);
        StoredBoundaries { unprobed: content.without_probe, last_page, is_redacted: content.is_any_redacted }
    }
}

/// Creates a [`MomentRequester`] for the scope of a scan.
pub fn requester_for(context: &SyncContext, scan: &Scan) -> MomentRequester {
    let (source, account) = (context.source.clone(), context.account.clone());
    let rules = context.drift.of(scan.scope.stream);
    MomentRequester { source, account, scope: scan.scope, flags: scan.flags, rules }
}

/// Adds the boundary of a page to `boundaries`, and probes it if a probe is due. Before that, measures a tie of the
/// page if a measure is due. Returns the probe pages, whose rows belong to the scan; none without a probe. `has_next`
/// is false for the last page of the list.
pub async fn after_page(
    context: &SyncContext,
    scan: &Scan,
    boundaries: &mut ScanBoundaries,
    page: &PageMoments,
    has_next: bool,
) -> Result<Vec<ProbePage>, PipelineError> {
    measure_a_tie(context, scan, page).await?;
    let ties = &context.ties;
    let belief = ties.belief(scan.scope.stream);
    let window = scan.scope.stream.is_windowed().then_some(scan.window);
    let due = boundaries.page(page, has_next, window, belief, |is_shared| ties.is_probe_due(belief, is_shared));
    match due {
        Some(boundary) => probe_boundary(context, scan, boundaries, &boundary, belief).await,
        None => Ok(Vec::new()),
    }
}

/// Probes the next boundary that waits for the end of the list, and returns the probe pages. Returns `None` if no
/// boundary waits, or if the service is known to lose no rows.
pub async fn next_waiting(
    context: &SyncContext,
    scan: &Scan,
    boundaries: &mut ScanBoundaries,
) -> Result<Option<Vec<ProbePage>>, PipelineError> {
    let belief = context.ties.belief(scan.scope.stream);
    match boundaries.next_waiting(belief) {
        Some(boundary) => probe_boundary(context, scan, boundaries, &boundary, belief).await.map(Some),
        None => Ok(None),
    }
}

/// Requests the rows of a boundary's millisecond, and records the result. Measures a tie of the probe pages if a
/// measure is due. Returns the probe pages.
async fn probe_boundary(
    context: &SyncContext,
    scan: &Scan,
    boundaries: &mut ScanBoundaries,
    boundary: &PageBoundary,
    belief: Ties,
) -> Result<Vec<ProbePage>, PipelineError> {
    let probe = requester_for(context, scan).probe(boundary.at_ms, boundary.page_rows).await?;
    boundaries.probed(boundary, &probe.keys, belief, probe.is_complete);
    for page in &probe.pages {
        measure_a_tie(context, scan, &moments_of(scan.scope.stream, &page.flat)).await?;
    }
    Ok(probe.pages)
}

/// Measures the service's behaviour at ties, if a measure is due and rows of the page share a millisecond.
async fn measure_a_tie(context: &SyncContext, scan: &Scan, page: &PageMoments) -> Result<(), PipelineError> {
    if !context.ties.begin_measure(scan.scope.stream) {
        return Ok(());
    }
    let outcome = match page.tie_ms {
        Some(at_ms) => measure(context, scan, at_ms).await.map(drop),
        None => Ok(()),
    };
    context.ties.end_measure();
    outcome
}

/// Measures the service's behaviour with the rows of one millisecond, and stores the result. A failed measure counts as
/// `Unknown`, unless the error ends the run.
async fn measure(context: &SyncContext, scan: &Scan, at_ms: i64) -> Result<Ties, PipelineError> {
    let found = match requester_for(context, scan).measure(at_ms).await {
        Err(PipelineError::Source(error)) if !error.ends_the_run() => Ties::Unknown,
        found => found?,
    };
    context.ties.measured(&mut context.state(), found)?;
    Ok(found)
}

/// The decision at the end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAction {
    /// The scan is complete.
    MayEnd,
    /// The scan restarts at the first page: the service loses rows and some boundaries were not probed, or the list
    /// changed during a probe.
    StartOver,
}

/// Decides at the end of the list whether the scan is complete or starts over. Before the decision, measures the
/// service's behaviour at each boundary whose probe returned rows that no page of the list has, until the service may
/// lose rows.
///
/// A scan starts over at most once. If it would have to start over again, it ends, and its window needs a recheck.
pub async fn end_action(
    context: &SyncContext,
    scan: &Scan,
    boundaries: &mut ScanBoundaries,
) -> Result<EndAction, PipelineError> {
    for at_ms in boundaries.missed() {
        if context.ties.belief(scan.scope.stream).may_lose() {
            break;
        }
        let found = measure(context, scan, at_ms).await?;
        if found == Ties::Unknown {
            // Nothing could be measured: the stream has no page sizes, or the answers are inconclusive. The rows count
            // as lost.
            context.ties.measured(&mut context.state(), Ties::Lost)?;
        }
    }
    let loses = context.ties.belief(scan.scope.stream) == Ties::Lost;
    let should_start_over = boundaries.has_changed() || (loses && boundaries.unprobed() > 0);
    Ok(if should_start_over && boundaries.try_again() { EndAction::StartOver } else { EndAction::MayEnd })
}
