//! The section of the last runs: the outcome, the requests, and the time of each run by part.

use maud::{Markup, html};

use super::{
    elements::{folded, grouped, head_cell, nothing, section, service_text},
    time_split::{PARTS, legend, parts, seconds, stacked},
};
use crate::{model::format_ms, report::report_data::RunRow};

/// Renders the section of the last runs.
pub(super) fn runs(runs: &[RunRow]) -> Markup {
    if runs.is_empty() {
        return section("runs", nothing("No run has changed the warehouse yet."));
    }
    let caption = "The last runs that changed the warehouse; seconds";
    section(
        "runs",
        folded(
            "For operators: the last runs that changed the warehouse",
            html! {
                (legend())
                div.scroll tabindex="0" role="group" aria-label=(caption) {
                    table.runs data-view="sync_runs" {
                        caption { (caption) " " span.view { "table " code { "sync_runs" } } }
                        thead {
                            tr {
                                @for head in ["Started", "Command", "Outcome", "Requests", "", "Took"] { (head_cell(head)) }
                                @for (name, _) in PARTS { th scope="col" { (name) } }
                            }
                        }
                        tbody { @for run in runs { (row(run)) } }
                    }
                }
            },
        ),
    )
}

/// Renders the row of a run. If its report cannot be read, a text takes the place of the numbers.
fn row(run: &RunRow) -> Markup {
    html! {
        tr data-run=(run.run_id) {
            th scope="row" { (format_ms(run.started_ms.div_euclid(1000) * 1000).replace('T', " ").replace('Z', "")) }
            td.word { (service_text(&run.command)) }
            td.word { (service_text(&run.outcome.replace('_', " "))) }
            @match &run.figures {
                Some((requests, times)) => {
                    td { (grouped(i64::try_from(*requests).unwrap_or(i64::MAX))) }
                    td.bar-cell { (stacked(times)) }
                    td { (seconds(times.wall)) }
                    @for part in parts(times) { td { (seconds(part)) } }
                }
                None => td.word colspan="9" { "its report cannot be read" },
            }
        }
    }
}
