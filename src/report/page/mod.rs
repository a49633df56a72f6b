//! The page. Elements are closed and texts are escaped by construction (`maud`); the only markup that is taken as it is
//! are the style sheet beside this file and the drawings of `chart`, in which there is no foreign text.

mod changes;
mod coverage;
mod overview;
mod parts;
mod questions;
mod runs;
pub mod squares;
mod surveys;
pub mod time_split;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{ReportError, ReportSettings, gather::Gathered};
use crate::model::format_ms;
use parts::{SECTIONS, foreign};

/// The colours and the type, for the report and for the status page of `serve`.
pub const BASE_STYLE: &str = include_str!("base.css");
const STYLE: &str = include_str!("style.css");
/// Nothing may be loaded and nothing may run, even if an escape were forgotten.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(super) fn render(gathered: &Gathered, settings: &ReportSettings) -> Result<String, ReportError> {
    let body = html! {
        (head_of(gathered, settings))
        main {
            (overview::tiles(gathered))
            @if let Some(changes) = &gathered.changes { (changes::changes(changes)) }
            (overview::answers(&gathered.days)?)
            (overview::nps(gathered.nps.as_ref())?)
            (surveys::surveys(&gathered.surveys)?)
            (overview::themes(&gathered.themes))
            (coverage::coverage(&gathered.coverage))
            (runs::runs(&gathered.runs))
        }
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { "Study feedback: " (parts::clean(&settings.warehouse)) }
                style { (PreEscaped(BASE_STYLE)) (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    Ok(page.into_string())
}

fn head_of(gathered: &Gathered, settings: &ReportSettings) -> Markup {
    // An address without its scheme: the page has nothing that a browser could follow.
    let service = gathered.head.base_url.as_deref().map(|url| url.split_once("://").map_or(url, |(_, rest)| rest));
    html! {
        header {
            p.kicker { "Study feedback report" }
            h1 { (foreign(&settings.warehouse)) }
            p.meta {
                @if let Some(service) = service {
                    "From " (foreign(service))
                    @if let Some(environment) = &gathered.head.environment { " (" (foreign(environment)) ")" }
                    ". "
                }
                "Made " time { (format_ms(settings.made_ms.div_euclid(1000) * 1000)) }
                " by studysync " (env!("CARGO_PKG_VERSION")) ". All days and weeks are UTC; deleted and vanished answers are left out."
            }
            @if !settings.surveys.is_empty() {
                p.note {
                    "Only of survey "
                    @for (at, id) in settings.surveys.iter().enumerate() { @if at > 0 { ", " } (id) }
                    "; coverage and runs are of everything."
                }
            }
            nav aria-label="Sections" {
                ul {
                    @for (anchor, name) in SECTIONS.iter().filter(|(anchor, _)| *anchor != "changes" || gathered.changes.is_some()) {
                        li { a href={ "#" (anchor) } { (name) } }
                    }
                }
            }
        }
    }
}
