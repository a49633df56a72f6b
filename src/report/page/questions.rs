//! One question and the distribution of its answers, in the form that suits its type.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{
    overview::{nps_chart, nps_numbers},
    parts::{bar, bar_around_zero, foreign_or, left_out, percent, table, whole},
};
use crate::report::{
    ReportError,
    chart::Size,
    surveys::{Answers, Cell, Choice, Item, Listed, Question, Rank, Scale},
};

/// Scores of NPS.
const SCORES: std::ops::RangeInclusive<i64> = 0..=10;
/// A scale of more values is shown by those that were chosen.
const SCALE_VALUES_MAX: i64 = 20;

pub(super) fn card(survey_id: i64, question: &Question) -> Result<Markup, ReportError> {
    let id = format!("question-{survey_id}-{}", question.id);
    let answers = &question.answers;
    let body = match question.kind.as_deref() {
        Some("NPS") => nps(&id, answers)?,
        Some("LIKERT") => html! { @if let Some(scale) = &answers.scale { (likert(scale)) } },
        Some("MULTIPLECHOICE" | "MULTIPLESELECT") => choices(&answers.options),
        Some("MATRIX") => matrix(answers),
        Some("RANKORDER") => ranks(&answers.ranks),
        Some("MAXDIFF") => items(&answers.items),
        _ => html! { p.note { "Answers of this type have no distribution." } },
    };
    Ok(html! {
        article.card aria-labelledby=(id) {
            h4 id=(id) { (foreign_or(question.text.as_deref(), &format!("question {}", question.id))) }
            p.meta {
                span.kind { (foreign_or(question.kind.as_deref(), "no type")) }
                " question " (question.id) ": shown " (whole(question.shown)) ", answered " (whole(question.answered))
                ", skipped " (whole(question.skipped)) " (" (percent(question.skipped_share)) ")"
            }
            (body)
        }
    })
}

fn nps(id: &str, answers: &Answers) -> Result<Markup, ReportError> {
    let total: i64 = answers.scores.iter().map(|(_, answers)| answers).sum();
    if total == 0 {
        return Ok(html! { p.note { "No answer counts." } });
    }
    let answers_of: BTreeMap<i64, i64> = answers.scores.iter().copied().collect();
    let most = answers_of.values().copied().max().unwrap_or(1).max(1);
    let rows = html! {
        @for score in SCORES.rev() {
            @let answers = answers_of.get(&score).copied().unwrap_or(0);
            @let (kind, class) = match score { 9.. => ("promoter", "good"), 7..=8 => ("passive", "middling"), _ => ("detractor", "bad") };
            tr {
                th scope="row" { (score) " " span.meta { (kind) } }
                td { (whole(answers)) } td.bar-cell { (bar(answers as f64 / most as f64, class)) }
            }
        }
    };
    Ok(html! {
        (table("nps_answers", "Answers by score", &["Score", "Answers", ""], rows))
        figure { (nps_chart(&answers.nps_weeks, id, "NPS of this question by week", &[Size::Narrow])?) }
        (left_out(answers.nps_weeks.earlier, "earlier week", ""))
        (nps_numbers("nps_by_week_per_question", "NPS of this question by week", &answers.nps_weeks))
    })
}

fn likert(scale: &Scale) -> Markup {
    let known: BTreeMap<i64, (i64, f64)> =
        scale.values.iter().map(|(value, answers, share)| (*value, (*answers, *share))).collect();
    let values: Vec<i64> = match scale.max - scale.min < SCALE_VALUES_MAX {
        true => (scale.min..=scale.max).rev().collect(),
        false => known.keys().rev().copied().take(SCALE_VALUES_MAX as usize).collect(),
    };
    let rows = html! {
        @for value in &values {
            @let (answers, share) = known.get(value).copied().unwrap_or((0, 0.0));
            tr {
                th scope="row" { (value) }
                td { (whole(answers)) } td { (percent(share)) } td.bar-cell { (bar(share, "a")) }
            }
        }
    };
    html! {
        (table("likert_distribution", "Answers by value", &["Value", "Answers", "Share", ""], rows))
        p.note {
            "Mean " (decimal_two(scale.mean)) " on a scale of " (scale.min) " to " (scale.max)
            @if let Some(share) = scale.top_two_share { "; top two values " (percent(share)) }
        }
    }
}

/// Two decimals.
fn decimal_two(number: f64) -> String {
    format!("{number:.2}")
}

fn choices(options: &Listed<Choice>) -> Markup {
    let name = |choice: &Choice| match (&choice.label, choice.index) {
        (None, Some(index)) => html! { em { "option with index " (index) } },
        (label, _) => foreign_or(label.as_deref(), "no wording"),
    };
    let rows = html! {
        @for choice in &options.shown {
            tr {
                th scope="row" { (name(choice)) }
                td { (whole(choice.chosen)) } td { (percent(choice.share)) } td.bar-cell { (bar(choice.share, "a")) }
            }
        }
    };
    html! {
        (table("choice_share", "Options by how often they were chosen", &["Option", "Chosen", "of those who answered", ""], rows))
        (left_out(options.left_out, "option", ""))
    }
}

fn matrix(answers: &Answers) -> Markup {
    let mut columns: BTreeMap<i64, &Cell> = BTreeMap::new();
    let mut rows: BTreeMap<i64, Vec<&Cell>> = BTreeMap::new();
    for cell in &answers.cells {
        columns.entry(cell.column_place).or_insert(cell);
        rows.entry(cell.row_place).or_default().push(cell);
    }
    let caption = "Answers of each row by column";
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table.matrix data-view="matrix_distribution" {
                caption { (caption) " " span.view { "view " code { "matrix_distribution" } } }
                thead {
                    tr {
                        th scope="col" { "Row" }
                        @for cell in columns.values() { th scope="col" { (foreign_or(cell.column.as_deref(), "no wording")) } }
                        th scope="col" { "Answers" }
                    }
                }
                tbody {
                    @for cells in rows.values() {
                        @if let Some(first) = cells.first() {
                            tr {
                                th scope="row" { (foreign_or(first.row.as_deref(), "no wording")) }
                                @for place in columns.keys() {
                                    @match cells.iter().find(|cell| cell.column_place == *place) {
                                        Some(cell) => td class={ "heat h" (heat(cell.share)) } { (whole(cell.answers)) span.meta { " " (percent(cell.share)) } },
                                        None => td.heat { "0" },
                                    }
                                }
                                td { (whole(first.answered)) }
                            }
                        }
                    }
                }
            }
        }
        (left_out(answers.rows_left_out, "row", ""))
        (left_out(answers.columns_left_out, "column", ""))
    }
}

/// Which of the ten shades.
fn heat(share: f64) -> u8 {
    (share.clamp(0.0, 1.0) * 9.99) as u8
}

fn ranks(ranks: &Listed<Rank>) -> Markup {
    let rows = html! {
        @for rank in &ranks.shown {
            tr {
                th scope="row" { (foreign_or(rank.option.as_deref(), "no wording")) }
                td { (decimal_two(rank.mean_rank)) } td { (whole(rank.answers)) }
                td { (percent(rank.first_place_share)) } td.bar-cell { (bar(rank.first_place_share, "a")) }
            }
        }
    };
    html! {
        (table("rank_summary", "Options by mean rank; 1 is first", &["Option", "Mean rank", "Answers", "Ranked first", ""], rows))
        (left_out(ranks.left_out, "option", ""))
    }
}

fn items(items: &Listed<Item>) -> Markup {
    let rows = html! {
        @for item in &items.shown {
            tr {
                th scope="row" { (foreign_or(item.item.as_deref(), "no wording")) }
                td { (item.score.map_or_else(|| "–".to_owned(), decimal_two)) }
                td.bar-cell { @if let Some(score) = item.score { (bar_around_zero(score)) } }
                td { (whole(item.shown)) } td { (whole(item.chosen_left)) } td { (whole(item.chosen_right)) }
            }
        }
    };
    let is_scored = items.shown.iter().any(|item| item.score.is_some());
    html! {
        (table("maxdiff_scores", "Items by best-worst score, -1 to 1", &["Item", "Score", "", "Shown", "Chosen left", "Chosen right"], rows))
        @if !is_scored { p.note { "The labels of the question do not tell which side is best: no score." } }
        (left_out(items.left_out, "item", ""))
    }
}
