//! The section about what is known against the data.

use maud::{Markup, html};

use super::elements::{counted, folded, grouped, left_out, nothing, section, service_text, table};
use crate::{model::Untrusted, report::rows::count};

/// Rows of each reason that are always shown: those of its newest ranges.
const SHOWN_OF_REASON: usize = 3;
/// Maximum rows of the folded table.
const FOLDED_MAX: usize = 200;
const HEADS: [&str; 6] = ["Reason", "Of", "From", "To", "Records", "What was found"];

/// Renders what is known against the data, one row for each reason and range. Older ranges of a reason are folded.
pub(super) fn trust(untrusted: &[Untrusted]) -> Markup {
    if untrusted.is_empty() {
        return section("trust", nothing("Nothing is known against the data."));
    }
    let (mut shown, mut older): (Vec<&Untrusted>, Vec<&Untrusted>) = (Vec::new(), Vec::new());
    for one in untrusted {
        let of_reason = shown.iter().filter(|shown| shown.reason == one.reason).count();
        if of_reason < SHOWN_OF_REASON { shown.push(one) } else { older.push(one) }
    }
    let known = |rows: &[&Untrusted]| {
        table("untrusted", "Known against the data", &HEADS, html! { @for one in rows { (row(one)) } })
    };
    let (listed, missing) = older.split_at(older.len().min(FOLDED_MAX));
    section(
        "trust",
        html! {
            p.note { "Figures of these ranges may be wrong or incomplete." }
            (known(&shown))
            @if !listed.is_empty() { (folded(&counted(count(older.len()), "more row"), known(listed))) }
            (left_out(count(missing.len()), "row", "; studysync query \"FROM untrusted\" has all"))
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
