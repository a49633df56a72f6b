//! The time of a run by part, as a bar, for the report and the status page of `serve`.

use maud::{Markup, html};

use crate::model::TimeParts;

/// The parts of a run's time in the order of bars and tables: name and CSS class.
pub const PARTS: [(&str, &str); 6] = [
    ("network", "network"),
    ("rate limited", "rate-limited"),
    ("pacing", "pacing"),
    ("parse", "parse"),
    ("write", "write"),
    ("idle", "idle"),
];

/// Returns the parts in milliseconds, in the order of [`PARTS`].
pub fn parts(times: &TimeParts) -> [u64; 6] {
    [times.network, times.told_to_wait, times.chose_to_wait, times.parse, times.write, times.idle]
}

/// Formats milliseconds as seconds: `12.3`.
pub fn seconds(ms: u64) -> String {
    format!("{:.1}", ms as f64 / 1000.0)
}

/// Renders the legend of the parts of the bars.
pub fn legend() -> Markup {
    html! {
        ul.legend aria-label="What the parts of the bars mean, from the left" {
            @for (name, class) in PARTS { li { span class={ "key part-" (class) } {} " " (name) } }
        }
    }
}

/// Renders the time of a run as a bar, part after part.
pub fn stacked(times: &TimeParts) -> Markup {
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
