//! The elements of the page: texts of the service, bars, charts, tables, sections.

use maud::{Markup, PreEscaped, html};

pub(super) use crate::report::format::{counted, decimal, grouped, sanitized, sanitized_up_to};

use crate::report::{chart::Drawing, format};

/// Formats a share of 0 to 1 as a percentage that stays in one line.
pub(super) fn percent(share: f64) -> String {
    format::percent(share).replace(' ', "\u{a0}")
}

/// The sections of the page: anchor and heading.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("changes", "What changed"),
    ("answers", "Answers per day"),
    ("nps", "NPS"),
    ("surveys", "Surveys"),
    ("themes", "Themes"),
    ("trust", "Can it be trusted?"),
    ("coverage", "Coverage"),
    ("runs", "Last runs"),
];

/// Maximum length of an option that is kept in one line. A longer word might not fit a phone.
const OPTION_CHARS_MAX: usize = 30;

/// Renders a text of the service. The text is shortened, has no control characters, and does not change the writing
/// direction of the text around it.
pub(super) fn service_text(text: &str) -> Markup {
    html! { bdi { (sanitized(text)) } }
}

/// Renders a text of the service as [`service_text`] does, up to this number of characters.
pub(super) fn text_up_to(text: &str, chars_max: usize) -> Markup {
    html! { bdi { (sanitized_up_to(text, chars_max)) } }
}

/// Renders a text of the service, or `nothing` if there is none.
pub(super) fn service_text_or(text: Option<&str>, nothing: &str) -> Markup {
    match text {
        Some(text) if !text.trim().is_empty() => service_text(text),
        _ => html! { em { (nothing) } },
    }
}

/// Renders a bar of a share of 0 to 1.
pub(super) fn bar(share: f64, class: &str) -> Markup {
    let width = format!("{:.1}", share.clamp(0.0, 1.0) * 100.0);
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect.track width="100" height="10" {}
            rect class=(class) width=(width) height="10" {}
        }
    }
}

/// Renders a bar of a value of -1 to 1, from the middle to the left or right.
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

/// Renders a drawing with a title and a description for screen readers.
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

/// Renders the values of a chart as columns over its points, which show their text under a pointer, or by keyboard: the
/// columns are one stop, and arrow keys go from one to the next. `None` is a gap of this width. `class` places the
/// columns as the drawing of this class places its points.
pub(super) fn values(id: &str, class: &str, title: &str, columns: &[Option<String>]) -> Markup {
    let middle = columns.len() / 2;
    html! {
        fieldset class={ "points " (class) } aria-label={ (title) ": values, by arrow keys" } {
            @for (index, text) in columns.iter().enumerate() {
                @match text {
                    Some(text) => input type="radio" name=(id) aria-label=(text) class=[(index < middle).then_some("right")];,
                    None => span {},
                }
            }
        }
    }
}

/// Renders the numbers of a chart as a collapsed table. `view` is the view of the warehouse from which the numbers
/// come.
pub(super) fn numbers(view: &str, caption: &str, heads: &[&str], rows: Markup) -> Markup {
    folded("The numbers", table(view, caption, heads, rows))
}

/// Renders a part that is shown when a reader opens it.
pub(super) fn folded(summary: &str, content: Markup) -> Markup {
    html! { details { summary { (summary) } (content) } }
}

/// Renders a table. Each row in `rows` must begin with a heading cell that names the row. `view` is the view of the
/// warehouse from which the numbers come.
pub(super) fn table(view: &str, caption: &str, heads: &[&str], rows: Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label=(caption) {
            table data-view=(view) {
                caption { (caption) " " span.view { "view " code { (view) } } }
                thead { tr { @for head in heads { (head_cell(head)) } } }
                tbody { (rows) }
            }
        }
    }
}

/// Renders the cell above a column. A column of drawings has no heading.
pub(super) fn head_cell(head: &str) -> Markup {
    html! { @if head.is_empty() { td {} } @else { th scope="col" { (head) } } }
}

/// Renders how many items are not shown; nothing if `number` is 0. `why` is appended.
pub(super) fn left_out(number: i64, noun: &str, why: &str) -> Markup {
    html! { @if number > 0 { p.left-out { "Not shown: " (counted(number, noun)) (whole_options(why)) "." } } }
}

/// Renders a text in which no line ends inside an option such as `--survey`.
pub fn whole_options(text: &str) -> Markup {
    let is_option = |word: &str| {
        let name = word.trim_start_matches(|letter: char| !letter.is_alphanumeric());
        word.len() <= OPTION_CHARS_MAX && word.trim_end_matches(name).ends_with('-')
    };
    html! {
        @for word in text.split_inclusive(' ') {
            @if is_option(word) { span.option { (word) } } @else { (word) }
        }
    }
}

/// Renders a note in place of an empty section.
pub(super) fn nothing(text: &str) -> Markup {
    html! { p.nothing { (text) } }
}

/// Renders a section with its heading.
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
    fn texts_of_the_service_are_escaped_and_shortened() {
        let text = service_text("<script>alert(1)</script> & \u{202e}evil\u{0}\n\"x\"").into_string();
        assert_eq!(text, "<bdi>&lt;script&gt;alert(1)&lt;/script&gt; &amp; \u{fffd}evil\u{fffd} &quot;x&quot;</bdi>");
        assert_eq!(sanitized(&"é".repeat(TEXT_CHARS_MAX + 1)).chars().count(), TEXT_CHARS_MAX + 1);
        assert!(sanitized(&"é".repeat(1000)).ends_with("é…"));
        assert_eq!(service_text_or(Some(" "), "none").into_string(), "<em>none</em>");
    }

    #[test]
    fn options_are_kept_in_one_line() {
        let text = whole_options(" (--survey ID, `--by` & well-known -v) - x").into_string();
        let option = |text: &str| format!("<span class=\"option\">{text}</span>");
        assert_eq!(
            text,
            format!(" {}ID, {}&amp; well-known {}- x", option("(--survey "), option("`--by` "), option("-v) "))
        );
        assert!(!whole_options(&format!("--{}", "x".repeat(30))).into_string().contains("option"));
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!([grouped(0), grouped(-1234), grouped(999), grouped(1_234_567)], ["0", "-1,234", "999", "1,234,567"]);
        assert_eq!(percent(0.12345), "12.3\u{a0}%");
        assert_eq!(decimal(-0.04), "0.0");
        assert_eq!(counted(1, "day"), "1 day");
    }
}
