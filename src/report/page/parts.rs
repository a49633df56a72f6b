//! What all parts of the page are made of: foreign texts, numbers, bars, charts, tables of numbers.

use maud::{Markup, PreEscaped, html};

pub(super) use crate::report::words::{clean, decimal, percent, whole};

use crate::report::chart::Drawing;

/// The sections: anchor and heading.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("changes", "What changed"),
    ("answers", "Answers a day"),
    ("nps", "NPS by week"),
    ("surveys", "Surveys"),
    ("themes", "Themes"),
    ("coverage", "What is proven complete"),
    ("runs", "Where the time went"),
];

/// A text of the service: cut, without anything that steers a display, and apart from what stands around it,
/// whatever way it is written.
pub(super) fn foreign(text: &str) -> Markup {
    html! { bdi { (clean(text)) } }
}

/// The same, or a word for nothing.
pub(super) fn foreign_or(text: Option<&str>, nothing: &str) -> Markup {
    match text {
        Some(text) if !text.trim().is_empty() => foreign(text),
        _ => html! { em { (nothing) } },
    }
}

/// `1 answer`, `2 answers`
pub(super) fn many(number: i64, what: &str) -> String {
    format!("{} {what}{}", whole(number), if number == 1 { "" } else { "s" })
}

/// A bar of a share of 0 to 1, beside the number that it shows.
pub(super) fn bar(share: f64, class: &str) -> Markup {
    let width = format!("{:.1}", share.clamp(0.0, 1.0) * 100.0);
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect.track width="100" height="10" {}
            rect class=(class) width=(width) height="10" {}
        }
    }
}

/// A bar of -1 to 1 around a middle, beside the number that it shows.
pub(super) fn bar_around_zero(value: f64) -> Markup {
    let length = value.abs().clamp(0.0, 1.0) * 50.0;
    let from = if value < 0.0 { 50.0 - length } else { 50.0 };
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect.track width="100" height="10" {}
            rect class=(if value < 0.0 { "b" } else { "a" }) x=(format!("{from:.1}")) width=(format!("{length:.1}")) height="10" {}
            rect.zero x="49.7" width="0.6" height="10" {}
        }
    }
}

/// A drawing with its name and what it shows, for those who do not see it.
pub(super) fn chart(drawing: &Drawing, id: &str, class: &str, title: &str, description: &str) -> Markup {
    html! {
        svg class={ "chart " (class) } role="img" viewBox={ "0 0 " (drawing.width) " " (drawing.height) }
            aria-labelledby={ (id) "-title " (id) "-desc" } {
            title id={ (id) "-title" } { (title) }
            desc id={ (id) "-desc" } { (description) }
            (PreEscaped(&drawing.inside))
        }
    }
}

/// The numbers behind a chart: a table that opens. `view` is the view of the warehouse that has them.
pub(super) fn numbers(view: &str, caption: &str, heads: &[&str], rows: Markup) -> Markup {
    html! {
        details {
            summary { "The numbers" }
            (table(view, caption, heads, rows))
        }
    }
}

/// A table whose first column names the row.
pub(super) fn table(view: &str, caption: &str, heads: &[&str], rows: Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table data-view=(view) {
                caption { (caption) " " span.view { "view " code { (view) } } }
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// What is not shown, if anything is not.
pub(super) fn left_out(number: i64, what: &str, why: &str) -> Markup {
    html! { @if number > 0 { p.left-out { "Not shown: " (many(number, what)) (why) "." } } }
}

/// In place of a section that has nothing to show.
pub(super) fn nothing(text: &str) -> Markup {
    html! { p.nothing { (text) } }
}

/// A section with its heading.
pub(super) fn section(anchor: &str, content: Markup) -> Markup {
    let name = SECTIONS.iter().find(|(known, _)| *known == anchor).map_or(anchor, |(_, name)| name);
    html! {
        section id=(anchor) aria-labelledby={ (anchor) "-heading" } {
            h2 id={ (anchor) "-heading" } { (name) }
            (content)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::limits::TEXT_CHARS_MAX;

    #[test]
    fn foreign_texts_do_no_harm() {
        let text = foreign("<script>alert(1)</script> & \u{202e}evil\u{0}\n\"x\"").into_string();
        assert_eq!(text, "<bdi>&lt;script&gt;alert(1)&lt;/script&gt; &amp; \u{fffd}evil\u{fffd} &quot;x&quot;</bdi>");
        assert_eq!(clean(&"é".repeat(TEXT_CHARS_MAX + 1)).chars().count(), TEXT_CHARS_MAX + 1);
        assert!(clean(&"é".repeat(1000)).ends_with("é…"));
        assert_eq!(foreign_or(Some(" "), "none").into_string(), "<em>none</em>");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([whole(0), whole(-1234), whole(999), whole(1_234_567)], ["0", "-1,234", "999", "1,234,567"]);
        assert_eq!(percent(0.12345), "12.3 %");
        assert_eq!(decimal(-0.04), "0.0");
        assert_eq!(many(1, "day"), "1 day");
    }
}
