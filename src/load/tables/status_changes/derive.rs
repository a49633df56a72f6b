//! Derives the status changes of one survey: a pure function of what scans saw and what webhooks reported.
//!
//! 1. A scan is always right: from its start, the survey has the status that the scan saw.
//! 2. A webhook counts from its moment if its old status is the status at this moment. It counts until a scan sees
//!    another status. A webhook about a survey that no scan has seen, or that has vanished, does not count.
//! 3. If both saw a change, it is one change, at the time of the webhook or the scan, whichever is earlier.
//! 4. If `launchedAt` or `completedAt` lies between the evidence before the change and the scan that saw it, this is
//!    the time of the change. For the first status of a survey there is no evidence before. A draft that was launched
//!    and completed between two scans has both changes.

use std::collections::BTreeMap;

use crate::model::DAY_MS;

/// Value of the column `seen_by`: only a scan has seen the change.
pub(super) const SCAN: &str = "scan";
/// Value of the column `seen_by`: only a webhook has reported the change.
pub(super) const WEBHOOK: &str = "webhook";
/// Value of the column `seen_by`: a scan has seen the change, and a webhook has reported it.
pub(super) const BOTH: &str = "both";
/// How long after a scan saw a change a webhook still counts as a report of this change, in microseconds.
const LATE_REPORT_US: i64 = 7 * DAY_MS * 1000;

/// What a scan saw of a survey. The default value is a survey that has vanished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observation {
    /// `None` if the survey has vanished, or has no status.
    pub status: Option<String>,
    /// The survey's `launchedAt`, in epoch microseconds.
    pub launched_us: Option<i64>,
    /// The survey's `completedAt`, in epoch microseconds.
    pub completed_us: Option<i64>,
}

/// A webhook's report that the status of a survey changed from `old` to `new`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::load) struct StatusReport {
    pub survey_id: i64,
    /// When the status changed, in epoch microseconds: the service's time, or the time of receipt if the service sent
    /// none.
    pub at_us: i64,
    /// When this machine received the delivery, in epoch microseconds.
    pub received_us: i64,
    pub old: String,
    pub new: String,
    /// The run that stored the event.
    pub run_id: String,
    /// When the event was stored, in epoch milliseconds.
    pub applied_ms: i64,
}

/// A row of `survey_status_changes`. `old` or `new` is `None` before the survey is first seen, and while it is
/// vanished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatusChange {
    /// When the status changed, in epoch microseconds.
    pub at_us: i64,
    pub old: Option<String>,
    pub new: Option<String>,
    /// [`SCAN`], [`WEBHOOK`] or [`BOTH`].
    pub seen_by: String,
    /// Start of the first scan that saw the new status, in epoch microseconds; `None` if no scan has seen it.
    pub scanned_us: Option<i64>,
}

/// Returns the status changes of a survey in order of time, each later than the one before. `observations` are keyed by
/// the start of the scan, in epoch microseconds. `reports` may be in any order.
pub(super) fn derive(observations: &BTreeMap<i64, Observation>, reports: &[&StatusReport]) -> Vec<StatusChange> {
    let mut reports = reports.to_vec();
    reports.sort_by_key(|report| (report.at_us, report.received_us, &report.old, &report.new));
    let mut reports = reports.as_slice();
    let mut timeline = Timeline::default();
    for (at_us, observation) in observations {
        let (before, rest) = reports.split_at(reports.partition_point(|report| report.at_us <= *at_us));
        timeline.add_reports(before);
        timeline.add_observation(*at_us, observation);
        reports = rest;
    }
    timeline.add_reports(reports);
    timeline.changes
}

/// The changes up to some moment.
#[derive(Default)]
struct Timeline {
    changes: Vec<StatusChange>,
    /// Start of the last scan, in epoch microseconds.
    scanned_us: Option<i64>,
}

impl Timeline {
    /// Adds reports that are sorted by time. Of reports of one moment, a report comes first whose old status is the
    /// current status; of several, one that another report follows.
    fn add_reports(&mut self, reports: &[&StatusReport]) {
        for of_moment in reports.chunk_by(|one, other| one.at_us == other.at_us) {
            let mut waiting = of_moment.to_vec();
            while !waiting.is_empty() {
                let follows = |report: &&StatusReport| self.status() == Some(&report.old);
                let has_next = |report: &StatusReport| waiting.iter().any(|next| next.old == report.new);
                let next = waiting.iter().position(|report| follows(report) && has_next(report));
                let next = next.or_else(|| waiting.iter().position(follows)).unwrap_or(0);
                self.add_report(waiting.remove(next));
            }
        }
    }

    fn status(&self) -> Option<&str> {
        self.changes.last().and_then(|last| last.new.as_deref())
    }

    /// Adds a report as a change, or as a late report of a change that a scan has seen. Ignores other reports: they
    /// may be late, or an earlier report may be missing.
    fn add_report(&mut self, report: &StatusReport) {
        if self.status() == Some(&report.old) {
            self.push(report.at_us, Some(report.new.clone()), WEBHOOK, None);
            return;
        }
        let is_same = |change: &&mut StatusChange| {
            change.old.as_deref() == Some(&report.old)
                && change.new.as_deref() == Some(&report.new)
                && report.at_us.saturating_sub(change.at_us) <= LATE_REPORT_US
        };
        if let Some(same) = self.changes.iter_mut().rev().find(is_same).filter(|same| same.seen_by == SCAN) {
            same.seen_by = BOTH.to_owned();
        }
    }

    /// Adds what the scan that began at `at_us` saw.
    fn add_observation(&mut self, at_us: i64, seen: &Observation) {
        let earlier_scan_us = self.scanned_us.replace(at_us);
        // Of a webhook and a scan of one moment, the scan is right.
        while self.status() != seen.status.as_deref()
            && self.changes.pop_if(|last| last.seen_by == WEBHOOK && last.at_us >= at_us).is_some()
        {}
        if self.status() != seen.status.as_deref() {
            let is_first = self.changes.is_empty();
            let after_us = self.changes.last().map(|last| last.at_us).max(earlier_scan_us);
            let launched_us = seen.launched_us.filter(|moment| is_between(*moment, after_us, at_us));
            let moment_us = seen.moment_after(self.status(), is_first, after_us, at_us);
            if let (Some("COMPLETED"), Some(launched_us)) = (seen.status.as_deref(), launched_us)
                && is_draft(self.status())
                && moment_us.is_some_and(|completed_us| launched_us < completed_us)
            {
                self.push(launched_us, Some("IN_PROGRESS".to_owned()), SCAN, Some(at_us));
            }
            self.push(moment_us.unwrap_or(at_us), seen.status.clone(), SCAN, Some(at_us));
            return;
        }
        let Some((last, before)) = self.changes.split_last_mut() else { return };
        if last.scanned_us.is_none() && last.seen_by == WEBHOOK {
            let before_us = before.last().map(|before| before.at_us).max(earlier_scan_us);
            let moment = seen.moment_after(last.old.as_deref(), false, before_us, at_us);
            last.at_us = moment.unwrap_or(last.at_us);
            (last.seen_by, last.scanned_us) = (BOTH.to_owned(), Some(at_us));
        }
    }

    /// Adds a change after the last one.
    fn push(&mut self, at_us: i64, new: Option<String>, seen_by: &str, scanned_us: Option<i64>) {
        let last = self.changes.last();
        let at_us = last.map_or(at_us, |last| at_us.max(last.at_us.saturating_add(1)));
        let old = last.and_then(|last| last.new.clone());
        self.changes.push(StatusChange { at_us, old, new, seen_by: seen_by.to_owned(), scanned_us });
    }
}

impl Observation {
    /// Returns the moment, known to the service, at which the survey got its status. Returns `None` if the service
    /// knows none that is after `after_us` and not after the scan, which began at `scan_us`. `old` is the status
    /// before; `is_first` is true for the first status of the survey.
    fn moment_after(&self, old: Option<&str>, is_first: bool, after_us: Option<i64>, scan_us: i64) -> Option<i64> {
        let moment_us = match self.status.as_deref()? {
            "IN_PROGRESS" => self.launched_us,
            "COMPLETED" => self.completed_us.or(self.launched_us.filter(|_| is_draft(old))),
            // A survey that is no draft any more was launched.
            status if !is_first && is_draft(old) && !is_draft(Some(status)) => self.launched_us,
            _ => None,
        };
        moment_us.filter(|moment_us| is_between(*moment_us, after_us, scan_us))
    }
}

/// Returns true for the statuses of a survey that was not launched yet.
fn is_draft(status: Option<&str>) -> bool {
    matches!(status, Some("NEW" | "DRAFT"))
}

/// Returns true if a moment is after `after_us`, if there is one, and not after the scan.
fn is_between(moment_us: i64, after_us: Option<i64>, scan_us: i64) -> bool {
    after_us.is_none_or(|after_us| moment_us > after_us) && moment_us <= scan_us
}

#[cfg(test)]
mod tests;
