//! The boundaries of one scan: each page's boundary is probed at if it is due, before the scan goes past it, or at its end, if by then nothing is
//! known of the service.

use std::path::Path;

use crate::{
    archive::{Recovered, read_pages},
    flatten::flatten_page,
    model::{Scan, Stream, Ties},
    plan::page_boundaries::{PageBoundary, PageMoments, ScanBoundaries},
    source::envelope,
};

use super::{
    super::{PipelineError, sync_context::SyncContext},
    probe::{Asker, ProbePage, TieProbeError},
};

/// What an earlier run left of a scan's boundaries.
#[derive(Debug, Default)]
pub(in super::super) struct BoundariesLeft {
    /// Edges that were passed without a probe, or without one that settled them.
    pub unprobed: u64,
    /// The page from which the scan goes on, if its boundary was not settled.
    pub last_page: Option<Vec<u8>>,
    /// Whether records were taken out of some page: then its boundary is no longer known.
    pub is_redacted: bool,
}

/// The boundaries of a scan that an earlier run began. Where the service may lose rows, those that it passed without a probe wait again, as the
/// pages in the spool tell; that of the last page is left to the caller.
pub(in super::super) fn reopened(
    context: &SyncContext,
    scan: &Scan,
    spool: &Path,
    left: &BoundariesLeft,
) -> Result<ScanBoundaries, PipelineError> {
    let stream = scan.scope.stream;
    if left.unprobed == 0 || left.is_redacted || !context.ties.may_lose(stream) {
        return Ok(ScanBoundaries::new(left.unprobed));
    }
    let window = stream.is_windowed().then_some(scan.window);
    let (mut boundaries, mut probes, mut last_page) = (ScanBoundaries::new(0), Vec::new(), None);
    let mut is_within_a_look = false;
    let mut bodies = read_pages(spool)?;
    while let Some(body) = bodies.next() {
        let body = body?;
        let flat = flatten_page(stream, &body, context.drift.of(stream))?;
        let moments = super::moments_of(stream, &flat);
        if !bodies.is_probe() {
            let before: Option<PageMoments> = last_page.replace(moments);
            before.and_then(|page| boundaries.page(&page, true, window, Ties::Unknown, |_| true));
            is_within_a_look = false;
            continue;
        }
        // A probe of several pages may lack rows at its own boundaries: it is done again.
        let is_last_of_look = envelope::parse(&body).is_ok_and(|side| side.next.is_none());
        if is_last_of_look && !is_within_a_look {
            probes.push(moments);
        }
        is_within_a_look = !is_last_of_look;
    }
    boundaries.forget_probed(&probes);
    Ok(boundaries)
}

/// The boundaries of a scan that came to its end in an earlier run: none waits.
pub(in super::super) fn ended(
    context: &SyncContext,
    scan: &Scan,
    spool: &Path,
    left: &BoundariesLeft,
) -> Result<ScanBoundaries, PipelineError> {
    let mut boundaries = reopened(context, scan, spool, left)?;
    boundaries.pass_waiting();
    Ok(boundaries)
}

impl BoundariesLeft {
    /// A probe is one probe page with an end of its own; anything else is done again.
    pub fn of(recovered: &Recovered) -> BoundariesLeft {
        if recovered.header.scan.scope.stream == Stream::Users {
            // They are no list: nothing hides behind an boundary.
            return BoundariesLeft::default();
        }
        let is_settled = match recovered.last_sides.as_slice() {
            [side] => envelope::parse(side).is_ok_and(|side| side.next.is_none()),
            _ => false,
        };
        // Behind the last page of all stand the probes at boundaries that waited, too: the one is perhaps not its own.
        let is_settled = is_settled && recovered.without_probe == 0;
        let last_page = recovered.last_page.clone().filter(|_| !is_settled);
        BoundariesLeft { unprobed: recovered.without_probe, last_page, is_redacted: recovered.is_any_redacted }
    }
}

/// Whom to ask about a scan.
pub(in super::super) fn asker(context: &SyncContext, scan: &Scan) -> Asker {
    let (source, account) = (context.source.clone(), context.account.clone());
    let rules = context.drift.of(scan.scope.stream);
    Asker { source, account, scope: scan.scope, flags: scan.flags, rules }
}

/// A page came: what hides behind its boundary, if that is due. The rows belong to the scan.
pub(in super::super) async fn after_page(
    context: &SyncContext,
    scan: &Scan,
    boundaries: &mut ScanBoundaries,
    page: &PageMoments,
    has_next: bool,
) -> Result<Vec<ProbePage>, TieProbeError> {
    measure_a_tie(context, scan, page).await?;
    let ties = &context.ties;
    let belief = ties.belief(scan.scope.stream);
    let window = scan.scope.stream.is_windowed().then_some(scan.window);
    let due = boundaries.page(page, has_next, window, belief, |is_shared| ties.is_look_due(belief, is_shared));
    match due {
        Some(boundary) => look_at(context, scan, boundaries, &boundary, belief).await,
        None => Ok(Vec::new()),
    }
}

/// At the end of a scan: what hides behind the next boundary that has waited. `None` when none waits any more.
pub(in super::super) async fn next_waiting(
    context: &SyncContext,
    scan: &Scan,
    boundaries: &mut ScanBoundaries,
) -> Result<Option<Vec<ProbePage>>, TieProbeError> {
    let belief = context.ties.belief(scan.scope.stream);
    match boundaries.next_waiting(belief) {
        Some(boundary) => look_at(context, scan, boundaries, &boundary, belief).await.map(Some),
        None => Ok(None),
    }
}

async fn look_at(
    context: &SyncContext,
    scan: &Scan,
    boundaries: &mut ScanBoundaries,
    boundary: &PageBoundary,
    belief: Ties,
) -> Result<Vec<ProbePage>, TieProbeError> {
    let probe = asker(context, scan).probe(boundary.at_ms, boundary.page_rows).await?;
    boundaries.probed(boundary, &probe.keys, belief, probe.is_whole);
    for side in &probe.pages {
        measure_a_tie(context, scan, &super::moments_of(scan.scope.stream, &side.flat)).await?;
    }
    Ok(probe.pages)
}

/// As soon as a page shows that rows share a millisecond, it is known where to measure.
async fn measure_a_tie(context: &SyncContext, scan: &Scan, page: &PageMoments) -> Result<(), TieProbeError> {
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

async fn measure(context: &SyncContext, scan: &Scan, at_ms: i64) -> Result<Ties, TieProbeError> {
    let found = match asker(context, scan).measure(at_ms).await {
        // The scan goes on without a measure, and probes at each boundary.
        Err(TieProbeError::Source(error)) if !error.ends_the_run() => Ties::Unknown,
        found => found?,
    };
    context.ties.measured(&mut context.state(), found)?;
    Ok(found)
}

/// Whether a scan may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum AtEnd {
    Settled,
    /// The service loses rows and some boundaries were passed in another belief, or it changed under the probes at them.
    StartsOver,
}

/// The end of results was seen. Samples whose rows no page has shown are measured before the belief in them goes on.
pub(in super::super) async fn at_end(
    context: &SyncContext,
    scan: &Scan,
    boundaries: &mut ScanBoundaries,
) -> Result<AtEnd, TieProbeError> {
    for at_ms in boundaries.missed() {
        if context.ties.belief(scan.scope.stream).may_lose() {
            break;
        }
        let found = measure(context, scan, at_ms).await?;
        if found == Ties::Unknown {
            // No page size can be asked for here (themes), or the answers do not tell: the doubt counts.
            context.ties.measured(&mut context.state(), Ties::Lost)?;
        }
    }
    let loses = context.ties.belief(scan.scope.stream) == Ties::Lost;
    let is_worth_another = boundaries.has_changed() || (loses && boundaries.unprobed() > 0);
    Ok(if is_worth_another && boundaries.try_again() { AtEnd::StartsOver } else { AtEnd::Settled })
}
