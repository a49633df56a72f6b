//! The figures of a question by segment.

use maud::{Markup, html};

use super::elements::{folded, grouped, left_out, sanitized, service_text_or, table};
use crate::report::question_answers::{SegmentRow, TopItems};

/// Renders the figures by segment as a collapsed table; nothing for a question without such figures.
pub(super) fn part(segment: &str, rows: &TopItems<SegmentRow>) -> Markup {
    let Some(first) = rows.shown.first() else { return html! {} };
    let has_options = first.option.is_some();
    let cells = html! {
        @for row in &rows.shown {
            tr {
                th scope="row" { (service_text_or(row.segment.as_deref(), "unknown")) }
                @if has_options { td.word { (service_text_or(row.option.as_deref(), "no wording")) } }
                td { (grouped(row.answers)) }
                td { (row.figure.as_deref().unwrap_or("too few answers")) }
            }
        }
    };
    let heads: &[&str] =
        if has_options { &["Segment", "Option", "Answers", "Share"] } else { &["Segment", "Answers", "Figure"] };
    let by = format!("By {}", sanitized(segment));
    folded(&by, html! { (table("answer_segments", &by, heads, cells)) (left_out(rows.left_out, "row", "")) })
}
