//! The sections about all surveys together: totals, answers per day, NPS by week, themes.

use maud::{Markup, html};

use super::elements::{
    bar, chart, counted, decimal, grouped, left_out, nothing, numbers, section, service_text_or, table,
};
use crate::report::{
    ReportError,
    chart::{Size, answers_per_day, nps_by_week},
    coverage::Coverage,
    format::day_text,
    report_data::{Days, ReportData, Themes},
    rows::{NpsWeek, NpsWeeks, count},
};

/// Renders the totals: answers, sessions, the NPS of the last week, and the last day that was read.
pub(super) fn tiles(data: &ReportData) -> Markup {
    let totals = &data.totals;
    let week = data.nps.as_ref().and_then(|nps| nps.weeks.last());
    html! {
        dl.tiles {
            (tile("Answers", html! { (grouped(totals.answers)) }, html! {
                @if let (Some(first), Some(last)) = (totals.first_day, totals.last_day) { (day(first)) " to " (day(last)) }
                @else { "none yet" }
            }))
            (tile("Sessions", html! { (grouped(totals.sessions)) }, html! { "in " (counted(totals.surveys_answered, "survey")) }))
            @if let Some(week) = week {
                (tile("NPS, last week with answers", html! { (decimal(week.nps)) }, html! {
                    (band(week)) " from " (counted(week.responses, "answer")) ", week of " (day(week.week))
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
fn band(week: &NpsWeek) -> String {
    match (week.low, week.high) {
        (Some(low), Some(high)) => format!("{} to {} (95 %)", decimal(low), decimal(high)),
        _ => "no band".to_owned(),
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
                (chart(&answers_per_day(&days.days, Size::Wide)?, "answers-wide", "wide", &title, &describe))
                (chart(&answers_per_day(&days.days, Size::Narrow)?, "answers-narrow", "narrow", &title, &describe))
                figcaption { span.key.a {} " answered " span.key.b {} " skipped" }
            }
            (left_out(days.earlier, "earlier day", " with answers (--days shows more)"))
            (numbers("daily_breakdown", "Answers per day", &["Day", "Answered", "Skipped", "Answers"], rows))
        },
    ))
}

/// Renders the section of NPS by week. `None` if the report is about some surveys only.
pub(super) fn nps(nps: Option<&NpsWeeks>) -> Result<Markup, ReportError> {
    let Some(nps) = nps else {
        return Ok(section("nps", nothing("This report is about some surveys: each NPS question shows its own NPS.")));
    };
    if nps.weeks.is_empty() {
        return Ok(section("nps", nothing("No NPS question was answered yet.")));
    }
    let drawn = nps_chart(nps, "nps-all", "NPS by week over all surveys", &[Size::Wide, Size::Narrow])?;
    Ok(section(
        "nps",
        html! {
            figure { (drawn) figcaption { span.key.line {} " NPS " span.key.band {} " 95 % band" } }
            p.note { "The band is wide where answers are few: a change within it may be chance." }
            (left_out(nps.earlier, "earlier week", ""))
            (nps_numbers("nps_by_week", "NPS by week", nps))
        },
    ))
}

/// Renders the chart in each size; the page shows the one that fits.
pub(super) fn nps_chart(nps: &NpsWeeks, id: &str, title: &str, sizes: &[Size]) -> Result<Markup, ReportError> {
    let last = nps.weeks.last().map(|week| format!("; the last is {}, {}", decimal(week.nps), band(week)));
    let describe = format!(
        "A point for each of {} with answers and a band around it: the 95 % band{}. The numbers are in the table below.",
        counted(count(nps.weeks.len()), "week"),
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
        drawn.push(chart(&nps_by_week(&nps.weeks, *size)?, &id, class, title, &describe));
    }
    Ok(html! { @for drawing in drawn { (drawing) } })
}

/// Renders the numbers of NPS by week as a collapsed table.
pub(super) fn nps_numbers(view: &str, caption: &str, nps: &NpsWeeks) -> Markup {
    let end = |end: Option<f64>| end.map_or_else(|| "–".to_owned(), decimal);
    let rows = html! {
        @for week in nps.weeks.iter().rev() {
            tr {
                th scope="row" { (day_text(week.week)) }
                td { (grouped(week.responses)) }
                td { (grouped(week.promoters)) } td { (grouped(week.passives)) } td { (grouped(week.detractors)) }
                td { (decimal(week.nps)) } td { (end(week.low)) } td { (end(week.high)) }
            }
        }
    };
    let heads = ["Week of", "Answers", "Promoters", "Passives", "Detractors", "NPS", "Band from", "to"];
    numbers(view, caption, &heads, rows)
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
