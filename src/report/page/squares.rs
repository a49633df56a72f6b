//! The squares of maps of days, with their words and legend: for the report and for the status page of `serve`.
//! Standings differ by shape, not by colour alone.

use maud::{Markup, html};

use crate::report::coverage::CoverageState;

/// Side of a day's square, in units of the drawing.
pub const SIDE: i64 = 12;
/// Step from a square to the next.
pub const STEP: i64 = 15;

/// A state as people read it.
pub fn word(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "complete",
        CoverageState::DueAgain => "complete, due again",
        CoverageState::NeedsRecheck => "in doubt",
        CoverageState::Partly => "partly read",
        CoverageState::NeverRead => "not read",
    }
}

/// A state as the style sheet calls it.
pub fn class(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "complete",
        CoverageState::DueAgain => "again",
        CoverageState::NeedsRecheck => "doubt",
        CoverageState::Partly => "partly",
        CoverageState::NeverRead => "never",
    }
}

/// The shape of a day at a place: a full square, a frame, a square with a cross, a triangle, an outline.
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

/// What the squares mean.
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
