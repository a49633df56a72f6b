//! A map of days for each stream: a row a month, a square a day. Standings differ by shape, not by colour alone.

use chrono::{DateTime, Datelike};
use maud::{Markup, html};

use super::{
    parts::{left_out, many, nothing, section},
    squares::{SIDE, STEP, class, legend, shape, word},
};
use crate::{
    model::{DAY_MS, format_ms},
    report::{
        coverage::{Coverage, CoverageState, ScopeCoverage, Source},
        limits::INTERVALS_MAX,
    },
};

/// Room for the names of months, and of days.
const LEFT: i64 = 70;
const TOP: i64 = 18;
/// Days of the month that are named.
const NAMED_DAYS: [i64; 5] = [1, 8, 15, 22, 29];

pub(super) fn coverage(coverage: &Coverage) -> Markup {
    let source = match coverage.source {
        Source::Checkpoints => "From the checkpoints.",
        Source::Ledger => "From the warehouse's ledger alone: later looks that changed nothing are not in it.",
        Source::LedgerInstead => {
            "From the warehouse's ledger alone: the checkpoints that were named are of another service. Later looks that changed \
             nothing are not in it."
        }
    };
    if coverage.scopes.is_empty() {
        return section("coverage", nothing("Nothing was read to its end yet."));
    }
    section(
        "coverage",
        html! {
            p.note {
                "A day counts as complete when the service said that there is no more, and never before. " (source)
            }
            (legend(&COVERAGE_STATES))
            div.maps { @for held in &coverage.scopes { (scope(held, coverage.days)) } }
            (left_out(coverage.earlier_days, "earlier day", " (--days shows more)"))
            (left_out(i64::try_from(coverage.left_out).unwrap_or(i64::MAX), "stream of one survey", ""))
        },
    )
}

fn scope(held: &ScopeCoverage, days: Option<(i64, i64)>) -> Markup {
    let name = held.scope.to_string();
    let intervals = held.intervals();
    let anchor = format!(
        "map-{}-{}",
        held.scope.stream,
        held.scope.survey_id.map_or_else(|| "all".to_owned(), |id| id.to_string())
    );
    html! {
        div.map {
            h3 { (name) }
            @match (held.scope.stream.is_windowed(), days) {
                (true, Some(days)) => (map(held, days, &anchor)),
                _ => p { "Always read whole" @if let Some(bounding_range) = held.bounding_range() { "; last up to " (moment(bounding_range.end_ms)) } "." },
            }
            details {
                summary { "The intervals" }
                div.scroll tabindex="0" role="region" aria-label={ "Stretches of " (name) } {
                    table data-coverage=(name) {
                        caption { "Stretches of creation time, the end is not inside" }
                        thead { tr { th scope="col" { "From" } th scope="col" { "To" } th scope="col" { "State" } } }
                        tbody {
                            @for (window, state) in intervals.iter().rev().take(INTERVALS_MAX) {
                                tr {
                                    th scope="row" { (moment(window.start_ms)) } td { (moment(window.end_ms)) }
                                    td { (word(*state)) }
                                }
                            }
                        }
                    }
                }
                (left_out(i64::try_from(intervals.len().saturating_sub(INTERVALS_MAX)).unwrap_or(i64::MAX), "older interval", ""))
            }
        }
    }
}

fn moment(at_ms: i64) -> String {
    format_ms(at_ms).replace('T', " ").replace('Z', "")
}

const COVERAGE_STATES: [CoverageState; 4] =
    [CoverageState::Complete, CoverageState::Partly, CoverageState::NeedsRecheck, CoverageState::NeverRead];

/// A day's place: months since year 0, and the day of the month from 0.
fn place(day: i64) -> Option<(i64, i64)> {
    let date = DateTime::from_timestamp_millis(day.checked_mul(DAY_MS)?)?.date_naive();
    Some((i64::from(date.year()) * 12 + i64::from(date.month0()), i64::from(date.day0())))
}

fn map(held: &ScopeCoverage, (first, last): (i64, i64), anchor: &str) -> Markup {
    let mut shapes = [const { String::new() }; COVERAGE_STATES.len()];
    let mut counts = [0_i64; COVERAGE_STATES.len()];
    let (first_month, last_month) = (place(first).map_or(0, |at| at.0), place(last).map_or(0, |at| at.0));
    for day in first..=last {
        let (state, Some((month, at))) = (held.day(day), place(day)) else { continue };
        for (known, (shapes, count)) in COVERAGE_STATES.iter().zip(shapes.iter_mut().zip(&mut counts)) {
            if *known == state {
                shapes.push_str(&shape(state, LEFT + at * STEP, TOP + (last_month - month) * STEP));
                *count += 1;
            }
        }
    }
    let told: Vec<String> = COVERAGE_STATES
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{} {}", many(count, "day"), word(*state)))
        .collect();
    let (width, height) = (LEFT + 31 * STEP, TOP + (last_month - first_month + 1) * STEP);
    html! {
        svg.days role="img" viewBox={ "0 0 " (width) " " (height) } aria-labelledby={ (anchor) "-title " (anchor) "-desc" } {
            title id={ (anchor) "-title" } { "Days of " (held.scope) }
            desc id={ (anchor) "-desc" } { (told.join(", ")) ". A row is a month, the newest first; a square is a day." }
            @for day in NAMED_DAYS {
                text x=(LEFT + (day - 1) * STEP + SIDE / 2) y=(TOP - 6) text-anchor="middle" { (day) }
            }
            @for month in first_month..=last_month {
                text x=(LEFT - 8) y=(TOP + (last_month - month) * STEP + SIDE - 2) text-anchor="end" {
                    (format!("{:04}-{:02}", month.div_euclid(12), month.rem_euclid(12) + 1))
                }
            }
            @for (state, shapes) in COVERAGE_STATES.iter().zip(&shapes) {
                @if !shapes.is_empty() { path class=(class(*state)) d=(shapes) {} }
            }
        }
        p.meta data-days=(anchor) { (told.join(", ")) }
    }
}
