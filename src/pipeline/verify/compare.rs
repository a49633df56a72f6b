//! Scans one window of a verify into a spool that no checkpoint names, then compares the scan with each warehouse.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    archive::Archive,
    load::{Difference, Differences},
    model::{Activity, Scan, ScanId},
};

use super::super::{
    PipelineError,
    pull::{PullError, pull},
    pulled_pages::PulledPages,
    scan::{CompletedScan, OpenScan},
    shared_destination::SharedDestination,
    sync_context::SyncContext,
};

/// Removes a spool when it is dropped. After a kill the next run removes the spool, because no checkpoint names it.
struct SpoolGuard {
    archive: Archive,
    scan: ScanId,
}

impl Drop for SpoolGuard {
    fn drop(&mut self) {
        self.archive.discard(&self.scan).ok();
    }
}

/// A window as the service has it now. Its spool is removed when the value is dropped.
pub(super) struct ServiceWindow {
    pub scan: CompletedScan,
    _spool: SpoolGuard,
}

impl AsRef<CompletedScan> for ServiceWindow {
    fn as_ref(&self) -> &CompletedScan {
        &self.scan
    }
}

/// Scans a window to the end of its list. `is_half` is true for a half of a window that the service could not deliver.
/// No checkpoint names the scan, so the progress that `pull` stores changes no row of the checkpoints.
pub(super) async fn scan_window(
    context: SyncContext,
    scan: Scan,
    page_rows: u32,
    is_half: bool,
) -> Result<ServiceWindow, PullError> {
    let spool = context.archive.begin(&scan).map_err(PipelineError::Archive)?;
    let guard = SpoolGuard { archive: context.archive.clone(), scan: scan.id.clone() };
    let open = OpenScan { is_half, ..OpenScan::new(scan, page_rows, spool) };
    Ok(ServiceWindow { scan: pull(context, open).await?, _spool: guard })
}

/// Compares a scanned window with each warehouse, each on its own thread. Returns the differences by warehouse.
///
/// If `is_filtered` is true, the scan may lack rows that the service has, so a row that only a warehouse has is no
/// difference. `keys_max` is the maximum number of keys that each difference lists.
pub(super) async fn compare(
    context: &SyncContext,
    destinations: &[SharedDestination],
    window: ServiceWindow,
    is_filtered: bool,
    keys_max: usize,
) -> Result<BTreeMap<&'static str, Differences>, PipelineError> {
    let window = Arc::new(window);
    let threads = destinations.iter().map(|destination| {
        let (window, account) = (Arc::clone(&window), context.account.clone());
        destination.work(move |destination| {
            let _busy = account.enter(Activity::Write);
            let scan = &window.scan;
            let mut differences = destination.compare(&scan.scan, &PulledPages::of(scan), keys_max)?;
            if is_filtered {
                differences.extra = Difference::default();
            }
            Ok((destination.name(), differences))
        })
    });
    let mut all = BTreeMap::new();
    for compared in futures::future::join_all(threads).await {
        let (name, differences) = compared?;
        all.insert(name, differences);
    }
    Ok(all)
}
