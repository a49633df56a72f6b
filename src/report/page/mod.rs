//! Renders the HTML. `maud` closes every element and escapes every text. The style sheets in this folder and the
//! drawings of `chart` are not escaped; they contain no text of the service.

mod changes;
mod coverage;
mod elements;
mod open_answers;
mod overview;
mod questions;
mod runs;
mod segments;
pub mod squares;
mod surveys;
pub mod time_split;
mod trust;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{ReportError, ReportSettings, report_data::ReportData};
use crate::{load::AnswerRange, model::format_ms};
pub use elements::whole_options;
use elements::{SECTIONS, service_text};

/// The style sheet that the report and the status page of `serve` share.
pub const BASE_STYLE: &str = include_str!("base.css");
const STYLE: &str = include_str!("style.css");
/// Content security policy: nothing may be loaded or run, even if a text were not escaped.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Renders the complete page.
pub(super) fn render(data: &ReportData, settings: &ReportSettings) -> Result<String, ReportError> {
    let body = html! {
        (header(data, settings))
        main {
            (overview::tiles(data))
            @if let Some(changes) = &data.changes { (changes::changes(changes)) }
            (overview::answers(&data.days)?)
            (overview::nps(data.nps.as_ref())?)
            (surveys::surveys(data, settings)?)
            (overview::themes(&data.themes))
            (trust::trust(&data.untrusted))
            (coverage::coverage(&data.coverage))
            (runs::runs(&data.runs))
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
                title { @if settings.title.is_none() { "Study feedback: " } (elements::sanitized(title(settings))) }
                style { (PreEscaped(BASE_STYLE)) (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    Ok(page.into_string())
}

/// Returns the title of the page.
fn title(settings: &ReportSettings) -> &str {
    settings.title.as_deref().unwrap_or(&settings.warehouse)
}

/// Renders the range of the answers, if they are restricted, and the period before.
fn range(data: &ReportData, settings: &ReportSettings) -> Markup {
    let moment = |at_ms: i64| {
        let local_ms = data.time_zone.local_ms(at_ms);
        format_ms(local_ms.div_euclid(1000) * 1000).replace('T', " ").replace('Z', "")
    };
    let text = |range: AnswerRange| {
        html! {
            @if let Some(from_ms) = range.from_ms { " from " span.day { (moment(from_ms)) } }
            @if let Some(to_ms) = range.to_ms { " to before " span.day { (moment(to_ms)) } }
        }
    };
    html! {
        @if settings.answers != AnswerRange::default() {
            p.note {
                "Only answers" (text(settings.answers)) "; coverage and runs cover all times."
                @if let Some((before, _)) = &data.before { " Period before:" (text(*before)) "." }
            }
        }
    }
}

/// Renders the head of the page: the warehouse, the service, the time of the report, and links to the sections.
fn header(data: &ReportData, settings: &ReportSettings) -> Markup {
    // The address is shown without its scheme, so that no browser turns the address into a link.
    let service = data.totals.base_url.as_deref().map(|url| url.split_once("://").map_or(url, |(_, rest)| rest));
    html! {
        header {
            p.kicker { "Study feedback report" }
            h1 { (service_text(title(settings))) }
            p.meta {
                @if let Some(service) = service {
                    "From " (service_text(service))
                    @if let Some(environment) = &data.totals.environment { " (" (service_text(environment)) ")" }
                    ". "
                }
                "Made " time { (format_ms(settings.made_ms.div_euclid(1000) * 1000)) }
                " by studysync " (env!("CARGO_PKG_VERSION")) ". Days and weeks are in the time zone " (service_text(data.time_zone.name())) "; deleted and vanished answers are left out."
            }
            (range(data, settings))
            @if !settings.surveys.is_empty() {
                p.note {
                    "Only " @if settings.surveys.len() > 1 { "surveys " } @else { "survey " }
                    @for (index, id) in settings.surveys.iter().enumerate() { @if index > 0 { ", " } (id) }
                    "; coverage and runs cover all surveys."
                }
            }
            nav aria-label="Sections" {
                ul {
                    @for (anchor, name) in SECTIONS.iter().filter(|(anchor, _)| *anchor != "changes" || data.changes.is_some()) {
                        li { a href={ "#" (anchor) } { (name) } }
                    }
                }
            }
        }
    }
}
