//! What changed between two moments: rows by survey, figures that are others now.

use maud::{Markup, html};

use super::parts::{foreign, foreign_or, left_out, nothing, section, table, whole};
use crate::report::{Changes, FigureChange, RowChange, limits::CHANGES_MAX, rows::count, shown_value};

pub(super) fn changes(changes: &Changes) -> Markup {
    section(
        "changes",
        html! {
            p.meta { "From " time { (changes.since) } " to " time { (changes.until) } ", as scans saw it." }
            (rows(changes))
            (figures(changes))
        },
    )
}

fn rows(changes: &Changes) -> Markup {
    if changes.rows.is_empty() {
        return nothing("No row changed.");
    }
    let heads = ["Survey", "New answers", "Edited", "Deleted", "Vanished", "New themes", "Changed questions", "Status"];
    let total = changes.total();
    let shown = html! {
        @for row in &changes.rows { (row_of(row, name_of(row.survey_id, row.survey_name.as_deref()))) }
        @if changes.rows.len() > 1 { (row_of(&total, html! { "All" })) }
    };
    table("row_changes", "Rows that changed", &heads, shown)
}

fn row_of(row: &RowChange, name: Markup) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            @for count in [row.new_answers, row.edited, row.deleted, row.vanished, row.new_themes, row.changed_questions] {
                td { (whole(count)) }
            }
            td {
                @if row.status_before != row.status_after {
                    (foreign_or(row.status_before.as_deref(), "none")) " to " (foreign_or(row.status_after.as_deref(), "none"))
                }
            }
        }
    }
}

fn name_of(survey_id: Option<i64>, name: Option<&str>) -> Markup {
    match survey_id {
        Some(id) => foreign_or(name, &format!("survey {id}")),
        None => html! { em { "no survey" } },
    }
}

fn figures(changes: &Changes) -> Markup {
    let changed: Vec<&FigureChange> = changes.figures.iter().filter(|figure| figure.is_change()).collect();
    if changed.is_empty() {
        return nothing("No NPS, top-two box or choice share changed.");
    }
    let heads = ["Question", "Figure", "Before", "of answers", "After", "of answers", "Change"];
    let shown = html! {
        @for figure in changed.iter().take(CHANGES_MAX) {
            tr {
                th scope="row" {
                    (name_of(Some(figure.survey_id), figure.survey_name.as_deref())) ": "
                    (foreign_or(figure.question_text.as_deref(), &format!("question {}", figure.question_id)))
                }
                td { (what(figure)) }
                td { (figure.before.shown(&figure.figure)) } td { (whole(figure.before.answers)) }
                td { (figure.after.shown(&figure.figure)) } td { (whole(figure.after.answers)) }
                td { @if let Some(change) = figure.change { (shown_value(&figure.figure, change)) } }
            }
        }
    };
    let more = count(changed.len().saturating_sub(CHANGES_MAX));
    html! {
        (table("figure_changes", "Figures that changed, with their standard errors", &heads, shown))
        (left_out(more, "figure", " (studysync diff --json has all)"))
    }
}

fn what(figure: &FigureChange) -> Markup {
    match (figure.figure.as_str(), figure.label.as_deref()) {
        ("nps", _) => html! { "NPS" },
        ("top_two_share", _) => html! { "top-two box" },
        (_, Some(label)) => foreign(label),
        (other, None) => html! { (other) },
    }
}
