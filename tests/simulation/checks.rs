//! The assertions after each run of any script.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use ring::digest::{SHA256, digest};
use studysync::{
    model::{Fault, TimeParts},
    pipeline::{Outcome, PipelineError, RunReport, chain},
};
use studysync_sandbox::{LogEntry, Media};

use super::{
    bucket::ScriptedBucket,
    contents::Contents,
    killer::spools,
    script::{RunPlan, Warehouses},
};
use crate::harness::{Row, content_columns, expected::CHILDREN};

/// The parts of a run's time are each rounded down.
const ROUNDING_MS: u64 = 6;
/// The maximum delay of the runtime's timers, in simulated time.
const TIMER_US: u64 = 2000;
/// Complete scans that wait for their commit, and one that is being committed.
const READY_AND_COMMITTING: usize = 5;
/// Applied scans that wait for the end of the transaction.
const UNSEALED: usize = 64;

/// The result of a run.
pub struct Ended {
    /// `None` if the run could not be opened.
    pub report: Option<RunReport>,
    pub error: Option<PipelineError>,
    /// Also if the bucket failed too often, which ends a run anywhere.
    pub was_killed: bool,
    pub log: Vec<LogEntry>,
    /// The end of the range in which the service's answers were settled.
    pub settled_ms: i64,
    /// The number of spools before the run.
    pub left_spools: usize,
    pub spools_max: usize,
}

/// Describes the result of a run on one line.
pub fn line(report: Option<&RunReport>, error: Option<&PipelineError>, was_killed: bool) -> String {
    let counts = report.map(|report| {
        let streams = report.streams.iter().filter(|(_, stream)| stream.windows > 0).map(|(name, stream)| {
            let counts = &stream.counts;
            format!(
                "{name} {}w {}r +{} ~{} -{} ?{}",
                stream.windows, counts.rows_read, counts.inserted, counts.updated, counts.vanished, counts.withheld
            )
        });
        let streams: Vec<String> = streams.collect();
        format!("{} after {} requests; {}", report.header.outcome.name(), report.requests.total, streams.join(", "))
    });
    let error = error.map(|error| format!(" ({})", chain(error))).unwrap_or_default();
    let killed = if was_killed { "KILLED, " } else { "" };
    format!("    -> {killed}{}{error}", counts.unwrap_or_else(|| "not begun".to_owned()))
}

impl Ended {
    /// Returns the number of changed rows, by stream.
    pub fn changes(&self) -> BTreeMap<&'static str, u64> {
        let streams = self.report.iter().flat_map(|report| &report.streams);
        streams
            .map(|(name, stream)| {
                let counts = &stream.counts;
                (*name, counts.inserted + counts.updated + counts.vanished + counts.withheld)
            })
            .collect()
    }

    pub fn check(&self, plan: &RunPlan, is_calm: bool, root: &Path, bucket: Option<&ScriptedBucket>) {
        self.nothing_was_sent_early();
        let spools_allowed = self.left_spools + plan.in_flight + READY_AND_COMMITTING + UNSEALED;
        assert!(
            self.spools_max <= spools_allowed,
            "{} scans were open at once, {spools_allowed} may be",
            self.spools_max
        );
        if self.was_killed {
            return;
        }
        if let Some(error) = &self.error {
            let is_of_the_service = matches!(error, PipelineError::Source(_));
            assert!(is_of_the_service && !is_calm, "the run failed: {}", chain(error));
        }
        let Some(report) = &self.report else { return };
        self.exit_code_fits(report);
        times_add_up(&report.header.time_ms);
        if let Some(count) = plan.max_requests {
            assert!(report.requests.total <= count, "{} requests, {count} allowed", report.requests.total);
        }
        if let (Some(ms), [first, .., last]) = (plan.deadline_ms, &self.log[..]) {
            let span_us = last.arrived_us - first.arrived_us;
            assert!(span_us <= ms * 1000, "the last request came {span_us} µs after the first, deadline {ms} ms");
        }
        let is_free = plan.max_requests.is_none() && plan.deadline_ms.is_none() && plan.cancel_at.is_none();
        // The service may have asked for hours in the weather before.
        let waits = report.limited_until_ms.is_some() && report.requests.total == 0;
        if is_calm && is_free && !waits {
            assert!(matches!(report.header.exit_code, 0 | 3), "in calm weather: {report:?}");
        }
        if matches!(report.header.exit_code, 0 | 3) {
            nothing_is_left_over(root, plan.warehouses != Warehouses::DuckDb);
            let is_clean = plan.bucket.percent == 0 && plan.warehouses != Warehouses::DuckDb;
            let left = bucket.filter(|_| is_clean).map(ScriptedBucket::left_over).unwrap_or_default();
            assert_eq!(left, Vec::<String>::new(), "objects are left over");
        }
    }

    /// Asserts that no request was sent before the time of `Retry-After` (promise P5).
    fn nothing_was_sent_early(&self) {
        for entry in &self.log {
            let (Some(early_us), Some(told_us_ago)) = (entry.early_us, entry.told_us_ago) else { continue };
            // A run may begin at the instant at which the refusal ended the run before. The log has only the requests
            // of this run.
            let told_us = entry.arrived_us - told_us_ago;
            let was_told_in_this_run = self.log.iter().any(|other| {
                let is_refusal = matches!(other.status, 429 | 503);
                is_refusal && other.arrived_us <= told_us && other.completed_us.is_none_or(|at_us| at_us >= told_us)
            });
            // A request that was sent at the same instant could not obey the refusal.
            let is_early = early_us > TIMER_US && told_us_ago > 0 && was_told_in_this_run;
            assert!(!is_early, "a request came {early_us} µs before its time: {entry:?}");
        }
    }

    fn exit_code_fits(&self, report: &RunReport) {
        let wanted = match (&self.error, report.header.outcome) {
            (Some(error), Outcome::Failed) => error.exit_code(),
            (Some(_), outcome) => panic!("an error, and the outcome is {outcome:?}"),
            (None, Outcome::Done) => 0,
            (None, Outcome::Failed) => 1,
            (None, Outcome::NeedsALook) => 3,
            (None, Outcome::StoppedEarly) => 6,
            (None, Outcome::Interrupted) => 130,
        };
        assert_eq!(report.header.exit_code, wanted, "{report:?}");
        assert_eq!(report.header.outcome == Outcome::Failed && self.error.is_none(), {
            self.error.is_none() && !report.failures.is_empty() && report.header.outcome != Outcome::Interrupted
        });
        assert_eq!(
            report.stopped_because.is_some(),
            matches!(report.header.exit_code, 6 | 130) || {
                report.header.outcome == Outcome::Failed && report.stopped_because.is_some()
            }
        );
    }
}

fn times_add_up(time: &TimeParts) {
    let parts = time.network + time.told_to_wait + time.chose_to_wait + time.parse + time.write + time.idle;
    assert!(time.wall.abs_diff(parts) <= ROUNDING_MS, "{time:?}");
}

/// After a run that did all its work, there is no spool, no pending part and no temporary file.
fn nothing_is_left_over(root: &Path, with_parquet: bool) {
    assert_eq!(spools(root), Vec::<std::path::PathBuf>::new(), "spools are left over");
    if !with_parquet {
        return;
    }
    for folder in ["parquet/.studysync/parts", "parquet/.studysync/scratch"] {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten();
        let left: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| !path.ends_with("spill")).collect();
        assert!(left.is_empty(), "{left:?} are left over");
    }
}

/// Asserts that each scan is in the ledger once. A new scan marked no more vanished rows than the program accepts
/// without the user's consent (promise P4), unless the user consented. Returns all scans.
pub fn ledger(contents: &Contents, known: &BTreeSet<String>, is_guarded: bool) -> BTreeSet<String> {
    const VANISHED_ROWS_MAX: i64 = 20;
    let rows = &contents.tables["sync_windows"];
    let ids: BTreeSet<String> = rows.iter().filter_map(|row| row["scan_id"].clone()).collect();
    assert_eq!(ids.len(), rows.len(), "{}: a scan is in the ledger twice", contents.name);
    let new = rows.iter().filter(|row| row["scan_id"].as_ref().is_some_and(|id| !known.contains(id)));
    for row in new.filter(|_| is_guarded) {
        let count = |name: &str| row[name].as_deref().map_or(0, |count| count.parse::<i64>().unwrap());
        let (read, vanished) = (count("rows_read"), count("vanished"));
        let is_believable = vanished <= VANISHED_ROWS_MAX || vanished * 20 <= read + vanished;
        assert!(is_believable, "{}: {vanished} rows vanished unasked: {row:?}", contents.name);
    }
    ids
}

/// Asserts that the archive in a bucket has the pages of each scan of a ledger, or that this machine has their spool.
pub fn archive(ledger: &BTreeSet<String>, archived: &BTreeSet<String>, root: &Path) {
    let spools = spools(root);
    let has_spool =
        |scan: &String| spools.iter().any(|path| path.file_stem().is_some_and(|stem| stem == scan.as_str()));
    let lost: Vec<_> = ledger.difference(archived).filter(|scan| !has_spool(scan)).collect();
    assert!(lost.is_empty(), "the archive lacks the pages of {lost:?}");
}

/// Rejects are stored as the first scan received them, whatever flags that scan had.
pub fn rejects(contents: &Contents, unplaceable: &[String]) {
    let texts = || contents.tables["rejects"].iter().filter_map(|row| row["raw"].as_deref());
    let kept: BTreeSet<String> = texts().map(without_flagged).collect();
    for record in unplaceable {
        let is_kept = kept.contains(&without_flagged(record));
        assert!(is_kept, "{}: rejects has no {record}: {:?}", contents.name, texts().collect::<Vec<_>>());
    }
}

/// Removes the members of a record that depend on flags. The service writes all but one of them last.
fn without_flagged(record: &str) -> String {
    let last = ["url", "meta", "customMetadata", "visitorSnapshot"].map(|name| format!(",\"{name}\":"));
    let ends = last.iter().filter_map(|member| record.find(member.as_str()));
    let rest = record.get(..ends.min().unwrap_or(record.len())).unwrap();
    let rest = rest.trim_end_matches('}');
    let Some((before, deleted)) = rest.split_once("\"deletedAt\":") else { return rest.to_owned() };
    format!("{before}{}", deleted.split_once(',').map_or("", |(_, after)| after))
}

/// How equal two warehouses must be if both took part in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Equal in every table and column.
    InAll,
    /// A run was killed between the two commits, so only one of them may have the run.
    ButRuns,
    /// After a kill, the two may also apply neighbouring scans in another order. The scan that first saw a row on their
    /// boundary then differs. The service's data and the set of applied scans are equal.
    InContent,
}

/// Asserts that two warehouses that took part in every run are equal.
pub fn twins(left: &Contents, right: &Contents, likeness: Likeness) {
    for (table, left_rows) in &left.tables {
        let is_of_the_service =
            CHILDREN.iter().any(|(base, children)| base == table || children.contains(&table.as_str()));
        let columns: Option<Vec<&str>> = match likeness {
            Likeness::InAll => None,
            _ if table == "sync_runs" => continue,
            Likeness::ButRuns => None,
            Likeness::InContent if is_of_the_service => Some(content_columns(table)),
            Likeness::InContent if table == "sync_windows" => Some(vec!["scan_id"]),
            Likeness::InContent => continue,
        };
        let sorted = |rows: &[Row]| {
            let is_compared = |name: &str| columns.as_ref().is_none_or(|columns| columns.contains(&name));
            let mut rows = rows.to_vec();
            rows.iter_mut().for_each(|row| row.retain(|name, _| is_compared(name)));
            rows.sort();
            rows
        };
        let (left_rows, right_rows) = (sorted(left_rows), sorted(&right.tables[table]));
        let only = |rows: &[Row], others: &[Row]| rows.iter().find(|row| others.binary_search(row).is_err()).cloned();
        assert!(
            left_rows == right_rows,
            "{table} differs: {} and {} rows\n  only in {}: {:?}\n  only in {}: {:?}",
            left_rows.len(),
            right_rows.len(),
            left.name,
            only(&left_rows, &right_rows),
            right.name,
            only(&right_rows, &left_rows)
        );
    }
}

/// Asserts that each recording of an existing answer is a file with its content, or is reported as lost, and that there
/// are no other files.
pub fn recordings(contents: &Contents, root: &Path, media: &Media) {
    let gone: BTreeSet<_> = (contents.tables["responses"].iter())
        .filter(|row| row["deleted_at"].is_some() || row["_vanished_at"].is_some())
        .map(|row| (row["response_group_uid"].clone(), row["question_id"].clone()))
        .collect();
    for row in &contents.tables["response_media"] {
        let key = (row["response_group_uid"].clone(), row["question_id"].clone());
        let status = row["recording_status"].as_deref();
        let is_link = row["download_url"].as_deref().is_some_and(|link| link.starts_with("https://media.example.com/"));
        match status {
            Some("stored") => {
                let path = root.join(row["recording_path"].as_deref().unwrap());
                let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let sha256 = digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(row["recording_sha256"], Some(sha256), "{}: {row:?}", contents.name);
                assert!(bytes.len() as u64 >= media.bytes, "{}: {row:?}", contents.name);
            }
            Some("refused") => assert!(media.lost_percent > 0 || gone.contains(&key), "{}: {row:?}", contents.name),
            // The links of hostile answers can be anything.
            Some(_) => assert!(!is_link, "{}: {row:?}", contents.name),
            None => assert!(!is_link || gone.contains(&key), "{}: {row:?}", contents.name),
        }
    }
}

/// Asserts that versions end after they begin, and that each survey has one current version.
pub fn history(contents: &Contents) {
    let versioned = [
        ("survey_questions", "survey_question_history"),
        ("survey_question_options", "survey_question_option_history"),
        ("survey_constraints", "survey_constraint_history"),
    ];
    let others = ["response_history", "survey_history", "theme_history", "visitor_snapshot_history"];
    for table in others.into_iter().chain(versioned.map(|(_, history)| history)) {
        for row in &contents.tables[table] {
            let at = |name: &str| row[name].as_deref().map(|at| at.parse::<i64>().unwrap());
            if let (Some(from), Some(to)) = (at("valid_from"), at("valid_to")) {
                assert!(from <= to, "{}: {table} ends before it begins: {row:?}", contents.name);
            }
        }
    }
    let current = contents.tables["survey_history"].iter().filter(|row| row["is_current"].as_deref() == Some("true"));
    assert_eq!(current.count(), contents.tables["surveys"].len(), "{}: current surveys", contents.name);
    let gone: BTreeSet<_> = (contents.tables["surveys"].iter())
        .filter(|row| row["_vanished_at"].is_some())
        .map(|row| row["id"].clone())
        .collect();
    for (child, history) in versioned {
        let columns = content_columns(child);
        let values = |row: &Row| columns.iter().map(|name| row[*name].clone()).collect::<Vec<_>>();
        let stands = |row: &&Row| !gone.contains(&row["survey_id"]);
        let mut wanted: Vec<_> = contents.tables[child].iter().filter(stands).map(values).collect();
        let is_current = |row: &&Row| row["is_current"].as_deref() == Some("true");
        let mut found: Vec<_> = contents.tables[history].iter().filter(is_current).map(values).collect();
        wanted.sort();
        found.sort();
        assert!(wanted == found, "{}: {child} has {} rows, {history} {}", contents.name, wanted.len(), found.len());
    }
}
