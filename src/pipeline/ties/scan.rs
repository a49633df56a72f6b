//! The edges of one scan: each page's edge is looked at if it is due, before the scan goes past it, or at its end, if
//! by then nothing is known of the service.

use std::path::Path;

use crate::{
    archive::{Recovered, read_pages},
    flatten::flatten_page,
    model::{Scan, Stream, Ties},
    plan::edges::{Edge, PageMoments, ScanEdges},
    source::envelope,
};

use super::{
    super::{PipelineError, sync_context::SyncContext},
    look::{Asker, LookError, SidePage},
};

/// What an earlier run left of a scan's edges.
#[derive(Debug, Default)]
pub(in super::super) struct EdgesLeft {
    /// Edges that were passed without a look, or without one that settled them.
    pub unlooked: u64,
    /// The page from which the scan goes on, if its edge was not settled.
    pub last_page: Option<Vec<u8>>,
    /// Whether records were taken out of some page: then its edge is no longer known.
    pub is_less: bool,
}

/// The edges of a scan that an earlier run began. Where the service may lose rows, those that it passed without a look
/// wait again, as the pages in the spool tell; that of the last page is left to the caller.
pub(in super::super) fn reopened(
    context: &SyncContext,
    scan: &Scan,
    spool: &Path,
    left: &EdgesLeft,
) -> Result<ScanEdges, PipelineError> {
    let stream = scan.scope.stream;
    if left.unlooked == 0 || left.is_less || !context.ties.may_lose(stream) {
        return Ok(ScanEdges::new(left.unlooked));
    }
    let window = stream.is_windowed().then_some(scan.window);
    let (mut edges, mut looks, mut last_page) = (ScanEdges::new(0), Vec::new(), None);
    let mut is_within_a_look = false;
    let mut bodies = read_pages(spool).map_err(PipelineError::Archive)?;
    while let Some(body) = bodies.next() {
        let body = body.map_err(PipelineError::Archive)?;
        let flat = flatten_page(stream, &body, context.drift.of(stream)).map_err(PipelineError::Flatten)?;
        let moments = super::moments_of(stream, &flat);
        if !bodies.is_side() {
            let before: Option<PageMoments> = last_page.replace(moments);
            before.and_then(|page| edges.page(&page, true, window, Ties::Unknown, |_| true));
            is_within_a_look = false;
            continue;
        }
        // A look of several pages may lack rows at its own edges: it is done again.
        let is_last_of_look = envelope::parse(&body).is_ok_and(|side| side.next.is_none());
        if is_last_of_look && !is_within_a_look {
            looks.push(moments);
        }
        is_within_a_look = !is_last_of_look;
    }
    edges.forget_looked(&looks);
    Ok(edges)
}

/// The edges of a scan that came to its end in an earlier run: none waits.
pub(in super::super) fn ended(
    context: &SyncContext,
    scan: &Scan,
    spool: &Path,
    left: &EdgesLeft,
) -> Result<ScanEdges, PipelineError> {
    let mut edges = reopened(context, scan, spool, left)?;
    edges.pass_waiting();
    Ok(edges)
}

impl EdgesLeft {
    /// A look is one side page with an end of its own; anything else is done again.
    pub fn of(recovered: &Recovered) -> EdgesLeft {
        if recovered.header.scan.scope.stream == Stream::Users {
            // They are no list: nothing hides behind an edge.
            return EdgesLeft::default();
        }
        let is_settled = match recovered.last_sides.as_slice() {
            [side] => envelope::parse(side).is_ok_and(|side| side.next.is_none()),
            _ => false,
        };
        // Behind the last page of all stand the looks at edges that waited, too: the one is perhaps not its own.
        let is_settled = is_settled && recovered.without_side == 0;
        let last_page = recovered.last_page.clone().filter(|_| !is_settled);
        EdgesLeft { unlooked: recovered.without_side, last_page, is_less: recovered.is_any_less }
    }
}

/// Whom to ask about a scan.
pub(in super::super) fn asker(context: &SyncContext, scan: &Scan) -> Asker {
    let (source, account) = (context.source.clone(), context.account.clone());
    let rules = context.drift.of(scan.scope.stream);
    Asker { source, account, scope: scan.scope, flags: scan.flags, rules }
}

/// A page came: what hides behind its edge, if that is due. The rows belong to the scan.
pub(in super::super) async fn after_page(
    context: &SyncContext,
    scan: &Scan,
    edges: &mut ScanEdges,
    page: &PageMoments,
    has_next: bool,
) -> Result<Vec<SidePage>, LookError> {
    measure_a_tie(context, scan, page).await?;
    let ties = &context.ties;
    let belief = ties.belief(scan.scope.stream);
    let window = scan.scope.stream.is_windowed().then_some(scan.window);
    let due = edges.page(page, has_next, window, belief, |is_shared| ties.is_look_due(belief, is_shared));
    match due {
        Some(edge) => look_at(context, scan, edges, &edge, belief).await,
        None => Ok(Vec::new()),
    }
}

/// At the end of a scan: what hides behind the next edge that has waited. `None` when none waits any more.
pub(in super::super) async fn next_waiting(
    context: &SyncContext,
    scan: &Scan,
    edges: &mut ScanEdges,
) -> Result<Option<Vec<SidePage>>, LookError> {
    let belief = context.ties.belief(scan.scope.stream);
    match edges.next_waiting(belief) {
        Some(edge) => look_at(context, scan, edges, &edge, belief).await.map(Some),
        None => Ok(None),
    }
}

async fn look_at(
    context: &SyncContext,
    scan: &Scan,
    edges: &mut ScanEdges,
    edge: &Edge,
    belief: Ties,
) -> Result<Vec<SidePage>, LookError> {
    let look = asker(context, scan).look(edge.at_ms, edge.page_rows).await?;
    edges.looked(edge, &look.keys, belief, look.is_whole);
    for side in &look.pages {
        measure_a_tie(context, scan, &super::moments_of(scan.scope.stream, &side.flat)).await?;
    }
    Ok(look.pages)
}

/// As soon as a page shows that rows share a millisecond, it is known where to measure.
async fn measure_a_tie(context: &SyncContext, scan: &Scan, page: &PageMoments) -> Result<(), LookError> {
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

async fn measure(context: &SyncContext, scan: &Scan, at_ms: i64) -> Result<Ties, LookError> {
    let found = match asker(context, scan).measure(at_ms).await {
        // The scan goes on without a measure, and looks at each edge.
        Err(LookError::Source(error)) if !error.ends_the_run() => Ties::Unknown,
        found => found?,
    };
    context.ties.measured(&mut context.state(), found)?;
    Ok(found)
}

/// Whether a scan may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum AtEnd {
    Settled,
    /// The service loses rows and some edges were passed in another belief, or it changed under the looks at them.
    StartsOver,
}

/// The end of results was seen. Samples whose rows no page has shown are measured before the belief in them goes on.
pub(in super::super) async fn at_end(
    context: &SyncContext,
    scan: &Scan,
    edges: &mut ScanEdges,
) -> Result<AtEnd, LookError> {
    for at_ms in edges.missed() {
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
    let is_worth_another = edges.has_changed() || (loses && edges.unlooked() > 0);
    Ok(if is_worth_another && edges.try_again() { AtEnd::StartsOver } else { AtEnd::Settled })
}
