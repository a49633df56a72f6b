//! The last runs, where their time went, and what they rejected or did not know.

use maud::{Markup, html};

use crate::{
    pipeline::DriftReport,
    report::{
        time_split::{PARTS, legend, parts, seconds, stacked},
        words::{clean, whole},
    },
};

use super::{
    moment::Moment,
    stored::{Rows, RunFacts},
};

/// A column of rows by fate.
type FateColumn = (&'static str, fn(&Rows) -> u64);

const FATES: [FateColumn; 6] = [
    ("New", |rows| rows.inserted),
    ("Changed", |rows| rows.updated),
    ("Unchanged", |rows| rows.unchanged),
    ("Deleted", |rows| rows.soft_deleted),
    ("Vanished", |rows| rows.vanished),
    ("Rejected", |rows| rows.rejected),
];

/// The table of runs.
pub(super) fn runs(runs: &[RunFacts]) -> Markup {
    html! {
        @if runs.is_empty() {
            p.nothing { "No run yet." }
        } @else {
            (legend())
            div.scroll tabindex="0" role="region" aria-label="Table of the last runs" {
                table.runs {
                    caption { "The newest first; rows of all streams by fate" }
                    thead {
                        tr {
                            @for head in ["Started (UTC)", "Command", "Outcome", "Took", "Where the time went", "Requests"] { th.word[is_word(head)] scope="col" { (head) } }
                            @for (head, _) in FATES { th scope="col" { (head) } }
                        }
                    }
                    tbody { @for run in runs { (row(run, &FATES.map(|(_, fate)| fate(&run.rows)))) } }
                }
            }
            (reasons(runs))
            (numbers(runs))
        }
    }
}

fn row(run: &RunFacts, fates: &[u64]) -> Markup {
    let summary = &run.summary;
    let took = summary.finished_ms.map(|finished_ms| (finished_ms - summary.started_ms).unsigned_abs());
    html! {
        tr {
            th scope="row" { (started(run)) }
            td.word { (clean(&summary.command)) }
            td class={ "word outcome " (kind(run)) } { (mark(kind(run))) " " (clean(&summary.outcome.replace('_', " "))) }
            td { @if let Some(took) = took { (seconds(took)) " s" } @else { "–" } }
            td.bar-cell { @if let Some(times) = &run.time_ms { (stacked(times)) } }
            td { @if let Some(requests) = run.requests { (count(requests)) } @else { "–" } }
            @for fate in fates { td { (count(*fate)) } }
        }
    }
}

/// Whether a column holds words rather than numbers.
fn is_word(head: &str) -> bool {
    !matches!(head, "Took" | "Requests" | "Records")
}

/// `good`, `bad`, `running`, or `look` for what is none of these.
fn kind(run: &RunFacts) -> &'static str {
    match () {
        () if run.summary.is_failure() => "bad",
        () if run.summary.outcome == "done" => "good",
        () if run.summary.outcome == "running" => "running",
        () => "look",
    }
}

/// What says the same without a colour.
pub(super) fn mark(kind: &str) -> &'static str {
    match kind {
        "bad" => "✗",
        "good" => "✓",
        "running" => "…",
        _ => "!",
    }
}

/// Why runs did not end as done, in the words of the runs.
fn reasons(runs: &[RunFacts]) -> Markup {
    let with_reason: Vec<&RunFacts> = runs.iter().filter(|run| run.summary.reason.is_some()).collect();
    html! {
        @if !with_reason.is_empty() {
            details {
                summary { "Why runs did not end as done" }
                ul.whys { @for run in with_reason { li { (started(run)) ": " bdi { (run.summary.sentence()) } } } }
            }
        }
    }
}

fn numbers(runs: &[RunFacts]) -> Markup {
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

/// What the last runs rejected, withheld or did not know.
pub(super) fn rejects(runs: &[RunFacts]) -> Markup {
    let with_any: Vec<&RunFacts> =
        runs.iter().filter(|run| !run.rejected.is_empty() || !run.drift.is_empty() || run.drift_left_out > 0).collect();
    html! {
        @if with_any.is_empty() {
            p.nothing { "None in the last runs." }
        } @else {
            p.meta { "Rejected records are in the table " code { "rejects" } ", with their text." }
            div.scroll tabindex="0" role="region" aria-label="Table of rejects and drift" {
                table {
                    caption { "Of the last runs" }
                    thead { tr { @for head in ["Run (UTC)", "Stream", "What", "Records", "What became of it"] { th.word[is_word(head)] scope="col" { (head) } } } }
                    tbody { @for run in with_any { (findings(run)) } }
                }
            }
        }
    }
}

fn findings(run: &RunFacts) -> Markup {
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
            tr { th scope="row" { (started(run)) } td.word { (clean(stream)) } td.word { (what) } td { (count(records)) } td.word { (fate) } }
        }
        @for DriftReport { stream, kind, place, records, example, fate } in &run.drift {
            tr {
                th scope="row" { (started(run)) } td.word { (clean(stream)) }
                td.word { (kind.title()) " " code { (clean(place)) } " (" (clean(example)) ")" }
                td { (count(*records)) } td.word { (fate) }
            }
        }
        @if run.drift_left_out > 0 {
            tr { th scope="row" { (started(run)) } td.word { } td.word { "drift at more places" } td { (count(run.drift_left_out)) } td.word { "in the run's JSON" } }
        }
    }
}

fn started(run: &RunFacts) -> Markup {
    let moment = Moment(run.summary.started_ms).rfc3339();
    html! { time datetime=(moment) { (moment.replace('T', " ").trim_end_matches('Z')) } }
}

fn count(number: u64) -> String {
    whole(i64::try_from(number).unwrap_or(i64::MAX))
}
