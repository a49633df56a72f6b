//! The card of one question, with the distribution of its answers.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{
    elements::{bar, bar_around_zero, counted, decimal, folded, grouped, left_out, percent, service_text_or, table},
    open_answers,
    overview::{band, nps_chart, nps_notes, nps_numbers},
    segments,
};
use crate::report::{
    ReportError, ReportSettings,
    chart::Size,
    nps::Period,
    question_answers::{Answers, Cell, Choice, Item, Rank, Scale, TopItems},
    surveys::Question,
};

/// The scores of an NPS question.
const SCORES: std::ops::RangeInclusive<i64> = 0..=10;
/// The largest scale that is shown with all its values. Of a larger scale, only chosen values are shown.
const SCALE_VALUES_MAX: i64 = 20;

/// Renders the card of a question. Questions of some types have no distribution.
pub(super) fn card(survey_id: i64, question: &Question, settings: &ReportSettings) -> Result<Markup, ReportError> {
    let id = format!("question-{survey_id}-{}", question.id);
    let answers = &question.answers;
    let body = match question.kind.as_deref() {
        Some("NPS") => nps(&id, answers)?,
        Some("LIKERT") => {
            html! { @if let Some(scale) = &answers.scale { (likert(scale, answers)) } }
        }
        Some("MULTIPLECHOICE" | "MULTIPLESELECT") => choices(answers),
        Some("MATRIX") => matrix(answers),
        Some("RANKORDER") => ranks(&answers.ranks),
        Some("MAXDIFF") => items(&answers.items),
        _ => match &answers.open {
            Some(open) => open_answers::part(open),
            None => html! { p.note { "Answers of this type have no distribution." } },
        },
    };
    Ok(html! {
        article.card aria-labelledby=(id) {
            h4 id=(id) { (service_text_or(question.text.as_deref(), &format!("question {}", question.id))) }
            p.meta {
                span.kind { (service_text_or(question.kind.as_deref(), "no type")) }
                " question " (question.id) ": shown " (grouped(question.shown)) ", answered " (grouped(question.answered))
                ", skipped " (grouped(question.skipped)) " (" (percent(question.skipped_share)) ")"
            }
            (body)
            @if let Some(segment) = &settings.segment { (segments::part(segment, &answers.segments)) }
        }
    })
}

/// Renders the NPS of a question with its band, the promoters, passives and detractors, and the NPS over time.
fn nps(id: &str, answers: &Answers) -> Result<Markup, ReportError> {
    let Some(nps) = &answers.nps else {
        return Ok(html! { p.note { "There are no answers." } });
    };
    let groups = [("Promoters, 9 and 10", "good"), ("Passives, 7 and 8", "middling"), ("Detractors, 0 to 6", "bad")];
    let rows = html! {
        @for ((name, class), (answers, share)) in groups.into_iter().zip(nps.groups) {
            tr {
                th scope="row" { (name) }
                td { (grouped(answers)) } td { (percent(share)) } td.bar-cell { (bar(share, class)) }
            }
        }
    };
    let periods = &answers.nps_periods;
    let caption = format!("NPS of this question by {}", periods.period.name());
    Ok(html! {
        p.figure {
            span.value { (decimal(nps.nps)) } " NPS, " (band(nps.band)) " from " (counted(nps.responses, "answer"))
        }
        @if let Some(before) = answers.before("nps", None, None) {
            p.note { "Period before: " (decimal(before.value)) " from " (counted(before.answers, "answer")) "." }
        }
        (table("nps_per_question", "Promoters, passives and detractors", &["", "Answers", "Share", ""], rows))
        (scores(answers))
        figure { (nps_chart(periods, id, &caption, &[Size::Narrow])?) }
        @if periods.shown.iter().any(|one| one.missing.is_some()) || periods.period == Period::Month {
            p.note { (nps_notes(periods)) }
        }
        (nps_numbers("_per_question", &caption, periods))
    })
}

/// Renders the answers of an NPS question by score as a collapsed table.
fn scores(answers: &Answers) -> Markup {
    let answers_of: BTreeMap<i64, i64> = answers.scores.iter().copied().collect();
    let most = answers_of.values().copied().max().unwrap_or(1).max(1);
    let rows = html! {
        @for score in SCORES.rev() {
            @let answers = answers_of.get(&score).copied().unwrap_or(0);
            @let (kind, class) = match score { 9.. => ("promoter", "good"), 7..=8 => ("passive", "middling"), _ => ("detractor", "bad") };
            tr {
                th scope="row" { (score) " " span.meta { (kind) } }
                td { (grouped(answers)) } td.bar-cell { (bar(answers as f64 / most as f64, class)) }
            }
        }
    };
    folded("By score", table("nps_answers", "Answers by score", &["Score", "Answers", ""], rows))
}

/// Renders the answers of a LIKERT question by value.
fn likert(scale: &Scale, answers: &Answers) -> Markup {
    let known: BTreeMap<i64, (i64, f64)> =
        scale.values.iter().map(|(value, answers, share)| (*value, (*answers, *share))).collect();
    // An earlier version of the question may have had a longer scale than the last one.
    let lowest = known.keys().next().map_or(scale.min, |least| scale.min.min(*least));
    let highest = known.keys().next_back().map_or(scale.max, |greatest| scale.max.max(*greatest));
    let values: Vec<i64> = match highest - lowest < SCALE_VALUES_MAX {
        true => (lowest..=highest).rev().collect(),
        false => known.keys().rev().copied().take(SCALE_VALUES_MAX as usize).collect(),
    };
    let rows = html! {
        @for value in &values {
            @let (answers, share) = known.get(value).copied().unwrap_or((0, 0.0));
            tr {
                th scope="row" { (value) }
                td { (grouped(answers)) } td { (percent(share)) } td.bar-cell { (bar(share, "a")) }
            }
        }
    };
    html! {
        (table("likert_distribution", "Answers by value", &["Value", "Answers", "Share", ""], rows))
        p.note {
            "Mean " (decimal_two(scale.mean)) " on a scale of " (scale.min) " to " (scale.max)
            @if let Some(share) = scale.top_two_share { "; top two values " (percent(share)) }
            (top_two_before(scale, answers))
            @if scale.not_rated > 0 { "; not rated, such as N/A: " (grouped(scale.not_rated)) " answers, in no share" }
        }
    }
}

/// Returns the share of the top two values in the period before, if the scale was the same.
fn top_two_before(scale: &Scale, answers: &Answers) -> String {
    match (answers.before("top_two_share", None, None), answers.scale_before) {
        (Some(before), Some(known)) if known == (scale.min, scale.max) => {
            format!(" (period before: {} from {})", percent(before.value), counted(before.answers, "answer"))
        }
        (Some(_), Some((min, max))) => format!(" (period before: a scale of {min} to {max})"),
        _ => String::new(),
    }
}

fn decimal_two(number: f64) -> String {
    format!("{number:.2}")
}

/// Renders the options of a choice question by how often they were chosen.
fn choices(answers: &Answers) -> Markup {
    let options = &answers.options;
    let has_before = !answers.before.is_empty();
    let name = |choice: &Choice| match (&choice.label, choice.index) {
        (None, Some(index)) => html! { em { "option with index " (index) } },
        (label, _) => service_text_or(label.as_deref(), "no wording"),
    };
    let rows = html! {
        @for choice in &options.shown {
            tr {
                th scope="row" { (name(choice)) }
                td { (grouped(choice.chosen)) } td { (percent(choice.share)) } td.bar-cell { (bar(choice.share, "a")) }
                @if has_before { td { (answers.before("choice_share", choice.label.as_deref(), choice.index).map_or_else(|| "–".to_owned(), |before| percent(before.value))) } }
            }
        }
    };
    let heads = ["Option", "Chosen", "of those who answered", "", "period before"];
    let heads = if has_before { &heads[..] } else { &heads[..4] };
    html! {
        (table("choice_share", "Options by how often they were chosen", heads, rows))
        (left_out(options.left_out, "option", ""))
    }
}

/// Renders the answers of a MATRIX question as a table of shaded cells.
fn matrix(answers: &Answers) -> Markup {
    let mut columns: BTreeMap<i64, &Cell> = BTreeMap::new();
    let mut rows: BTreeMap<i64, Vec<&Cell>> = BTreeMap::new();
    for cell in &answers.cells {
        columns.entry(cell.column_index).or_insert(cell);
        rows.entry(cell.row_index).or_default().push(cell);
    }
    let caption = "Answers of each row by column";
    html! {
        div.scroll tabindex="0" role="group" aria-label=(caption) {
            table.matrix data-view="matrix_distribution" {
                caption { (caption) " " span.view { "view " code { "matrix_distribution" } } }
                thead {
                    tr {
                        th scope="col" { "Row" }
                        @for cell in columns.values() { th scope="col" { (service_text_or(cell.column.as_deref(), "no wording")) } }
                        th scope="col" { "Answers" }
                    }
                }
                tbody {
                    @for cells in rows.values() {
                        @if let Some(first) = cells.first() {
                            tr {
                                th scope="row" { (service_text_or(first.row.as_deref(), "no wording")) }
                                @for index in columns.keys() {
                                    @match cells.iter().find(|cell| cell.column_index == *index) {
                                        Some(cell) => td class={ "heat h" (heat(cell.share)) } { (grouped(cell.answers)) span.meta { " " (percent(cell.share)) } },
                                        None => td.heat { "0" },
                                    }
                                }
                                td { (grouped(first.answered)) }
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

/// Returns one of ten shades for a share, 0 to 9.
fn heat(share: f64) -> u8 {
    (share.clamp(0.0, 1.0) * 9.99) as u8
}

/// Renders the options of a RANKORDER question by mean rank.
fn ranks(ranks: &TopItems<Rank>) -> Markup {
    let rows = html! {
        @for rank in &ranks.shown {
            tr {
                th scope="row" { (service_text_or(rank.option.as_deref(), "no wording")) }
                td { (decimal_two(rank.mean_rank)) } td { (grouped(rank.answers)) }
                td { (percent(rank.first_place_share)) } td.bar-cell { (bar(rank.first_place_share, "a")) }
            }
        }
    };
    html! {
        (table("rank_summary", "Options by mean rank; 1 is first", &["Option", "Mean rank", "Answers", "Ranked first", ""], rows))
        (left_out(ranks.left_out, "option", ""))
    }
}

/// Renders the items of a MAXDIFF question by score.
fn items(items: &TopItems<Item>) -> Markup {
    let rows = html! {
        @for item in &items.shown {
            tr {
                th scope="row" { (service_text_or(item.item.as_deref(), "no wording")) }
                td { (item.score.map_or_else(|| "–".to_owned(), decimal_two)) }
                td.bar-cell { @if let Some(score) = item.score { (bar_around_zero(score)) } }
                td { (grouped(item.shown)) } td { (grouped(item.chosen_left)) } td { (grouped(item.chosen_right)) }
            }
        }
    };
    let is_scored = items.shown.iter().any(|item| item.score.is_some());
    html! {
        (table("maxdiff_scores", "Items by best-worst score, -1 to 1", &["Item", "Score", "", "Shown", "Chosen left", "Chosen right"], rows))
        @if !is_scored { p.note { "There is no score, because the labels of the question do not say which side is best." } }
        (left_out(items.left_out, "item", ""))
    }
}
