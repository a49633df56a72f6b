//! The table `survey_status_changes`: changes of survey status that scans see and webhooks report.
//!
//! The rows are derived from the stored versions of surveys, the stored webhook events, and the scans that confirmed or
//! contradicted a webhook (the column `scanned_at`). [`update`] derives all rows again after each scan of surveys and
//! after each new report, and writes the rows that differ. So rows of earlier versions of the program are corrected,
//! too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::array::StringArray;

pub(in crate::load) use self::derive::StatusReport;
use self::derive::{Observation, SCAN, StatusChange, derive};
use super::{
    access::each_row,
    cells::{Cell, Row, RowBuilder, Stamp},
};
use crate::{
    load::{
        LoadError, Pages, Wanted,
        contract::contract,
        store::{BufferedStore, Filter, KeySet, TableChange, number_column},
    },
    model::{EventKind, Scan},
};

mod derive;

const TABLE: &str = "survey_status_changes";
/// The columns of `webhook_events` that [`report_in`] reads.
const REPORT_COLUMNS: [&str; 7] =
    ["received_at", "occurred_at", "survey_id", "old_status", "status", "_run_id", "_synced_at"];
/// The columns of `survey_history` that [`Evidence`] is read from.
const VERSION_COLUMNS: [&str; 6] = ["id", "status", "launched_at", "completed_at", "valid_from", "valid_to"];

/// The surveys that a scan returned.
#[derive(Clone, Debug)]
pub(in crate::load) struct SeenSurveys {
    /// Start of the scan, in epoch microseconds.
    started_us: i64,
    ids: BTreeSet<i64>,
}

impl SeenSurveys {
    /// Reads the ids of the surveys in the pages of a scan.
    pub fn of(scan: &Scan, pages: &dyn Pages) -> Result<Self, LoadError> {
        let mut ids = BTreeSet::new();
        pages.for_each(Wanted::Summaries, &mut |page| {
            if let Some(rows) = page.table("surveys") {
                ids.extend(number_column(rows, "id")?.values().iter().copied());
            }
            Ok(())
        })?;
        Ok(Self { started_us: scan.started_ms.saturating_mul(1000), ids })
    }
}

/// Returns the changes of status that the stored events report, in the order in which the events were stored.
pub(in crate::load) fn stored_reports(store: &mut BufferedStore) -> Result<Vec<StatusReport>, LoadError> {
    let kind = StringArray::from_iter_values([EventKind::StudyStatusChanged.name()]);
    let kind = KeySet::of_values("kind", Arc::new(kind))?;
    let mut reports = Vec::new();
    store.read(contract("webhook_events")?, &REPORT_COLUMNS, &Filter::all().with_keys(&kind), &mut |rows| {
        for index in 0..rows.num_rows() {
            reports.extend(report_in(Row { rows: &rows, index })?);
        }
        Ok(())
    })?;
    reports.sort_by(|one: &StatusReport, other| {
        (one.applied_ms, &one.run_id, one.at_us).cmp(&(other.applied_ms, &other.run_id, other.at_us))
    });
    Ok(reports)
}

/// Returns the report in a row of `webhook_events`; `None` for an event without the needed values, or with an unchanged
/// status.
fn report_in(event: Row<'_>) -> Result<Option<StatusReport>, LoadError> {
    let (Some(survey_id), Some(old), Some(new)) =
        (event.integer_or_null("survey_id")?, event.text_or_null("old_status")?, event.text_or_null("status")?)
    else {
        return Ok(None);
    };
    let received_us = event.moment_us("received_at")?;
    let report = StatusReport {
        survey_id,
        at_us: event.moment_us_or_null("occurred_at")?.unwrap_or(received_us),
        received_us,
        old: old.to_owned(),
        new: new.to_owned(),
        run_id: event.text("_run_id")?.to_owned(),
        applied_ms: event.moment_ms("_synced_at")?,
    };
    Ok((old != new).then_some(report))
}

/// Derives the status changes of all surveys again, and writes the rows that differ from the stored ones. `reports` are
/// the reports that count. `seen` are the surveys of a scan that was just applied; `None` if no scan was applied.
pub(in crate::load) fn update(
    store: &mut BufferedStore,
    reports: &[StatusReport],
    seen: Option<&SeenSurveys>,
    stamp: Stamp<'_>,
) -> Result<(), LoadError> {
    let table = contract(TABLE)?;
    let mut evidence = read_evidence(store)?;
    for report in reports {
        if let Some(survey) = evidence.get_mut(&report.survey_id) {
            survey.reports.push(report);
        }
    }
    let (mut removed, mut added) = (RowBuilder::new(table), RowBuilder::new(table));
    for (survey_id, survey) in &evidence {
        let scanned = seen.filter(|seen| seen.ids.contains(survey_id)).map(|seen| seen.started_us);
        let derived = derive(&survey.observations(scanned), &survey.reports);
        let stale: Vec<&StatusChange> = survey.stored.iter().filter(|stored| !derived.contains(stored)).collect();
        let has_stale_key =
            |change: &StatusChange| stale.iter().any(|stale| stale.at_us == change.at_us && stale.new == change.new);
        let missing = derived.iter().filter(|change| !survey.stored.contains(change) || has_stale_key(change));
        missing.clone().try_for_each(|change| added.add(|name| cell(name, *survey_id, change, stamp)))?;
        stale.iter().try_for_each(|change| removed.add(|name| cell(name, *survey_id, change, stamp)))?;
    }
    let mut change = TableChange::new(table);
    change.remove(&removed.finish()?)?;
    change.add(added.finish()?);
    store.change(change)
}

/// Returns the value of a column of `survey_status_changes` for a change of one survey.
fn cell<'a>(column: &str, survey_id: i64, change: &'a StatusChange, stamp: Stamp<'a>) -> Cell<'a> {
    match column {
        "survey_id" => Cell::Integer(survey_id),
        "changed_at" => Cell::Moment(change.at_us),
        "old_status" => Cell::text_or_null(change.old.as_deref()),
        "new_status" => Cell::text_or_null(change.new.as_deref()),
        "seen_by" => Cell::Text(&change.seen_by),
        "scanned_at" => change.scanned_us.map_or(Cell::Null, Cell::Moment),
        other => stamp.cell(other).unwrap_or(Cell::Null),
    }
}

/// What is stored about the status of one survey.
#[derive(Debug, Default)]
struct Evidence<'r> {
    versions: Vec<Version>,
    /// The stored changes, in no particular order.
    stored: Vec<StatusChange>,
    reports: Vec<&'r StatusReport>,
}

/// A version of a survey in `survey_history`. Times are in epoch microseconds.
#[derive(Debug)]
struct Version {
    from_us: i64,
    /// `None` for the current version.
    to_us: Option<i64>,
    content: Observation,
}

impl Evidence<'_> {
    /// Returns what scans saw of the survey, by the start of the scan: the begin of each version, the scan after which
    /// the survey had vanished, the scans that stored changes name, and the scan that began at `scanned`, if it saw the
    /// survey. Other scans saw no change.
    fn observations(&self, scanned: Option<i64>) -> BTreeMap<i64, Observation> {
        let mut observations = BTreeMap::new();
        for change in self.stored.iter().filter(|_| self.versions.is_empty()) {
            let seen = Observation { status: change.new.clone(), ..Observation::default() };
            observations.extend(scan_of(change).map(|at_us| (at_us, seen)));
        }
        for version in &self.versions {
            observations.insert(version.from_us, version.content.clone());
            if let Some(to_us) = version.to_us {
                let next = self.version_at(to_us).map(|next| next.content.clone());
                observations.insert(to_us, next.unwrap_or_default());
            }
        }
        for at_us in self.stored.iter().filter_map(scan_of).chain(scanned) {
            if let Some(version) = self.version_at(at_us) {
                observations.insert(at_us, version.content.clone());
            }
        }
        observations
    }

    fn version_at(&self, at_us: i64) -> Option<&Version> {
        let is_current =
            |version: &&Version| version.from_us <= at_us && version.to_us.is_none_or(|to_us| at_us < to_us);
        self.versions.iter().find(is_current)
    }
}

/// Returns the start of the scan that saw a stored change. Rows of earlier versions of the program lack this time, and
/// have the scan's time as the time of the change if only a scan saw it.
fn scan_of(change: &StatusChange) -> Option<i64> {
    change.scanned_us.or((change.seen_by == SCAN).then_some(change.at_us))
}

/// Reads the versions and the stored changes of all surveys, by survey.
fn read_evidence<'r>(store: &mut BufferedStore) -> Result<BTreeMap<i64, Evidence<'r>>, LoadError> {
    let mut evidence: BTreeMap<i64, Evidence<'r>> = BTreeMap::new();
    store.read(contract("survey_history")?, &VERSION_COLUMNS, &Filter::all(), &mut |rows| {
        for index in 0..rows.num_rows() {
            let row = Row { rows: &rows, index };
            let content = Observation {
                status: row.text_or_null("status")?.map(str::to_owned),
                launched_us: row.moment_us_or_null("launched_at")?,
                completed_us: row.moment_us_or_null("completed_at")?,
            };
            let (from_us, to_us) = (row.moment_us("valid_from")?, row.moment_us_or_null("valid_to")?);
            evidence.entry(row.integer("id")?).or_default().versions.push(Version { from_us, to_us, content });
        }
        Ok(())
    })?;
    each_row(store, contract(TABLE)?, &Filter::all(), &mut |row| {
        let text = |name| row.text_or_null(name).map(|text| text.map(str::to_owned));
        let change = StatusChange {
            at_us: row.moment_us("changed_at")?,
            old: text("old_status")?,
            new: text("new_status")?,
            seen_by: row.text("seen_by")?.to_owned(),
            scanned_us: row.moment_us_or_null("scanned_at")?,
        };
        evidence.entry(row.integer("survey_id")?).or_default().stored.push(change);
        Ok(())
    })?;
    Ok(evidence)
}
