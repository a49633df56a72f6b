//! The section of changes between two times: changed rows by survey, and changed figures.

use maud::{Markup, html};

use super::elements::{grouped, left_out, nothing, section, service_text, service_text_or, table};
use crate::report::{Changes, FigureChange, RowChange, limits::CHANGES_MAX, rows::count, shown_value};

/// Renders the section of changes.
pub(super) fn changes(changes: &Changes) -> Markup {
    section(
        "changes",
        html! {
            p.meta { "From " time { (changes.since) } " to " time { (changes.until) } ", as the scans found them." }
            @if let Some(began) = &changes.warehouse_began {
                p.meta { "The first load of this warehouse ended at " time { (began) } ": these are the changes since then." }
            }
            (rows(changes))
            (figures(changes))
        },
    )
}

/// Renders the table of changed rows, with a line for each survey and a total.
fn rows(changes: &Changes) -> Markup {
    if changes.rows.is_empty() {
        return nothing("No row changed.");
    }
    let heads = [
        "Survey",
        "Answers before",
        "New",
        "Returned",
        "Deleted",
        "Vanished",
        "Answers after",
        "Other changes",
        "Status",
    ];
    let total = changes.total();
    let shown = html! {
        @for row in &changes.rows { (row_markup(row, survey_name(row.survey_id, row.survey_name.as_deref()))) }
        @if changes.rows.len() > 1 { (row_markup(&total, html! { "All" })) }
    };
    table("row_changes", "Rows that changed", &heads, shown)
}

/// Renders the row of a survey, or of the total. `name` is its heading.
fn row_markup(row: &RowChange, name: Markup) -> Markup {
    let others: Vec<String> = (row.other_changes().into_iter())
        .map(|(what, counts)| {
            let counts: Vec<String> = counts.iter().map(|(count, how)| format!("{} {how}", grouped(*count))).collect();
            format!("{what}: {}", counts.join(", "))
        })
        .collect();
    html! {
        tr {
            th scope="row" { (name) }
            @for count in [row.answers_before, row.new_answers, row.returned, row.deleted, row.vanished, row.answers_after] {
                td { (grouped(count)) }
            }
            td { (others.join("; ")) }
            td {
                @if row.status_before != row.status_after {
                    (service_text_or(row.status_before.as_deref(), "none")) " to " (service_text_or(row.status_after.as_deref(), "none"))
                }
            }
        }
    }
}

fn survey_name(survey_id: Option<i64>, name: Option<&str>) -> Markup {
    match survey_id {
        Some(id) => service_text_or(name, &format!("survey {id}")),
        None => html! { em { "no survey" } },
    }
}

/// Renders the table of changed figures, at most [`CHANGES_MAX`].
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
                    (survey_name(figure.survey_id, figure.survey_name.as_deref())) ": "
                    (service_text_or(figure.question_text.as_deref(), &format!("question {}", figure.question_id)))
                }
                td { (figure_name(figure)) }
                td { (figure.before.shown(&figure.figure)) } td { (grouped(figure.before.answers)) }
                td { (figure.after.shown(&figure.figure)) } td { (grouped(figure.after.answers)) }
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

fn figure_name(figure: &FigureChange) -> Markup {
    match (figure.figure.as_str(), figure.label.as_deref(), figure.selected_index) {
        ("nps", ..) => html! { "NPS" },
        ("top_two_share", ..) => html! { "top-two box" },
        (_, Some(label), _) => service_text(label),
        (_, None, Some(index)) => html! { em { "option with index " (index) } },
        (_, None, None) => html! { em { "no wording" } },
    }
}
