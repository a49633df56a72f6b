//! The most answered surveys: the funnel of each, then its questions.

use maud::{Markup, html};

use super::{
    parts::{bar, foreign_or, left_out, many, nothing, percent, section, table, whole},
    questions,
};
use crate::report::{
    ReportError,
    surveys::{Survey, Surveys},
};

fn content(surveys: &Surveys) -> Result<Markup, ReportError> {
    if surveys.shown.is_empty() {
        return Ok(nothing("No survey was answered yet."));
    }
    let mut parts = Vec::new();
    for survey in &surveys.shown {
        parts.push(part(survey)?);
    }
    Ok(html! {
        ol.index aria-label="Surveys shown" {
            @for survey in &surveys.shown {
                li { a href={ "#survey-" (survey.id) } { (name(survey)) } " " span.meta { (many(survey.answers, "answer")) } }
            }
        }
        (left_out(surveys.left_out, "survey", " with fewer answers (--survey ID shows one)"))
        @for part in parts { (part) }
    })
}

pub(super) fn surveys(surveys: &Surveys) -> Result<Markup, ReportError> {
    Ok(section("surveys", content(surveys)?))
}

fn name(survey: &Survey) -> Markup {
    foreign_or(survey.name.as_deref(), &format!("survey {}", survey.id))
}

fn part(survey: &Survey) -> Result<Markup, ReportError> {
    let id = survey.id;
    let cards = survey.questions.iter().map(|question| questions::card(id, question)).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        article.survey aria-labelledby={ "survey-" (id) } {
            h3 id={ "survey-" (id) } { (name(survey)) }
            p.meta {
                "Survey " (id)
                @if let Some(status) = &survey.status { ", " (foreign_or(Some(status), "")) }
                ": " (many(survey.answers, "answer")) " in " (many(survey.sessions, "session"))
            }
            (funnel(survey))
            (left_out(survey.left_out, "question", ""))
            div.cards { @for card in cards { (card) } }
        }
    })
}

fn funnel(survey: &Survey) -> Markup {
    let rows = html! {
        @for step in &survey.funnel {
            tr {
                th scope="row" {
                    @if let Some(ordinal) = step.ordinal { (ordinal) ". " }
                    (foreign_or(step.text.as_deref(), &format!("question {}", step.question_id)))
                }
                td.bar-cell { (bar(step.answered_share, "a")) }
                td { (whole(step.answered)) } td { (percent(step.answered_share)) }
                td { (whole(step.shown)) } td { (percent(step.shown_share)) }
                td { (whole(step.skipped)) }
            }
        }
    };
    let heads = ["Question", "", "Answered", "of sessions", "Shown", "of sessions", "Skipped"];
    table("survey_funnel", &format!("How far visitors get in survey {}", survey.id), &heads, rows)
}
