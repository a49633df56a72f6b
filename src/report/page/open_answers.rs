//! The answers to an open question: counts, themes, and some answers in people's own words.

use maud::{Markup, html};

use super::elements::{bar, counted, folded, grouped, left_out, service_text_or, table, text_up_to};
use crate::report::{format::day_text, limits::VERBATIM_CHARS_MAX, question_answers::OpenAnswers, rows::count};

/// Renders the answers to an open question.
pub(super) fn part(open: &OpenAnswers) -> Markup {
    let most = open.themes.shown.first().map_or(1, |(_, answers)| *answers).max(1);
    let rows = html! {
        @for (theme, answers) in &open.themes.shown {
            tr {
                th scope="row" { (service_text_or(theme.as_deref(), "no name")) }
                td { (grouped(*answers)) } td.bar-cell { (bar(*answers as f64 / most as f64, "a")) }
            }
        }
    };
    html! {
        p.figure {
            span.value { (grouped(open.texts)) } @if open.texts == 1 { " text" } @else { " texts" }
            @if open.empty > 0 { ", " (grouped(open.empty)) " empty" }
            @if open.with_link > 0 { ", " (grouped(open.with_link)) " with a link" }
        }
        @if open.themes.shown.is_empty() { p.note { "The service found no themes." } }
        @else {
            (table("current_themes", "Themes of the answers", &["Theme", "Answers", ""], rows))
            (left_out(open.themes.left_out, "theme", ""))
        }
        @if !open.verbatims.is_empty() {
            @let newest = format!("The newest {}", counted(count(open.verbatims.len()), "answer"));
            (folded(&newest, html! {
                div.scroll tabindex="0" role="group" aria-label=(newest) { ul.verbatims {
                    @for one in &open.verbatims {
                        li { span.meta { (day_text(one.day)) } " " (text_up_to(&one.answer, VERBATIM_CHARS_MAX)) }
                    }
                } }
            }))
        }
    }
}
