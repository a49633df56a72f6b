//! The section of coverage: a map of days for each scope, with a row per month and a square per day.

use std::ops::RangeInclusive;

use chrono::{DateTime, Datelike};
use maud::{Markup, html};

use super::{
    elements::{left_out, nothing, section},
    squares::{SIDE, STEP, class, legend, shape, summary, word},
};
use crate::{
    model::{DAY_MS, format_ms},
    report::{
        coverage::{Coverage, CoverageSource, CoverageState, ScopeCoverage},
        limits::INTERVALS_MAX,
        rows,
    },
};

/// Space for the names of months at the left.
const LEFT: i64 = 70;
// Space for the numbers of days at the top.
const TOP: i64 = 18;
/// Days of the month that have a label.
const NAMED_DAYS: [i64; 5] = [1, 8, 15, 22, 29];

/// Renders the section of coverage: its source, and the map and intervals of each scope.
pub(super) fn coverage(coverage: &Coverage) -> Markup {
    let source = match coverage.source {
        CoverageSource::Checkpoints => "From the checkpoints.",
        CoverageSource::Ledger => "From the warehouse's ledger alone: it lacks later scans that changed nothing.",
        CoverageSource::LedgerInstead => {
            "From the warehouse's ledger alone, because the given checkpoints belong to another service. The ledger lacks later \
             scans that changed nothing."
        }
    };
    if coverage.scopes.is_empty() {
        return section("coverage", nothing("No window is complete yet."));
    }
    section(
        "coverage",
        html! {
            p.note {
                "A day (UTC) is complete when the service said that the list of the day has ended. " (source)
            }
            (legend(&COVERAGE_STATES))
            div.maps { @for one in &coverage.scopes { (scope(one, coverage.days)) } }
            (left_out(coverage.earlier_days, "earlier day", " (--days shows more)"))
            (left_out(rows::count(coverage.left_out), "stream of one survey", ""))
        },
    )
}

/// Renders the map and the intervals of a scope. `days` are the first and the last day of all maps; `None` if nothing
/// was read.
fn scope(coverage: &ScopeCoverage, days: Option<(i64, i64)>) -> Markup {
    let name = coverage.scope.to_string();
    let intervals = coverage.intervals();
    let anchor = format!(
        "map-{}-{}",
        coverage.scope.stream,
        coverage.scope.survey_id.map_or_else(|| "all".to_owned(), |id| id.to_string())
    );
    html! {
        div.map {
            h3 { (name) }
            @match (coverage.scope.stream.is_windowed(), days) {
                (true, Some(days)) => (map(coverage, days.0..=days.1, &anchor)),
                _ => p { "Always read completely" @if let Some(range) = coverage.bounding_range() { "; last up to " (time_text(range.end_ms)) } "." },
            }
            details {
                summary { "The intervals" }
                div.scroll tabindex="0" role="group" aria-label={ "Intervals of " (name) } {
                    table data-coverage=(name) {
                        caption { "Intervals of creation time, without their end" }
                        thead { tr { th scope="col" { "From" } th scope="col" { "To" } th scope="col" { "State" } } }
                        tbody {
                            @for (window, state) in intervals.iter().rev().take(INTERVALS_MAX) {
                                tr {
                                    th scope="row" { (time_text(window.start_ms)) } td { (time_text(window.end_ms)) }
                                    td { (word(*state)) }
                                }
                            }
                        }
                    }
                }
                (left_out(rows::count(intervals.len().saturating_sub(INTERVALS_MAX)), "older interval", ""))
            }
        }
    }
}

fn time_text(at_ms: i64) -> String {
    format_ms(at_ms).replace('T', " ").replace('Z', "")
}

/// The states of a day, in the order of the legend.
const COVERAGE_STATES: [CoverageState; 4] =
    [CoverageState::Complete, CoverageState::Partly, CoverageState::NeedsRecheck, CoverageState::NeverRead];

/// Returns the month, counted from year 0, and the day of the month from 0.
fn month_and_day(day: i64) -> Option<(i64, i64)> {
    let date = DateTime::from_timestamp_millis(day.checked_mul(DAY_MS)?)?.date_naive();
    Some((i64::from(date.year()) * 12 + i64::from(date.month0()), i64::from(date.day0())))
}

/// Renders the map of days of a scope, with a row for each month of `days`. `anchor` is the prefix of
/// element ids.
fn map(coverage: &ScopeCoverage, days: RangeInclusive<i64>, anchor: &str) -> Markup {
    let month_of = |day| month_and_day(day).map_or(0, |(month, _)| month);
    let (first_month, last_month) = (month_of(*days.start()), month_of(*days.end()));
    let days: Vec<(i64, CoverageState)> = days.map(|day| (day, coverage.day(day))).collect();
    let of_state = |state| days.iter().filter(move |(_, other)| *other == state).map(|(day, _)| *day);
    let path = |state| -> String {
        let places = of_state(state).filter_map(month_and_day);
        places.map(|(month, day)| shape(state, LEFT + day * STEP, TOP + (last_month - month) * STEP)).collect()
    };
    let summary = summary(COVERAGE_STATES.map(|state| (state, rows::count(of_state(state).count()))));
    let (width, height) = (LEFT + 31 * STEP, TOP + (last_month - first_month + 1) * STEP);
    html! {
        svg.days role="img" viewBox={ "0 0 " (width) " " (height) } aria-labelledby={ (anchor) "-title " (anchor) "-desc" } {
            title id={ (anchor) "-title" } { "Days of " (coverage.scope) }
            desc id={ (anchor) "-desc" } { (summary) ". A row is a month, the newest first; a square is a day." }
            @for day in NAMED_DAYS {
                text x=(LEFT + (day - 1) * STEP + SIDE / 2) y=(TOP - 6) text-anchor="middle" { (day) }
            }
            @for month in first_month..=last_month {
                text x=(LEFT - 8) y=(TOP + (last_month - month) * STEP + SIDE - 2) text-anchor="end" {
                    (format!("{:04}-{:02}", month.div_euclid(12), month.rem_euclid(12) + 1))
                }
            }
            @for (state, path) in COVERAGE_STATES.map(|state| (state, path(state))) {
                @if !path.is_empty() { path class=(class(state)) d=(path) {} }
            }
        }
        p.meta data-days=(anchor) { (summary) }
    }
}
