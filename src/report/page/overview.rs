//! The parts about all surveys together: the first numbers, answers a day, NPS by week, themes.

use maud::{Markup, html};

use super::parts::{bar, chart, decimal, foreign_or, left_out, many, nothing, numbers, section, table, whole};
use crate::report::{
    ReportError,
    axis::day_text,
    chart::{Size, answers_a_day, nps_by_week},
    coverage::Coverage,
    gather::{Days, Gathered, Themes},
    nps::{NpsWeek, NpsWeeks},
};

pub(super) fn tiles(gathered: &Gathered) -> Markup {
    let head = &gathered.head;
    let week = gathered.nps.as_ref().and_then(|nps| nps.weeks.last());
    html! {
        dl.tiles {
            (tile("Answers", html! { (whole(head.answers)) }, html! {
                @if let (Some(first), Some(last)) = (head.first_day, head.last_day) { (day(first)) " to " (day(last)) }
                @else { "none yet" }
            }))
            (tile("Sessions", html! { (whole(head.sessions)) }, html! { "in " (many(head.surveys_answered, "survey")) }))
            @if let Some(week) = week {
                (tile("NPS, last week with answers", html! { (decimal(week.nps)) }, html! {
                    (band(week)) " from " (many(week.responses, "answer")) ", week of " (day(week.week))
                }))
            }
            (tile("Read up to", html! { (read_up_to(&gathered.coverage)) }, html! { "what is complete is below" }))
        }
    }
}

fn tile(name: &str, value: Markup, more: Markup) -> Markup {
    html! { div { dt { (name) } dd.value { (value) } dd.more { (more) } } }
}

/// A day that is not broken at its dashes.
fn day(day: i64) -> Markup {
    html! { span.day { (day_text(day)) } }
}

fn read_up_to(coverage: &Coverage) -> String {
    coverage.days.map_or_else(|| "nothing".to_owned(), |(_, last)| day_text(last))
}

/// `± 12.3`, or the ends where the band is cut.
fn band(week: &NpsWeek) -> String {
    match (week.low, week.high) {
        (Some(low), Some(high)) => format!("{} to {} (95 %)", decimal(low), decimal(high)),
        _ => "no band".to_owned(),
    }
}

pub(super) fn answers(days: &Days) -> Result<Markup, ReportError> {
    let (Some(first), Some(last)) = (days.days.first(), days.days.last()) else {
        return Ok(section("answers", nothing("The warehouse holds no answers yet.")));
    };
    let total: i64 = days.days.iter().map(|day| day.answered + day.skipped).sum();
    let title = format!("Answers a day, {} to {}", day_text(first.day), day_text(last.day));
    let describe = format!(
        "{} over {} with answers. Each day is a column: answered questions below, skipped ones on top. The numbers are in the \
         table below.",
        many(total, "answer"),
        many(i64::try_from(days.days.len()).unwrap_or(i64::MAX), "day"),
    );
    let rows = html! {
        @for day in days.days.iter().rev() {
            tr {
                th scope="row" { (day_text(day.day)) }
                td { (whole(day.answered)) } td { (whole(day.skipped)) } td { (whole(day.answered + day.skipped)) }
            }
        }
    };
    Ok(section(
        "answers",
        html! {
            figure {
                (chart(&answers_a_day(&days.days, Size::Wide)?, "answers-wide", "wide", &title, &describe))
                (chart(&answers_a_day(&days.days, Size::Narrow)?, "answers-narrow", "narrow", &title, &describe))
                figcaption { span.key.a {} " answered " span.key.b {} " skipped" }
            }
            (left_out(days.earlier, "earlier day", " with answers (--days shows more)"))
            (numbers("daily_breakdown", "Answers a day", &["Day", "Answered", "Skipped", "Answers"], rows))
        },
    ))
}

pub(super) fn nps(nps: Option<&NpsWeeks>) -> Result<Markup, ReportError> {
    let Some(nps) = nps else {
        return Ok(section(
            "nps",
            nothing("This report is of some surveys: the NPS of each of their questions is with the question."),
        ));
    };
    if nps.weeks.is_empty() {
        return Ok(section("nps", nothing("No NPS question was answered yet.")));
    }
    let drawn = nps_chart(nps, "nps-all", "NPS by week over all surveys", &[Size::Wide, Size::Narrow])?;
    Ok(section(
        "nps",
        html! {
            figure { (drawn) figcaption { span.key.line {} " NPS " span.key.band {} " 95 % band" } }
            p.note { "The band is wide where answers are few: a change within it may be rng." }
            (left_out(nps.earlier, "earlier week", ""))
            (nps_numbers("nps_by_week", "NPS by week", nps))
        },
    ))
}

/// The chart in each size, of which the page shows the one that fits.
pub(super) fn nps_chart(nps: &NpsWeeks, id: &str, title: &str, sizes: &[Size]) -> Result<Markup, ReportError> {
    let last = nps.weeks.last().map(|week| format!("; the last is {}, {}", decimal(week.nps), band(week)));
    let describe = format!(
        "A point for each of {} with answers and a band around it: the 95 % band{}. The numbers are in the table below.",
        many(i64::try_from(nps.weeks.len()).unwrap_or(i64::MAX), "week"),
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

pub(super) fn nps_numbers(view: &str, caption: &str, nps: &NpsWeeks) -> Markup {
    let end = |end: Option<f64>| end.map_or_else(|| "–".to_owned(), decimal);
    let rows = html! {
        @for week in nps.weeks.iter().rev() {
            tr {
                th scope="row" { (day_text(week.week)) }
                td { (whole(week.responses)) }
                td { (whole(week.promoters)) } td { (whole(week.passives)) } td { (whole(week.detractors)) }
                td { (decimal(week.nps)) } td { (end(week.low)) } td { (end(week.high)) }
            }
        }
    };
    let heads = ["Week of", "Answers", "Promoters", "Passives", "Detractors", "NPS", "Band from", "to"];
    numbers(view, caption, &heads, rows)
}

pub(super) fn themes(themes: &Themes) -> Markup {
    let Some(most) = themes.shown.first().map(|theme| theme.answers.max(1)) else {
        return section("themes", nothing("The service found no themes yet."));
    };
    let last_weeks = many(i64::try_from(themes.weeks.len()).unwrap_or(i64::MAX), "week");
    let rows = html! {
        @for theme in &themes.shown {
            tr {
                th scope="row" { (foreign_or(theme.theme.as_deref(), "no name")) }
                td { (whole(theme.answers)) }
                td.bar-cell { (bar(theme.answers as f64 / most as f64, "a")) }
                td { (whole(theme.surveys)) }
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

/// Small columns, one a week.
fn trend(weeks: &[i64]) -> Markup {
    let highest = weeks.iter().copied().max().unwrap_or(0).max(1) as f64;
    let words: Vec<String> = weeks.iter().map(i64::to_string).collect();
    let width = weeks.len().max(1) * 10;
    html! {
        svg.trend role="img" viewBox={ "0 0 " (width) " 40" } preserveAspectRatio="none" {
            title { "Answers by week: " (words.join(", ")) }
            @for (at, answers) in weeks.iter().enumerate() {
                @let height = *answers as f64 / highest * 38.0;
                @if *answers > 0 {
                    rect.a x=(at * 10 + 1) y=(format!("{:.1}", 40.0 - height)) width="8" height=(format!("{height:.1}")) {}
                }
            }
            rect.zero y="39" width=(width) height="1" {}
        }
    }
}
