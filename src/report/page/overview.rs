//! The sections about all surveys together: totals, answers per day, NPS by week, themes.

use maud::{Markup, html};

use super::elements::{
    bar, chart, counted, decimal, grouped, left_out, nothing, numbers, section, service_text_or, table, values,
};
use crate::report::{
    ReportError,
    chart::{Size, answers_per_day, nps_over_time},
    coverage::Coverage,
    format::day_text,
    nps::{ANSWERS_OF_WEEK_MIN, NpsPeriods, Period},
    report_data::{Day, Days, ReportData, Themes, Totals},
    rows::count,
};

/// Renders the totals: answers, sessions, the NPS of the last finished week or month, and the last day that was read.
pub(super) fn tiles(data: &ReportData) -> Markup {
    let totals = &data.totals;
    let nps = data.nps.as_ref().and_then(|nps| Some((nps.period, nps.headline()?)));
    let before = |count: fn(&Totals) -> i64| {
        html! {
            @if let Some((_, totals)) = &data.before { "period before: " (grouped(count(totals))) br; }
        }
    };
    html! {
        dl.tiles #totals {
            (tile("Answers", html! { (grouped(totals.answers)) }, html! {
                (before(|before| before.answers))
                @if let (Some(first), Some(last)) = (totals.first_day, totals.last_day) { (day(first)) " to " (day(last)) }
                @else { "none yet" }
            }))
            (tile("Sessions", html! { (grouped(totals.sessions)) }, html! { (before(|before| before.sessions)) "in " (counted(totals.surveys_answered, "survey")) }))
            @if let Some((period, one)) = nps {
                @let name = match one.missing.is_some() {
                    true => format!("NPS, {} so far", period.name()),
                    false => format!("NPS, last full {}", period.name()),
                };
                (tile(&name, html! { (decimal(one.nps)) }, html! {
                    (band(one.low.zip(one.high))) " from " (counted(one.responses, "answer")) ", " (period.name()) " of " (day(one.first_day))
                }))
            }
            (tile("Read up to", html! { (read_up_to(&data.coverage)) }, html! { "see coverage below" }))
        }
    }
}

fn tile(name: &str, value: Markup, more: Markup) -> Markup {
    html! { div { dt { (name) } dd.value { (value) } dd.more { (more) } } }
}

/// Renders a day without line breaks at its dashes.
fn day(day: i64) -> Markup {
    html! { span.day { (day_text(day)) } }
}

fn read_up_to(coverage: &Coverage) -> String {
    coverage.days.map_or_else(|| "nothing".to_owned(), |(_, last)| day_text(last))
}

/// Returns the ends of the 95 % band: `10.1 to 34.7 (95 %)`.
pub(super) fn band(band: Option<(f64, f64)>) -> String {
    match band {
        Some((low, high)) => format!("{} to {} (95\u{a0}%)", decimal(low), decimal(high)),
        None => "no band".to_owned(),
    }
}

/// Renders the section of answers per day: a chart in two sizes and its numbers.
pub(super) fn answers(days: &Days) -> Result<Markup, ReportError> {
    let (Some(first), Some(last)) = (days.days.first(), days.days.last()) else {
        return Ok(section("answers", nothing("The warehouse holds no answers yet.")));
    };
    let total: i64 = days.days.iter().map(|day| day.answered + day.skipped).sum();
    let title = format!("Answers per day, {} to {}", day_text(first.day), day_text(last.day));
    let describe = format!(
        "{} over {} with answers. Each day is a column: answered questions below, skipped ones on top. The numbers are in the \
         table below.",
        counted(total, "answer"),
        counted(count(days.days.len()), "day"),
    );
    let rows = html! {
        @for day in days.days.iter().rev() {
            tr {
                th scope="row" { (day_text(day.day)) }
                td { (grouped(day.answered)) } td { (grouped(day.skipped)) } td { (grouped(day.answered + day.skipped)) }
            }
        }
    };
    Ok(section(
        "answers",
        html! {
            figure {
                div.plot {
                    (chart(&answers_per_day(&days.days, Size::Wide)?, "answers-wide", "wide", &title, &describe))
                    (chart(&answers_per_day(&days.days, Size::Narrow)?, "answers-narrow", "narrow", &title, &describe))
                    (values("answers-values", "", "Answers per day", &day_values(&days.days)))
                }
                figcaption { span.key.a {} " answered " span.key.b {} " skipped" }
            }
            (left_out(days.earlier, "earlier day", " with answers (--days shows more)"))
            (numbers("daily_breakdown", "Answers per day", &["Day", "Answered", "Skipped", "Answers"], rows))
        },
    ))
}

/// Returns the text of each day from the first to the last; `None` for a day without answers.
fn day_values(days: &[Day]) -> Vec<Option<String>> {
    let mut values = Vec::new();
    for (index, day) in days.iter().enumerate() {
        let gap = index.checked_sub(1).and_then(|before| days.get(before)).map_or(0, |before| day.day - before.day - 1);
        values.extend((0..gap).map(|_| None));
        let (answered, skipped) = (grouped(day.answered), grouped(day.skipped));
        values.push(Some(format!("{}: {answered} answered, {skipped} skipped", day_text(day.day))));
    }
    values
}

/// Returns the text of each period from the first to the last; `None` for a period without answers.
fn nps_values(nps: &NpsPeriods) -> Vec<Option<String>> {
    let mut values = Vec::new();
    for (index, one) in nps.shown.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| nps.shown.get(before));
        let gap_days = before.map_or(0, |before| one.first_day - before.last_day - 1);
        // A gap of months has at least 28 days for each month, and fewer than 31.
        let gap = if nps.period == Period::Week { gap_days / 7 } else { (gap_days + 15) / 30 };
        values.extend((0..gap).map(|_| None));
        let (band, answers) = (band(one.low.zip(one.high)), counted(one.responses, "answer"));
        let missing = one.missing.map(|why| format!(", {why}")).unwrap_or_default();
        let day = day_text(one.first_day);
        values.push(Some(format!("{day}: NPS {}, {band}, {answers}{missing}", decimal(one.nps))));
    }
    values
}

/// Renders the section of NPS over time. `None` if the report is about some surveys only.
pub(super) fn nps(nps: Option<&NpsPeriods>) -> Result<Markup, ReportError> {
    let Some(nps) = nps else {
        return Ok(section("nps", nothing("This report is about some surveys: each NPS question shows its own NPS.")));
    };
    if nps.shown.is_empty() {
        return Ok(section("nps", nothing("No NPS question was answered yet.")));
    }
    let name = nps.period.name();
    Ok(section(
        "nps",
        html! {
            figure {
                (nps_chart(nps, "nps-all", &format!("NPS by {name} over all surveys"), &[Size::Wide, Size::Narrow])?)
                figcaption { span.key.line {} " NPS " span.key.band {} " 95\u{a0}% band" }
            }
            p.note { "The band is wide where answers are few: a change within it may be chance. " (nps_notes(nps)) }
            (nps_numbers("", &format!("NPS by {name}"), nps))
        },
    ))
}

/// Renders what the chart shows of weeks with few answers and of the unfinished period.
pub(super) fn nps_notes(nps: &NpsPeriods) -> Markup {
    html! {
        @if nps.period == Period::Month {
            "Months are shown, because weeks have fewer than " (ANSWERS_OF_WEEK_MIN) " answers on average. "
        }
        @if nps.shown.iter().any(|one| one.missing.is_some()) {
            "A hollow point is a " (nps.period.name()) " that is not finished or not whole in this report."
        }
    }
}

/// Renders the chart in each size; the page shows the one that fits.
pub(super) fn nps_chart(nps: &NpsPeriods, id: &str, title: &str, sizes: &[Size]) -> Result<Markup, ReportError> {
    let name = nps.period.name();
    let last = nps.headline().map(|one| {
        let what = one.missing.unwrap_or("last full");
        format!("; the {what} {name} has {}, {}", decimal(one.nps), band(one.low.zip(one.high)))
    });
    let describe = format!(
        "A point for each of {} with answers and a band around it: the 95 % band{}. The numbers are in the table below.",
        counted(count(nps.shown.len()), name),
        last.unwrap_or_default()
    );
    let mut drawn = Vec::new();
    for size in sizes {
        let class = match (size, sizes) {
            (_, [_]) => "only",
            (Size::Wide, _) => "wide",
            (Size::Narrow, _) => "narrow",
        };
        let id = format!("{id}-{class}");
        drawn.push(chart(&nps_over_time(&nps.shown, *size)?, &id, class, title, &describe));
    }
    let class = if sizes.len() == 1 { "only" } else { "" };
    let values = values(&format!("{id}-values"), class, title, &nps_values(nps));
    Ok(html! { div.plot { @for drawing in drawn { (drawing) } (values) } })
}

/// Renders the numbers of NPS over time as a collapsed table, and how many earlier periods are left out. `of` is the
/// end of the view's name.
pub(super) fn nps_numbers(of: &str, caption: &str, nps: &NpsPeriods) -> Markup {
    let end = |end: Option<f64>| end.map_or_else(|| "–".to_owned(), decimal);
    let rows = html! {
        @for one in nps.shown.iter().rev() {
            tr {
                th scope="row" { (day_text(one.first_day)) @if let Some(why) = one.missing { " " span.meta { (why) } } }
                td { (grouped(one.responses)) }
                td { (grouped(one.promoters)) } td { (grouped(one.passives)) } td { (grouped(one.detractors)) }
                td { (decimal(one.nps)) } td { (end(one.low)) } td { (end(one.high)) }
            }
        }
    };
    let first = match nps.period {
        Period::Week => "Week of",
        Period::Month => "Month of",
    };
    let heads = [first, "Answers", "Promoters", "Passives", "Detractors", "NPS", "Band from", "to"];
    html! {
        (left_out(nps.earlier, &format!("earlier {}", nps.period.name()), ""))
        (numbers(&format!("nps_by_{}{of}", nps.period.name()), caption, &heads, rows))
    }
}

/// Renders the section of themes, most frequent first, with their trends.
pub(super) fn themes(themes: &Themes) -> Markup {
    let Some(most) = themes.shown.first().map(|theme| theme.answers.max(1)) else {
        return section("themes", nothing("The service found no themes yet."));
    };
    let last_weeks = counted(count(themes.weeks.len()), "week");
    let rows = html! {
        @for theme in &themes.shown {
            tr {
                th scope="row" { (service_text_or(theme.theme.as_deref(), "no name")) }
                td { (grouped(theme.answers)) }
                td.bar-cell { (bar(theme.answers as f64 / most as f64, "a")) }
                td { (grouped(theme.surveys)) }
                td.bar-cell { (trend(&theme.trend)) }
            }
        }
    };
    let by_week = format!("By week, last {last_weeks}");
    section(
        "themes",
        html! {
            (table("theme_trend", "Themes of answers, most frequent first", &["Theme", "Answers", "", "Surveys", &by_week], rows))
            p.note { "An answer may have several themes. Each trend has its own height." }
            (left_out(themes.left_out, "theme", ""))
        },
    )
}

/// Renders small columns, one per week.
fn trend(weeks: &[i64]) -> Markup {
    let highest = weeks.iter().copied().max().unwrap_or(0).max(1) as f64;
    let numbers: Vec<String> = weeks.iter().map(i64::to_string).collect();
    let width = weeks.len().max(1) * 10;
    html! {
        svg.trend role="img" viewBox={ "0 0 " (width) " 40" } preserveAspectRatio="none" {
            title { "Answers by week: " (numbers.join(", ")) }
            @for (index, answers) in weeks.iter().enumerate() {
                @let height = *answers as f64 / highest * 38.0;
                @if *answers > 0 {
                    rect.a x=(index * 10 + 1) y=(format!("{:.1}", 40.0 - height)) width="8" height=(format!("{height:.1}")) {}
                }
            }
            rect.zero y="39" width=(width) height="1" {}
        }
    }
}
