//! The section about what is known against the data.

use maud::{Markup, html};

use super::elements::{grouped, left_out, nothing, section, service_text, table};
use crate::{model::Untrusted, report::rows::count};

/// Maximum rows of the table.
const ROWS_MAX: usize = 50;
const HEADS: [&str; 6] = ["Reason", "Of", "From", "To", "Records", "What was found"];

/// Renders what is known against the data, one row for each reason and range.
pub(super) fn trust(untrusted: &[Untrusted]) -> Markup {
    if untrusted.is_empty() {
        return section("trust", nothing("Nothing is known against the data."));
    }
    let rows = html! { @for one in untrusted.iter().take(ROWS_MAX) { (row(one)) } };
    section(
        "trust",
        html! {
            p.note { "Figures of these ranges may be wrong or incomplete." }
            (table("untrusted", "Known against the data", &HEADS, rows))
            (left_out(count(untrusted.len().saturating_sub(ROWS_MAX)), "reason", ""))
        },
    )
}

fn row(one: &Untrusted) -> Markup {
    let [start, end] = one.minutes();
    html! {
        tr {
            th scope="row" { (service_text(&one.reason.replace('_', " "))) }
            td.word { (service_text(&one.concerns())) }
            td { (start) } td { (end) }
            td { @if let Some(records) = one.records { (grouped(records)) } }
            td.word { (service_text(&one.detail)) }
        }
    }
}
