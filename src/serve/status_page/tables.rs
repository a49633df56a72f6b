//! The calendars and the tables of the page. The calendar of a stream has a column per week and a square per day; a
//! table lists the same days, and the script reads out the day under the pointer or selected by the arrow keys. The
//! tables of the last runs show their outcome, their time by part, and their rejects and drift.

use chrono::{DateTime, Datelike as _};
use maud::{Markup, html};

use crate::{
    model::DAY_MS,
    pipeline::DriftReport,
    report::{
        CoverageState,
        format::{grouped, sanitized},
        squares::{STEP, class, shape, summary, word},
        time_split::{PARTS, legend, parts, seconds, stacked},
        whole_options,
    },
};

use super::page_data::{DayRange, RowCounts, RunDetails, ScopeCalendar, Timestamp, WEEKS};

/// Space for the names of days at the left.
const LEFT: i64 = 34;
// Space for the names of months at the top.
const TOP: i64 = 18;
/// The named rows: row from the top, name.
const ROW_NAMES: [(i64, &str); 3] = [(0, "Mon"), (2, "Wed"), (4, "Fri")];
/// Maximum failed runs whose reason is shown in the open.
const FAILURES_SHOWN_MAX: usize = 3;
/// Maximum rows of the table of days.
const RANGES_MAX: usize = 40;

/// The states of a day, in the order of the legend.
pub(super) const COVERAGE_STATES: [CoverageState; 5] = [
    CoverageState::Complete,
    CoverageState::DueAgain,
    CoverageState::Partly,
    CoverageState::NeedsRecheck,
    CoverageState::NeverRead,
];

/// Renders the calendar and the table of a stream; nothing for a stream without days.
pub(super) fn calendar(scope: &ScopeCalendar, name: &str) -> Markup {
    let Some(first) = scope.days.first().map(|range| range.first) else { return html! {} };
    let id = format!("days-{}-{}", scope.scope.stream, scope.scope.survey_id.unwrap_or(0));
    html! {
        div.scroll.calendar tabindex="0" role="group" aria-label={ "Calendar of " (name) ": " (days_by_state(&scope.days)) } data-first=(first) {
            svg.days viewBox={ "0 0 " (LEFT + WEEKS * STEP) " " (TOP + 7 * STEP) } aria-hidden="true" focusable="false"
                data-left=(LEFT) data-top=(TOP) data-step=(STEP) data-days=(letters(&scope.days)) {
                @for (row, name) in ROW_NAMES { text x="0" y=(TOP + row * STEP + 10) { (name) } }
                @for (x, name) in months(&scope.days) { text x=(x) y=(TOP - 6) { (name) } }
                @for state in COVERAGE_STATES { (squares(&scope.days, first, state)) }
            }
        }
        p.meta.day-read id=(id) aria-live="polite" { (days_by_state(&scope.days)) }
        details {
            summary { "The days as a table" }
            div.scroll tabindex="0" role="region" aria-label={ "Days of " (name) } {
                table {
                    caption { "Days of the last " (WEEKS) " weeks (UTC), the newest first" }
                    thead { tr { th scope="col" { "From" } th scope="col" { "To" } th.word scope="col" { "State" } } }
                    tbody {
                        @for range in scope.days.iter().rev().take(RANGES_MAX) {
                            tr { th scope="row" { (range.from) } td { (range.to) } td.word { (word(range.coverage_state)) } }
                        }
                    }
                }
            }
            @if scope.days.len() > RANGES_MAX {
                p.meta { "Not shown: " (scope.days.len() - RANGES_MAX) " older intervals; /api/status has them." }
            }
        }
    }
}

fn days_by_state(days: &[DayRange]) -> String {
    let count = |state: CoverageState| -> i64 {
        days.iter().filter(|range| range.coverage_state == state).map(|range| range.last - range.first + 1).sum()
    };
    summary(COVERAGE_STATES.map(|state| (state, count(state))))
}

/// Returns a letter for each day, for the script: the first letter of the CSS class of the day's state.
fn letters(days: &[DayRange]) -> String {
    let of = |range: &DayRange| {
        let letter = class(range.coverage_state).get(..1).unwrap_or_default();
        letter.repeat(usize::try_from(range.last - range.first + 1).unwrap_or(0))
    };
    days.iter().map(of).collect()
}

fn squares(days: &[DayRange], first: i64, state: CoverageState) -> Markup {
    let of_state = days.iter().filter(|range| range.coverage_state == state);
    let path: String = of_state
        .flat_map(|range| range.first..=range.last)
        .map(|day| shape(state, LEFT + (day - first) / 7 * STEP, TOP + (day - first) % 7 * STEP))
        .collect();
    html! { @if !path.is_empty() { path class=(class(state)) d=(path) {} } }
}

fn months(days: &[DayRange]) -> Vec<(i64, String)> {
    let (Some(first), Some(last)) = (days.first().map(|range| range.first), days.last().map(|range| range.last)) else {
        return Vec::new();
    };
    let begins = (first..=last).filter_map(|day| {
        let date = DateTime::from_timestamp_millis(day * DAY_MS)?.date_naive();
        // A name without enough space at the right is left out.
        let x = LEFT + (day - first) / 7 * STEP;
        let format = if date.month() == 1 { "%Y" } else { "%b" };
        (date.day() == 1 && x + 2 * STEP < LEFT + WEEKS * STEP).then(|| (x, date.format(format).to_string()))
    });
    begins.collect()
}

/// A column with a number of rows: its heading and its value.
type RowColumn = (&'static str, fn(&RowCounts) -> u64);

const ROW_COLUMNS: [RowColumn; 7] = [
    ("New", |rows| rows.inserted),
    ("Changed", |rows| rows.updated),
    ("Filled in", |rows| rows.filled_in),
    ("Unchanged", |rows| rows.unchanged),
    ("Deleted", |rows| rows.soft_deleted),
    ("Vanished", |rows| rows.vanished),
    ("Rejected", |rows| rows.rejected),
];

/// Renders the table of the last runs.
pub(super) fn runs(runs: &[RunDetails]) -> Markup {
    html! {
        @if runs.is_empty() {
            p.nothing { "No run yet." }
        } @else {
            (legend())
            div.scroll tabindex="0" role="region" aria-label="Table of the last runs" {
                table.runs {
                    caption { "Newest first; rows of all streams together" }
                    thead {
                        tr {
                            @for head in ["Started (UTC)", "Command", "Outcome", "Took", "Where the time went", "Requests"] { th.word[is_word(head)] scope="col" { (head) } }
                            @for (head, _) in ROW_COLUMNS { th scope="col" { (head) } }
                        }
                    }
                    tbody { @for run in runs { (row(run, &ROW_COLUMNS.map(|(_, value)| value(&run.rows)))) } }
                }
            }
            (reasons(runs))
            (times(runs))
        }
    }
}

/// Renders the row of a run. `row_counts` are the values of [`ROW_COLUMNS`].
fn row(run: &RunDetails, row_counts: &[u64]) -> Markup {
    let summary = &run.summary;
    let took = summary.finished_ms.map(|finished_ms| (finished_ms - summary.started_ms).unsigned_abs());
    html! {
        tr {
            th scope="row" { (started(run)) }
            td.word { (sanitized(&summary.command)) }
            td class={ "word outcome " (kind(run)) } { (mark(kind(run))) " " (sanitized(&summary.outcome.replace('_', " "))) }
            td { @if let Some(took) = took { (seconds(took)) " s" } @else { "–" } }
            td.bar-cell { @if let Some(times) = &run.time_ms { (stacked(times)) } }
            td { @if let Some(requests) = run.requests { (count(requests)) } @else { "–" } }
            @for rows in row_counts { td { (count(*rows)) } }
        }
    }
}

/// Returns true for the heading of a column of words, false for one of numbers.
fn is_word(head: &str) -> bool {
    !matches!(head, "Took" | "Requests" | "Records")
}

/// Returns the CSS class of the run's outcome: `good`, `bad`, `running`, or `look` for all other outcomes.
fn kind(run: &RunDetails) -> &'static str {
    match () {
        () if run.summary.is_failure() => "bad",
        () if run.summary.outcome == "done" => "good",
        () if run.summary.is_running() => "running",
        () => "look",
    }
}

/// Returns a sign that shows the class of an outcome without colour.
pub(super) fn mark(kind: &str) -> &'static str {
    match kind {
        "bad" => "✗",
        "good" => "✓",
        "running" => "…",
        _ => "!",
    }
}

/// Renders the reasons why runs did not end as done: those of the newest failed runs in the open.
fn reasons(runs: &[RunDetails]) -> Markup {
    let (failed, others): (Vec<&RunDetails>, Vec<&RunDetails>) =
        runs.iter().filter(|run| run.summary.reason.is_some()).partition(|run| run.summary.is_failure());
    let (shown, older) = failed.split_at(failed.len().min(FAILURES_SHOWN_MAX));
    let folded: Vec<&RunDetails> = older.iter().chain(&others).copied().collect();
    let why = |run: &RunDetails| html! { li { (started(run)) ": " bdi { (whole_options(&run.summary.sentence())) } } };
    html! {
        @if !shown.is_empty() {
            h3 { "Why runs failed" }
            ul.whys { @for run in shown { (why(run)) } }
        }
        @if !folded.is_empty() {
            details {
                summary { "Why other runs did not end as done" }
                ul.whys { @for run in folded { (why(run)) } }
            }
        }
    }
}

/// Renders the table of the time of each run by part.
fn times(runs: &[RunDetails]) -> Markup {
    html! {
        details {
            summary { "The numbers behind the bars" }
            div.scroll tabindex="0" role="region" aria-label="Where the time of the last runs went, in seconds" {
                table {
                    caption { "Seconds" }
                    thead { tr { th scope="col" { "Started (UTC)" } @for (name, _) in PARTS { th scope="col" { (name) } } th scope="col" { "all" } } }
                    tbody {
                        @for run in runs {
                            @if let Some(times) = &run.time_ms {
                                tr {
                                    th scope="row" { (started(run)) }
                                    @for part in parts(times) { td { (seconds(part)) } }
                                    td { (seconds(times.wall)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the table of drift, and of rejected, colliding and withheld records.
pub(super) fn rejects(runs: &[RunDetails]) -> Markup {
    let with_any: Vec<&RunDetails> =
        runs.iter().filter(|run| !run.rejected.is_empty() || !run.drift.is_empty() || run.drift_left_out > 0).collect();
    html! {
        @if with_any.is_empty() {
            p.nothing { "None in the last runs." }
        } @else {
            p.meta { "Rejected records are in the table " code { "rejects" } ", with their text." }
            div.scroll tabindex="0" role="region" aria-label="Table of rejects and drift" {
                table {
                    caption { "Of the last runs" }
                    thead { tr { @for head in ["Run (UTC)", "Stream", "What", "Records", "What happened"] { th.word[is_word(head)] scope="col" { (head) } } } }
                    tbody { @for run in with_any { (findings(run)) } }
                }
            }
        }
    }
}

/// Renders the rows of a run in the table of rejects and drift.
fn findings(run: &RunDetails) -> Markup {
    let rejected = run.rejected.iter().flat_map(|(stream, rows)| {
        [
            (rows.rejected, "rejected", "in rejects"),
            (rows.collisions, "share the key of another record", "in response_history and rejects"),
            (rows.withheld, "no longer returned by the service", "kept: too many to believe"),
        ]
        .into_iter()
        .filter(|(records, ..)| *records > 0)
        .map(move |(records, what, fate)| (stream, records, what, fate))
    });
    html! {
        @for (stream, records, what, fate) in rejected {
            tr { th scope="row" { (started(run)) } td.word { (sanitized(stream)) } td.word { (what) } td { (count(records)) } td.word { (fate) } }
        }
        @for DriftReport { stream, kind, place, records, example, fate } in &run.drift {
            tr {
                th scope="row" { (started(run)) } td.word { (sanitized(stream)) }
                td.word { (kind.title()) " " code { (sanitized(place)) } " (" (sanitized(example)) ")" }
                td { (count(*records)) } td.word { (fate) }
            }
        }
        @if run.drift_left_out > 0 {
            tr { th scope="row" { (started(run)) } td.word { } td.word { "drift at more places" } td { (count(run.drift_left_out)) } td.word { "in the run's JSON" } }
        }
    }
}

fn started(run: &RunDetails) -> Markup {
    let time = Timestamp(run.summary.started_ms).rfc3339();
    html! { time datetime=(time) { (time.replace('T', " ").trim_end_matches('Z')) } }
}

pub(super) fn count(number: u64) -> String {
    grouped(i64::try_from(number).unwrap_or(i64::MAX))
}
