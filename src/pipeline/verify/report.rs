//! The report of a verify, as `--json` prints it.
//!
//! Scans one window of a verify into a spool that no checkpoint names, then compares the scan with each warehouse.

use std::{borrow::Borrow, collections::BTreeMap, sync::Arc};

use serde::Serialize;

use crate::{
    archive::Archive,
    load::{Difference, Differences},
    model::{Activity, RunId, Scan, ScanId, format_ms},
    pipeline::{
        error::{Failure, PipelineError},
        report::ReportHeader,
        scan::{
            context::SyncContext,
            pull::{PullError, pull},
            shared_destination::SharedDestination,
            states::{CompletedScan, OpenScan, PulledPages},
        },
    },
    source::RequestStats,
};

use super::plan::{CompareTask, Range, StreamRange};

/// A window that was compared with each warehouse.
#[derive(Clone, Debug, Serialize)]
pub struct VerifiedWindow {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
    #[serde(skip)]
    pub start_ms: i64,
    #[serde(flatten)]
    pub range: Range,
    /// When a run last read the window. Later changes at the service appear as differences, too.
    pub last_read: String,
    pub service_rows: u64,
    pub warehouses: BTreeMap<&'static str, Differences>,
}

impl VerifiedWindow {
    pub(super) fn new(task: &CompareTask, warehouses: BTreeMap<&'static str, Differences>) -> Self {
        VerifiedWindow {
            stream: task.scope.stream.name(),
            survey_id: task.scope.survey_id,
            start_ms: task.window.start_ms,
            range: task.window.into(),
            last_read: format_ms(task.purpose.read_ms.div_euclid(1000) * 1000),
            service_rows: warehouses.values().map(|found| found.service_rows).max().unwrap_or(0),
            warehouses,
        }
    }

    /// Returns true if this window is later than the window of the task, and of the same scope.
    pub(super) fn follows(&self, task: &CompareTask) -> bool {
        let is_same_scope = (self.stream, self.survey_id) == (task.scope.stream.name(), task.scope.survey_id);
        is_same_scope && self.start_ms > task.window.start_ms
    }

    /// Returns true if no warehouse differs.
    pub fn is_equal(&self) -> bool {
        self.warehouses.values().all(Differences::is_equal)
    }
}

/// Sums over all windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyTotals {
    pub windows: u64,
    /// Windows in which some warehouse differs.
    pub windows_differing: u64,
    pub service_rows: u64,
    pub warehouses: BTreeMap<&'static str, WarehouseTotals>,
    /// Number of ranges that no complete scan has covered.
    pub never_read: u64,
}

/// The sums of one warehouse over all windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WarehouseTotals {
    pub rows: u64,
    pub missing: u64,
    pub extra: u64,
    pub stale: u64,
}

impl VerifyTotals {
    /// Sums the differences of the compared windows.
    pub(super) fn of(windows: &[VerifiedWindow], never_read: &[StreamRange]) -> Self {
        let mut totals =
            VerifyTotals { windows: windows.len() as u64, never_read: never_read.len() as u64, ..Self::default() };
        for window in windows {
            totals.windows_differing += u64::from(!window.is_equal());
            totals.service_rows += window.service_rows;
            for (name, found) in &window.warehouses {
                let sums = totals.warehouses.entry(name).or_default();
                sums.rows += found.rows;
                sums.missing += found.missing.rows;
                sums.extra += found.extra.rows;
                sums.stale += found.stale.rows;
            }
        }
        totals
    }

    /// Returns true if the whole range was read before, and no warehouse differs.
    pub fn is_clean(&self) -> bool {
        self.windows_differing == 0 && self.never_read == 0
    }
}

/// The report of a verify.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    pub run_id: RunId,
    #[serde(flatten)]
    pub header: ReportHeader,
    /// The range to verify. `None` if the verify ended before the range was known.
    pub range: Option<Range>,
    pub windows: Vec<VerifiedWindow>,
    /// The time ranges that no complete scan has covered.
    pub never_read: Vec<StreamRange>,
    /// The windows that failed, while a later window of the same stream was compared. `failures` has the errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<StreamRange>,
    pub totals: VerifyTotals,
    pub requests: RequestStats,
    /// The creation time at which another verify can resume. All windows before this time were compared, except for
    /// `not_compared`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
    /// Windows that could not be scanned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Further notes for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

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

impl Borrow<CompletedScan> for ServiceWindow {
    fn borrow(&self) -> &CompletedScan {
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
