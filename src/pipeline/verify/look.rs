//! One window: pulled to its end like that of any run, into a spool that nothing remembers,
//! then held against each warehouse.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    archive::Archive,
    clock,
    load::{Difference, Differences},
    model::{Activity, RunId, Scan, ScanId},
};

use super::{
    super::{
        PipelineError,
        assemble::failed,
        pull::{PullError, pull},
        pulled_pages::PulledPages,
        scan::{CompletedScan, OpenScan},
        shared_destination::SharedDestination,
        sync_context::SyncContext,
        ties::EdgesLeft,
    },
    task::Task,
};

/// Removes the spool of a look when it is dropped.
/// What stays after a kill is removed by the next run, since nobody owns it.
struct Spooled {
    archive: Archive,
    scan: ScanId,
}

impl Drop for Spooled {
    fn drop(&mut self) {
        self.archive.discard(&self.scan).ok();
    }
}

/// A window as the service has it now.
pub(super) struct Looked {
    pulled: CompletedScan,
    /// Whether the service may have lost rows at the edges of pages, so that a row that it did not return may be there.
    pub is_doubtful: bool,
    /// Whether the list does not show all that the service has of the window.
    may_lack_rows: bool,
    _spooled: Spooled,
}

/// Pulls the window to its end. The checkpoints do not know of it: what `pull` tells them of a scan touches no row.
pub(super) async fn look(context: &SyncContext, task: &Task, run_id: RunId) -> Result<Looked, PullError> {
    let here_ms = clock::now_ms();
    let scan = Scan {
        id: ScanId::new(here_ms),
        run_id,
        scope: task.scope,
        window: task.window,
        flags: task.flags,
        started_ms: context.source.service_now_ms().unwrap_or(here_ms),
    };
    let spool = context.archive.begin(&scan).map_err(PipelineError::Archive)?;
    let spooled = Spooled { archive: context.archive.clone(), scan: scan.id.clone() };
    let (edges, page_rows) = (EdgesLeft::default(), task.page_rows);
    let begun = OpenScan { scan, page_rows, spool, rows: 0, next: None, end: None, edges, is_part: task.is_part };
    let pulled = pull(context.clone(), begun).await?;
    let is_doubtful = context.ties.is_doubtful(&pulled.scan, &pulled.edges);
    let may_lack_rows = task.is_part_of_all || context.theme_times.may_lack_rows(task.scope.stream);
    Ok(Looked { pulled, is_doubtful, may_lack_rows, _spooled: spooled })
}

/// Holds the window against each warehouse, one thread each.
pub(super) async fn compare(
    context: &SyncContext,
    destinations: &[SharedDestination],
    looked: Looked,
    keys_max: usize,
) -> Result<BTreeMap<&'static str, Differences>, PipelineError> {
    let looked = Arc::new(looked);
    let threads = destinations.iter().map(|destination| {
        let (looked, account) = (Arc::clone(&looked), context.account.clone());
        destination.work(move |destination| {
            let _busy = account.enter(Activity::Write);
            let (name, pulled) = (destination.name(), &looked.pulled);
            let pages = PulledPages::of(pulled);
            let mut differences = destination.compare(&pulled.scan, &pages, keys_max).map_err(failed(name))?;
            if looked.may_lack_rows {
                differences.extra = Difference::default();
            }
            Ok::<_, PipelineError>((name, differences))
        })
    });
    let mut all = BTreeMap::new();
    for compared in futures::future::join_all(threads).await {
        let (name, differences) = compared??;
        all.insert(name, differences);
    }
    Ok(all)
}
