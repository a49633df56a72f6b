//! The squares of the maps of days and their legend, for the report and the status page of `serve`. States differ by
//! shape, not only by colour.

use maud::{Markup, html};

use super::elements::counted;
use crate::report::coverage::CoverageState;

/// The side of a day's square, in units of the drawing.
pub const SIDE: i64 = 12;
/// The distance between the left sides of two squares.
pub const STEP: i64 = 15;

/// Returns the text that the report and the status page show for a state.
pub fn word(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "complete",
        CoverageState::DueAgain => "complete, due again",
        CoverageState::NeedsRecheck => "needs a recheck",
        CoverageState::Partly => "partly read",
        CoverageState::NeverRead => "not read",
    }
}

/// Returns the CSS class of a state.
pub fn class(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "complete",
        CoverageState::DueAgain => "again",
        CoverageState::NeedsRecheck => "doubt",
        CoverageState::Partly => "partly",
        CoverageState::NeverRead => "never",
    }
}

/// Returns the SVG path of a day at a position. The shape shows the state: a full square, a frame, a triangle, a square
/// with a cross, or an outline.
pub fn shape(state: CoverageState, x: i64, y: i64) -> String {
    let (inner, edge) = (SIDE - 6, 3);
    match state {
        CoverageState::Complete => format!("M{x} {y}h{SIDE}v{SIDE}h-{SIDE}z"),
        CoverageState::DueAgain => format!("M{x} {y}h{SIDE}v{SIDE}h-{SIDE}zm{edge} {edge}v{inner}h{inner}v-{inner}z"),
        CoverageState::Partly => format!("M{x} {y}v{SIDE}h{SIDE}z"),
        CoverageState::NeedsRecheck => {
            format!("M{x} {y}h{SIDE}v{SIDE}h-{SIDE}zl{SIDE} {SIDE}m0 -{SIDE}l-{SIDE} {SIDE}")
        }
        CoverageState::NeverRead => format!("M{x} {y}h{SIDE}v{SIDE}h-{SIDE}z"),
    }
}

/// Returns the states that occur, each with its number of days: `complete: 300 days; not read: 1 day`.
pub fn summary(counts: impl IntoIterator<Item = (CoverageState, i64)>) -> String {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let texts: Vec<String> =
        counts.map(|(state, count)| format!("{}: {}", word(state), counted(count, "day"))).collect();
    texts.join("; ")
}

/// Renders what the squares mean.
pub fn legend(states: &[CoverageState]) -> Markup {
    html! {
        ul.legend aria-label="What the squares mean" {
            @for state in states.iter().copied() {
                li {
                    svg.swatch viewBox={ "-2 -2 " (SIDE + 4) " " (SIDE + 4) } aria-hidden="true" focusable="false" {
                        path class=(class(state)) d=(shape(state, 0, 0)) {}
                    }
                    " " (word(state))
                }
            }
        }
    }
}
