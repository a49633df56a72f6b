//! The table `survey_status_changes`: changes of survey status that scans see and webhooks report.
//!
//! If a scan and a webhook report the same change, it becomes one row.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{Int64Array, RecordBatch};

use super::{
    access::each_row,
    cells::{Cell, Row, RowBuilder, Stamp},
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        store::{BufferedStore, Filter, KeySet, TableChange},
    },
    model::{DAY_MS, EventKind},
};

const TABLE: &str = "survey_status_changes";
/// Value of the column `seen_by`: only a scan has seen the change.
const SCAN: &str = "scan";
/// Value of the column `seen_by`: only a webhook has reported the change.
const WEBHOOK: &str = "webhook";
/// Value of the column `seen_by`: a scan has seen the change, and a webhook has reported it.
const BOTH: &str = "both";
/// Largest difference, in microseconds, between the times that a scan and a webhook give for the same change.
const SAME_CHANGE_US: u64 = 7 * DAY_MS.unsigned_abs() * 1000;

/// Adds the status changes that new rows of `webhook_events` report. A change that a scan has seen already is marked as
/// [`BOTH`]. Reports about surveys without a stored change are ignored.
pub(super) fn add(store: &mut BufferedStore, new_events: &RecordBatch, stamp: Stamp<'_>) -> Result<(), LoadError> {
    let reports = reports_in(new_events)?;
    if reports.is_empty() {
        return Ok(());
    }
    let mut surveys = known_changes(store, reports.iter().map(|report| report.survey_id))?;
    for report in &reports {
        if let Some(survey) = surveys.get_mut(&report.survey_id) {
            survey.add_report(report);
        }
    }
    write(store, &surveys, stamp)
}

/// The status of a survey before and after a scan. `before` is `None` if the survey is new or had vanished, `after` is
/// `None` if it has vanished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::load) struct ScannedStatus {
    pub survey_id: i64,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// Adds the status changes that a scan saw. A change that a webhook has reported already is marked as [`BOTH`].
/// `statuses` has each survey at most once.
pub(in crate::load) fn add_scanned(
    store: &mut BufferedStore,
    statuses: &[ScannedStatus],
    stamp: Stamp<'_>,
) -> Result<(), LoadError> {
    let mut surveys = known_changes(store, statuses.iter().map(|status| status.survey_id))?;
    for status in statuses {
        surveys.entry(status.survey_id).or_default().add_scanned(status, stamp.at_ms.saturating_mul(1000));
    }
    write(store, &surveys, stamp)
}

/// Removes the replaced rows of all surveys, and writes the added rows.
fn write(store: &mut BufferedStore, surveys: &BTreeMap<i64, SurveyChanges>, stamp: Stamp<'_>) -> Result<(), LoadError> {
    let table = contract(TABLE)?;
    let (mut replaced, mut added) = (RowBuilder::new(table), RowBuilder::new(table));
    for (survey_id, survey) in surveys {
        survey.replaced.iter().try_for_each(|change| replaced.add(|name| cell(name, *survey_id, change, stamp)))?;
        survey.added.iter().try_for_each(|change| added.add(|name| cell(name, *survey_id, change, stamp)))?;
    }
    let mut change = TableChange::new(table);
    change.remove(&replaced.finish()?)?;
    change.add(added.finish()?);
    store.change(change)
}

/// A webhook's report that the status of a survey changed from `old` to `new`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StatusReport {
    survey_id: i64,
    /// When the status changed, in epoch microseconds: the service's time, or `received_us` if the service sent none.
    at_us: i64,
    /// When this machine received the delivery, in epoch microseconds.
    received_us: i64,
    old: String,
    new: String,
}

/// Returns the status reports in rows of `webhook_events`, sorted by time.
fn reports_in(events: &RecordBatch) -> Result<Vec<StatusReport>, LoadError> {
    let mut reports = Vec::new();
    for index in 0..events.num_rows() {
        reports.extend(report_in(Row { rows: events, index })?);
    }
    reports.sort_by_key(|report| (report.at_us, report.received_us));
    Ok(reports)
}

/// Returns the status report in a row of `webhook_events`; `None` for an event of another kind, without the needed
/// values, or with an unchanged status.
fn report_in(event: Row<'_>) -> Result<Option<StatusReport>, LoadError> {
    if event.text("kind")? != EventKind::StudyStatusChanged.name() {
        return Ok(None);
    }
    let (Some(survey_id), Some(old), Some(new)) =
        (event.integer_or_null("survey_id")?, event.text_or_null("old_status")?, event.text_or_null("status")?)
    else {
        return Ok(None);
    };
    let received_us = event.moment_us("received_at")?;
    let at_us = event.moment_us_or_null("occurred_at")?.unwrap_or(received_us);
    let report = StatusReport { survey_id, at_us, received_us, old: old.to_owned(), new: new.to_owned() };
    Ok((old != new).then_some(report))
}

/// A row of `survey_status_changes`. `old` or `new` is `None` before the survey is first seen, and while it is
/// vanished.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StatusChange {
    /// When the status changed, in epoch microseconds.
    at_us: i64,
    old: Option<String>,
    new: Option<String>,
    /// [`SCAN`], [`WEBHOOK`] or [`BOTH`].
    seen_by: String,
}

/// Returns the value of a column of `survey_status_changes` for a change of one survey.
fn cell<'a>(column: &str, survey_id: i64, change: &'a StatusChange, stamp: Stamp<'a>) -> Cell<'a> {
    match column {
        "survey_id" => Cell::Integer(survey_id),
        "changed_at" => Cell::Moment(change.at_us),
        "old_status" => Cell::text_or_null(change.old.as_deref()),
        "new_status" => Cell::text_or_null(change.new.as_deref()),
        "seen_by" => Cell::Text(&change.seen_by),
        other => stamp.cell(other).unwrap_or(Cell::Null),
    }
}

/// The changes of one survey, and the rows to remove and to add.
#[derive(Debug, Default)]
struct SurveyChanges {
    /// The stored changes, sorted by time, and after them the changes that webhooks reported since.
    changes: Vec<StatusChange>,
    /// Stored rows to remove.
    replaced: Vec<StatusChange>,
    /// Rows to add.
    added: Vec<StatusChange>,
}

impl SurveyChanges {
    /// Adds a webhook's report.
    ///
    /// The report is a new change if its old status is the last known status, and it is later than the last change.
    /// Otherwise the report may be late, or an earlier change may be missing, and no change is added: the scan that the
    /// webhook causes will see the status. If only a scan has seen the same change, the change is marked as [`BOTH`],
    /// with the earlier of the two times.
    fn add_report(&mut self, report: &StatusReport) {
        let Some(last) = self.changes.last() else { return };
        if last.new.as_deref() == Some(&report.old) && last.at_us < report.at_us {
            let (old, new) = (Some(report.old.clone()), Some(report.new.clone()));
            let change = StatusChange { at_us: report.at_us, old, new, seen_by: WEBHOOK.into() };
            self.changes.push(change.clone());
            self.added.push(change);
            return;
        }
        let is_same = |change: &&mut StatusChange| {
            change.old.as_deref() == Some(&report.old)
                && change.new.as_deref() == Some(&report.new)
                && change.at_us.abs_diff(report.at_us) <= SAME_CHANGE_US
        };
        let same = self.changes.iter_mut().rev().find(is_same);
        let Some(seen) = same.filter(|change| change.seen_by == SCAN) else { return };
        self.replaced.push(seen.clone());
        (seen.at_us, seen.seen_by) = (seen.at_us.min(report.at_us), BOTH.into());
        self.added.push(seen.clone());
    }

    /// Adds the status that a scan saw. `started_us` is the start of the scan in epoch microseconds.
    ///
    /// If only a webhook reported the last change, and before the scan began, the reported status counts as the status
    /// before the scan. If the scan saw the reported status too, the change is marked as [`BOTH`], and keeps the
    /// webhook's time.
    fn add_scanned(&mut self, status: &ScannedStatus, started_us: i64) {
        let reported = self.changes.last().filter(|last| last.seen_by == WEBHOOK && last.at_us <= started_us);
        if let Some(reported) = reported.filter(|reported| reported.new == status.after) {
            self.replaced.push(reported.clone());
            self.added.push(StatusChange { seen_by: BOTH.into(), ..reported.clone() });
        }
        let old = reported.and_then(|reported| reported.new.clone()).or_else(|| status.before.clone());
        let new = status.after.clone();
        if old != new {
            self.added.push(StatusChange { at_us: started_us, old, new, seen_by: SCAN.into() });
        }
    }
}

/// Returns the stored changes of these surveys, by survey. Surveys without a stored change are left out.
fn known_changes(
    store: &mut BufferedStore,
    survey_ids: impl Iterator<Item = i64>,
) -> Result<BTreeMap<i64, SurveyChanges>, LoadError> {
    let table = contract(TABLE)?;
    let ids = Int64Array::from_iter_values(survey_ids);
    let wanted = KeySet::of_values("survey_id", Arc::new(ids))?;
    let mut surveys: BTreeMap<i64, SurveyChanges> = BTreeMap::new();
    each_row(store, table, &Filter::all().with_keys(&wanted), &mut |row| {
        let text = |name| row.text_or_null(name).map(|text| text.map(str::to_owned));
        let change = StatusChange {
            at_us: row.moment_us("changed_at")?,
            old: text("old_status")?,
            new: text("new_status")?,
            seen_by: row.text("seen_by")?.to_owned(),
        };
        surveys.entry(row.integer("survey_id")?).or_default().changes.push(change);
        Ok(())
    })?;
    for survey in surveys.values_mut() {
        survey.changes.sort_by(|left, right| (left.at_us, &left.new).cmp(&(right.at_us, &right.new)));
    }
    Ok(surveys)
}

#[cfg(test)]
mod tests;
