//! The last runs, and where the time of each went.

use maud::{Markup, html};

use super::parts::{foreign, nothing, section, whole};
use crate::{
    model::{TimeParts, format_ms},
    report::runs::Run,
};

/// The parts of a run's time, in the order of the bars and of the table.
const PARTS: [(&str, &str); 6] = [
    ("network", "network"),
    ("told to wait", "told"),
    ("chose to wait", "chose"),
    ("parse", "parse"),
    ("write", "write"),
    ("idle", "idle"),
];

fn parts(times: &TimeParts) -> [u64; 6] {
    [times.network, times.told_to_wait, times.chose_to_wait, times.parse, times.write, times.idle]
}

pub(super) fn runs(runs: &[Run]) -> Markup {
    if runs.is_empty() {
        return section("runs", nothing("No run has changed the warehouse yet."));
    }
    let caption = "The last runs that changed the warehouse; seconds";
    section(
        "runs",
        html! {
            ul.legend aria-label="What the parts of the bars mean, from the left" {
                @for (name, class) in PARTS { li { span class={ "key part-" (class) } {} " " (name) } }
            }
            div.scroll tabindex="0" role="region" aria-label=(caption) {
                table.runs data-view="sync_runs" {
                    caption { (caption) " " span.view { "table " code { "sync_runs" } } }
                    thead {
                        tr {
                            @for head in ["Started", "Command", "Outcome", "Requests", "", "Took"] { th scope="col" { (head) } }
                            @for (name, _) in PARTS { th scope="col" { (name) } }
                        }
                    }
                    tbody { @for run in runs { (row(run)) } }
                }
            }
        },
    )
}

fn row(run: &Run) -> Markup {
    html! {
        tr data-run=(run.run_id) {
            th scope="row" { (format_ms(run.started_ms.div_euclid(1000) * 1000).replace('T', " ").replace('Z', "")) }
            td.word { (foreign(&run.command)) }
            td.word { (foreign(&run.outcome.replace('_', " "))) }
            @match &run.report {
                Some(report) => {
                    td { (whole(i64::try_from(report.requests.total).unwrap_or(i64::MAX))) }
                    td.bar-cell { (stacked(&report.time_ms)) }
                    td { (seconds(report.time_ms.wall)) }
                    @for part in parts(&report.time_ms) { td { (seconds(part)) } }
                }
                None => td.word colspan="9" { "its JSON cannot be read" },
            }
        }
    }
}

fn seconds(ms: u64) -> String {
    format!("{:.1}", ms as f64 / 1000.0)
}

/// All of a run's time, part after part.
fn stacked(times: &TimeParts) -> Markup {
    let parts = parts(times);
    let total = parts.iter().sum::<u64>().max(1) as f64;
    let mut from = 0.0;
    let mut bars = Vec::new();
    for (part, (_, class)) in parts.iter().zip(PARTS) {
        let width = *part as f64 / total * 100.0;
        bars.push((from, width, class));
        from += width;
    }
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            @for (from, width, class) in bars {
                @if width > 0.0 {
                    rect class={ "part-" (class) } x=(format!("{from:.2}")) width=(format!("{width:.2}")) height="10" {}
                }
            }
        }
    }
}
