//! The squares of maps of days, with their words and legend: for the report and for the status page of `serve`.
//! Standings differ by shape, not by colour alone.

use maud::{Markup, html};

use crate::report::coverage::Standing;

/// Side of a day's square, in units of the drawing.
pub const SIDE: i64 = 12;
/// Step from a square to the next.
pub const STEP: i64 = 15;

/// A standing as people read it.
pub fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Complete => "complete",
        Standing::DueAgain => "complete, due again",
        Standing::InDoubt => "in doubt",
        Standing::Partly => "partly read",
        Standing::NeverRead => "not read",
    }
}

/// A standing as the style sheet calls it.
pub fn class(standing: Standing) -> &'static str {
    match standing {
        Standing::Complete => "complete",
        Standing::DueAgain => "again",
        Standing::InDoubt => "doubt",
        Standing::Partly => "partly",
        Standing::NeverRead => "never",
    }
}

/// The shape of a day at a place: a full square, a frame, a square with a cross, a triangle, an outline.
pub fn shape(standing: Standing, x: i64, y: i64) -> String {
    let (inner, edge) = (SIDE - 6, 3);
    match standing {
        Standing::Complete => format!("M{x} {y}h{SIDE}v{SIDE}h-{SIDE}z"),
        Standing::DueAgain => format!("M{x} {y}h{SIDE}v{SIDE}h-{SIDE}zm{edge} {edge}v{inner}h{inner}v-{inner}z"),
        Standing::Partly => format!("M{x} {y}v{SIDE}h{SIDE}z"),
        Standing::InDoubt => format!("M{x} {y}h{SIDE}v{SIDE}h-{SIDE}zl{SIDE} {SIDE}m0 -{SIDE}l-{SIDE} {SIDE}"),
        Standing::NeverRead => format!("M{x} {y}h{SIDE}v{SIDE}h-{SIDE}z"),
    }
}

/// What the squares mean.
pub fn legend(standings: &[Standing]) -> Markup {
    html! {
        ul.legend aria-label="What the squares mean" {
            @for standing in standings.iter().copied() {
                li {
                    svg.swatch viewBox={ "-2 -2 " (SIDE + 4) " " (SIDE + 4) } aria-hidden="true" focusable="false" {
                        path class=(class(standing)) d=(shape(standing, 0, 0)) {}
                    }
                    " " (word(standing))
                }
            }
        }
    }
}
