//! One window: pulled to its end into a spool that nothing remembers, then held against each warehouse.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use crate::{
    archive::Archive,
    clock,
    flatten::flatten_page,
    load::Differences,
    model::{Activity, RunId, Scan, ScanId},
    source::{SourceError, Step},
};

use super::{
    super::{
        PipelineError,
        assemble::failed,
        commit::{SharedDestination, lock},
        held::Held,
        pull::{Shared, blocking},
    },
    Task,
};

/// A window as the service has it now. Dropping it removes its spool.
pub(super) struct Looked {
    pub scan: Scan,
    pub rows: u64,
    held: Held,
    spool: PathBuf,
    archive: Archive,
}

impl Drop for Looked {
    fn drop(&mut self) {
        // What stays is removed by the next run.
        self.archive.discard(&self.scan.id).ok();
    }
}

/// Why a window was not pulled to its end.
pub(super) enum LookError {
    Source(SourceError),
    Run(PipelineError),
}

impl From<PipelineError> for LookError {
    fn from(error: PipelineError) -> Self {
        LookError::Run(error)
    }
}

/// Pulls the window to its end.
pub(super) async fn look(shared: &Shared, task: &Task, run_id: RunId) -> Result<Looked, LookError> {
    let here_ms = clock::now_ms();
    let scan = Scan {
        id: ScanId::new(here_ms),
        run_id,
        scope: task.scope,
        window: task.window,
        flags: task.flags,
        started_ms: shared.source.service_now_ms().unwrap_or(here_ms),
    };
    let mut spool = shared.archive.begin(&scan).map_err(PipelineError::Archive)?;
    let mut looked = Looked {
        held: Held::new(&shared.budget),
        spool: spool.path().to_owned(),
        archive: shared.archive.clone(),
        rows: 0,
        scan,
    };
    let mut walk = shared.source.walk(task.request());
    loop {
        match walk.next().await {
            Ok(Step::Page(page)) => {
                shared.progress.pulled(page.rows as u64);
                let (account, stream) = (shared.account.clone(), task.scope.stream);
                let is_last = page.next.is_none();
                let (kept, flat) = blocking(move || {
                    let _busy = account.enter(Activity::Parse);
                    spool.append(&page.body).map_err(PipelineError::Archive)?;
                    let flat = flatten_page(stream, &page.body).map_err(PipelineError::Flatten)?;
                    Ok::<_, PipelineError>((spool, flat))
                })
                .await??;
                spool = kept;
                looked.rows += flat.records as u64;
                looked.held.push(flat);
                if is_last {
                    return Ok(looked);
                }
            }
            Ok(Step::Restarted { .. }) => {
                spool.restart().map_err(PipelineError::Archive)?;
                looked.held.restart();
                looked.rows = 0;
            }
            Ok(Step::End(_)) => return Ok(looked),
            Err(error) => return Err(LookError::Source(error)),
        }
    }
}

/// Holds the window against each warehouse, one thread each.
pub(super) async fn compare(
    shared: &Shared,
    destinations: &[SharedDestination],
    looked: Looked,
) -> Result<BTreeMap<&'static str, Differences>, PipelineError> {
    let looked = Arc::new(looked);
    let threads = destinations.iter().map(|destination| {
        let (destination, looked) = (Arc::clone(destination), Arc::clone(&looked));
        let account = shared.account.clone();
        blocking(move || {
            let _busy = account.enter(Activity::Write);
            let mut destination = lock(&destination);
            let name = destination.name();
            destination.begin(&looked.scan).map_err(failed(name))?;
            let stream = looked.scan.scope.stream;
            let staged = looked.held.for_each(stream, &looked.spool, |page| destination.stage(page))?;
            staged.map_err(failed(name))?;
            let differences = destination.compare(&looked.scan).map_err(failed(name))?;
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
