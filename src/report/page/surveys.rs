//! The report's section about surveys: an index, then the funnel and the questions of each survey. The funnel shows how
//! often each question was shown, answered and skipped.

use maud::{Markup, html};

use super::{
    elements::{
        bar, counted, grouped, left_out, nothing, percent, sanitized_up_to, section, service_text_or, table,
        whole_options,
    },
    questions,
};
use crate::report::{ReportError, ReportSettings, report_data::ReportData, surveys::Survey};

/// Maximum characters of the note about unknown segments, which has a name that the reader chose.
const NOTE_CHARS_MAX: usize = 400;

/// Renders an index of the surveys, and the funnel and questions of each survey.
fn content(data: &ReportData, settings: &ReportSettings) -> Result<Markup, ReportError> {
    let surveys = &data.surveys;
    if surveys.shown.is_empty() {
        return Ok(nothing("No survey was answered yet."));
    }
    let mut parts = Vec::new();
    for survey in &surveys.shown {
        parts.push(survey_part(survey, settings)?);
    }
    Ok(html! {
        ol.index aria-label="Surveys shown" {
            @for survey in &surveys.shown {
                li { a href={ "#survey-" (survey.id) } { (name(survey)) } " " span.meta { (counted(survey.answers, "answer")) } }
            }
        }
        (left_out(surveys.left_out, "survey", " with fewer answers (--survey ID shows one, --survey all shows all)"))
        @if let Some(why) = &data.unknown_segments {
            p.note { "By " (service_text_or(settings.segment.as_deref(), "")) ": " (whole_options(&sanitized_up_to(why, NOTE_CHARS_MAX))) "." }
        }
        @for part in parts { (part) }
    })
}

pub(super) fn surveys(data: &ReportData, settings: &ReportSettings) -> Result<Markup, ReportError> {
    Ok(section("surveys", content(data, settings)?))
}

fn name(survey: &Survey) -> Markup {
    service_text_or(survey.name.as_deref(), &format!("survey {}", survey.id))
}

/// Renders the name, the funnel and the questions of a survey.
fn survey_part(survey: &Survey, settings: &ReportSettings) -> Result<Markup, ReportError> {
    let id = survey.id;
    let cards = survey
        .questions
        .iter()
        .map(|question| questions::card(id, question, settings))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        article.survey aria-labelledby={ "survey-" (id) } {
            h3 id={ "survey-" (id) } { (name(survey)) }
            p.meta {
                "Survey " (id)
                @if let Some(status) = &survey.status { ", " (service_text_or(Some(status), "")) }
                ": " (counted(survey.answers, "answer")) " in " (counted(survey.sessions, "session"))
            }
            (funnel(survey))
            (left_out(survey.left_out, "question", ""))
            div.cards { @for card in cards { (card) } }
        }
    })
}

/// Renders the funnel of a survey: for each question how often it was shown, answered and skipped.
fn funnel(survey: &Survey) -> Markup {
    let rows = html! {
        @for step in &survey.funnel {
            tr {
                th scope="row" {
                    @if let Some(ordinal) = step.ordinal { (ordinal) ". " }
                    (service_text_or(step.text.as_deref(), &format!("question {}", step.question_id)))
                }
                td.bar-cell { (bar(step.answered_share, "a")) }
                td { (grouped(step.answered)) } td { (percent(step.answered_share)) }
                td { (grouped(step.shown)) } td { (percent(step.shown_share)) }
                td { (grouped(step.skipped)) }
            }
        }
    };
    let heads = ["Question", "", "Answered", "of sessions", "Shown", "of sessions", "Skipped"];
    table("survey_funnel", &format!("Funnel of survey {}", survey.id), &heads, rows)
}
