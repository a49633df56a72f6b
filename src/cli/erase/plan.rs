//! The plan and the receipt of an erasure as text, and `studysync erase --end`, which ends the suppression of people.

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;

use crate::{
    config::Settings,
    erase::{EndReport, NotFollowed, Plan, Receipt, UnsearchedVersions, end_suppression},
    model::{Identifier, WarehouseKind, is_display_control},
    person::EndedSuppression,
    pipeline::ResultsFound,
    recordings::StoredRecordings,
};

use super::super::{
    CommandError, Context,
    printer::{counted, outcome_words},
    signals::SignalHandler,
};

/// Maximum lines of a list in the text. The list of identifiers that the service purges is always complete.
const LINES_SHOWN: usize = 40;

/// The plan as JSON, with identifiers of people: print it only to the user.
#[derive(Serialize)]
pub(super) struct PlanJson<'a> {
    erasure_id: &'a str,
    resumes: bool,
    named: Vec<String>,
    led_to: Vec<String>,
    not_followed: Vec<(String, &'static str)>,
    /// The named identifiers without a match in the stored data.
    unknown: Vec<String>,
    leads_are_complete: bool,
    rounds: u32,
    rows: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    archive_files: u64,
    archive_files_with_them: usize,
    archive_pages: u64,
    archive_records: u64,
    push_result_rows: u64,
    recordings: u64,
    hard_linked: Vec<String>,
}

impl<'a> PlanJson<'a> {
    /// Converts a plan to its JSON form.
    pub fn of(plan: &'a Plan) -> Self {
        let identifiers = &plan.identifiers;
        let shown = |identifier: &Identifier| format!("{} {}", identifier.kind.name(), identifier.value);
        PlanJson {
            erasure_id: &plan.erasure_id,
            resumes: plan.is_resumed,
            named: identifiers.named.iter().map(shown).collect(),
            led_to: identifiers.linked.iter().map(shown).collect(),
            not_followed: identifiers.not_followed.iter().map(|(linked, why)| (shown(linked), reason(*why))).collect(),
            unknown: plan.unknown.iter().map(shown).collect(),
            leads_are_complete: identifiers.is_complete,
            rounds: identifiers.rounds,
            rows: plan.warehouses.iter().map(|(name, found)| (*name, found.rows.clone())).collect(),
            archive_files: plan.archive.files,
            archive_files_with_them: plan.archive.found_in.len(),
            archive_pages: plan.archive.pages,
            archive_records: plan.archive.records,
            push_result_rows: plan.results.rows,
            recordings: plan.recordings.files,
            hard_linked: plan.hard_linked.iter().map(|file| file.path.display().to_string()).collect(),
        }
    }
}

/// Returns why a linked identifier was not followed.
fn reason(why: NotFollowed) -> &'static str {
    match why {
        NotFollowed::Shared => "people who were not named have it too",
        NotFollowed::Strangers => "visitors without a user id have it too; name it if all of them are the same person",
        NotFollowed::OtherUser => "it is another person's user id; name it too if it is the same person",
        NotFollowed::TooMany => "more visitors or sessions have it than one person does",
    }
}

/// Returns the plan as text.
pub(super) fn describe_plan(plan: &Plan) -> String {
    let heading = match plan.is_resumed {
        true => format!("resuming the erasure {}\n", plan.erasure_id),
        false => "to be erased\n".to_owned(),
    };
    heading + &describe_identifiers(plan) + &describe_data(plan)
}

/// Returns the named, linked and unknown identifiers of the plan as text.
fn describe_identifiers(plan: &Plan) -> String {
    let identifiers = &plan.identifiers;
    let shown = |identifier: &Identifier| format!("{}: {}", identifier.kind, identifier.value);
    let mut text = list("named", identifiers.named.iter().map(shown).collect(), usize::MAX);
    // The service purges every visitor of these identifiers, so the list is complete.
    let (purged, others): (Vec<_>, Vec<_>) =
        identifiers.linked.iter().partition(|linked| identifiers.visitors_of.contains_key(linked));
    let title = format!("linked identifiers that the service purges (found in {} rounds)", identifiers.rounds);
    text.push_str(&list(&title, purged.into_iter().map(shown).collect(), usize::MAX));
    text.push_str(&list("other linked identifiers", others.into_iter().map(shown).collect(), LINES_SHOWN));
    let not_followed =
        identifiers.not_followed.iter().map(|(linked, why)| format!("{}: {}", shown(linked), reason(*why)));
    text.push_str(&list("NOT FOLLOWED", not_followed.collect(), LINES_SHOWN));
    text.push_str(&list("NO MATCH HERE", plan.unknown.iter().map(shown).collect(), LINES_SHOWN));
    if !identifiers.is_complete {
        text.push_str("  more identifiers are linked than the search followed: run this command again afterwards with the last ones\n");
    }
    text
}

/// Returns the rows, records and files that the erasure removes as text.
fn describe_data(plan: &Plan) -> String {
    let mut text = String::new();
    for (name, found) in &plan.warehouses {
        let rows = found.rows.iter().map(|(table, rows)| format!("{table}: {rows}")).collect();
        text.push_str(&list(&format!("rows in {name}: {}", found.total()), rows, LINES_SHOWN));
        if found.rows.is_empty() {
            text.push_str(&format!("  rows in {name}: none\n"));
        }
    }
    let archive = &plan.archive;
    text.push_str(&format!(
        "  archived records: {} in {} of {}\n",
        archive.records,
        archive.found_in.len(),
        counted(archive.files, "file")
    ));
    if plan.results.files > 0 {
        let ResultsFound { files, rows, .. } = plan.results;
        text.push_str(&format!("  rows in results of users push: {rows} in {}\n", counted(files, "file")));
    }
    if plan.recordings.sessions > 0 {
        let StoredRecordings { sessions, files, bytes } = plan.recordings;
        text.push_str(&format!(
            "  recordings: {} of {}, {}\n",
            counted(files, "file"),
            counted(sessions, "session"),
            counted(bytes, "byte")
        ));
    }
    let linked = plan.hard_linked.iter().map(|file| file.path.display().to_string()).collect();
    text.push_str(&list("FILES WITH OTHER NAMES (hard links), which keep the removed data", linked, LINES_SHOWN));
    if plan.others_unfinished > 0 {
        text.push_str(&format!(
            "  {} other erasures are unfinished: run their commands again\n",
            plan.others_unfinished
        ));
    }
    text
}

/// Returns a titled list of at most `lines_max` lines; empty if there are no lines.
fn list(title: &str, lines: Vec<String>, lines_max: usize) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("  {title}\n");
    let more = lines.len().saturating_sub(lines_max);
    for line in lines.into_iter().take(lines_max) {
        let line: String = line.chars().filter(|letter| !is_display_control(*letter)).collect();
        text.push_str(&format!("    {line}\n"));
    }
    if more > 0 {
        text.push_str(&format!("    and {more} more\n"));
    }
    text
}

/// Returns the receipt as text; `path` is the file of the receipt.
pub(super) fn describe_receipt(receipt: &Receipt, path: &Path) -> String {
    let mut text = format!("erase {}: receipt {}\n", outcome_words(receipt.outcome), path.display());
    text.push_str(&describe_removed(&receipt.removed));
    if let Some(from) = &receipt.suppressed_from {
        text.push_str(&format!("  suppressed from {from} on\n"));
    }
    for (name, place) in &receipt.verified.places {
        if place.left + place.unexplained > 0 {
            text.push_str(&format!("  LEFT in {name}: {}\n", place.left + place.unexplained));
        }
        for (column, rows) in &place.in_tables_of_others {
            text.push_str(&format!(
                "  STILL IN YOUR OWN TABLE in {name}, {column}: {}; remove them there\n",
                counted(*rows, "row")
            ));
        }
        for (column, rows) in &place.mentions {
            text.push_str(&format!("  mentioned by others in {name}, {column}: {rows}\n"));
        }
    }
    if receipt.verified.mentions() > 0 {
        text.push_str("  texts of other people stay; --redact-mentions replaces the identifiers in them\n");
    }
    if receipt.service_refused_all {
        text.push_str(
            "  THE SERVICE ACCEPTED NO IDENTIFIER (400 or 404): ask there whether the people are purged; they are suppressed here\n",
        );
    }
    if receipt.redacted > 0 {
        text.push_str(&format!("  rows and pages with replaced identifiers: {}\n", receipt.redacted));
    }
    if receipt.kept_under_other_names > 0 {
        text.push_str(&format!(
            "  LEFT UNDER OTHER NAMES (hard links): {}; delete these names, which keep the removed data\n",
            counted(receipt.kept_under_other_names as u64, "file")
        ));
    }
    for UnsearchedVersions { address, old_versions, what_to_do } in &receipt.unsearched {
        text.push_str(&match *old_versions {
            "kept" => format!("  LEFT IN OLD VERSIONS of objects in {address}: {what_to_do}\n"),
            "logs" => format!("  not searched: {address}: {what_to_do}\n"),
            _ => format!("  NOT SEARCHED: old versions of objects, if {address} keeps them: {what_to_do}\n"),
        });
    }
    if receipt.not_followed > 0 {
        text.push_str(&format!(
            "  not followed, because other people have them too: {}\n",
            counted(receipt.not_followed as u64, "linked identifier")
        ));
    }
    text
}

/// Returns what was removed as text: the rows of each warehouse together, as in the plan, and each other location.
fn describe_removed(removed: &BTreeMap<String, u64>) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (location, count) in removed {
        let warehouse = WarehouseKind::ALL
            .iter()
            .map(|kind| kind.name())
            .find(|name| location.strip_prefix(name).is_some_and(|table| table.starts_with(' ')));
        let place = warehouse.map_or_else(|| location.clone(), |name| format!("rows in {name}"));
        *counts.entry(place).or_default() += count;
    }
    match counts.is_empty() {
        true => "  removed: nothing\n".to_owned(),
        false => list("removed", counts.iter().map(|(place, count)| format!("{place}: {count}")).collect(), usize::MAX),
    }
}

/// What the end of a suppression means.
const MEANING: &str = "  From now on, scans, replays and webhooks store records of these people again: new ones, and old ones that the service\n  \
                       still sends. The next sync reads the times again at which their records were left out. Deleted data stays deleted.\n";

/// Ends the suppression of the people with these ids. With --dry-run only prints what would end.
pub(super) async fn end_erasures(
    settings: Settings,
    ids: Vec<String>,
    dry_run: bool,
    is_json: bool,
    context: Context,
) -> Result<u8, CommandError> {
    let signals = SignalHandler::start();
    let stop = signals.token();
    let ended = tokio::task::spawn_blocking(move || end_suppression(&settings, &ids, dry_run, &stop)).await;
    drop(signals);
    let report = ended.map_err(CommandError::panicked)?.map_err(CommandError::NotEnded)?;
    context.printer.print_value(is_json, &report, describe_end)?;
    Ok(0)
}

fn describe_end(report: &EndReport) -> String {
    let verb = if report.dry_run { "would end" } else { "ended" };
    let mut text = String::new();
    for EndedSuppression { erasure_id, identifiers, left, .. } in &report.ended {
        text.push_str(&format!(
            "erasure {erasure_id}: the suppression of {} {verb}\n",
            counted(*identifiers as u64, "identifier")
        ));
        if *left > 0 {
            text.push_str(&format!(
                "  still suppressed, because this erasure is of several people or identifiers: {left}. To end all: studysync erase \
                 --end {erasure_id}\n"
            ));
        }
    }
    text.push_str(MEANING);
    text
}
