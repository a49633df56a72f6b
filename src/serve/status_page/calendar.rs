//! The calendar of a stream: a column per week, a square per day. A table lists the same days, and the script reads out
//! the day under the pointer or selected by the arrow keys.

use maud::{Markup, html};

use crate::report::{
    CoverageState,
    squares::{STEP, class, shape, summary, word},
};

use super::page_data::{DayRange, ScopeCalendar, WEEKS};

/// Space for the names of days at the left.
const LEFT: i64 = 34;
// Space for the names of months at the top.
const TOP: i64 = 18;
/// The named rows: row from the top, name.
const ROW_NAMES: [(i64, &str); 3] = [(0, "Mon"), (2, "Wed"), (4, "Fri")];
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
    let id = format!("days-{}-{}", scope.stream, scope.survey_id.unwrap_or(0));
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
    let date = |day: i64| chrono::DateTime::from_timestamp_millis(day * crate::model::DAY_MS);
    let begins = (first..=last).filter_map(|day| {
        let date = date(day)?;
        let text = date.format("%d %b %Y").to_string();
        let (of_month, name) = text.split_once(' ')?;
        // A name without enough space at the right is left out.
        let x = LEFT + (day - first) / 7 * STEP;
        let (short, year) = name.split_once(' ')?;
        (of_month == "01" && x + 2 * STEP < LEFT + WEEKS * STEP)
            .then(|| (x, if short == "Jan" { year.to_owned() } else { short.to_owned() }))
    });
    begins.collect()
}
