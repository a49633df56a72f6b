//! Reads everything that the report shows. The queries in this file are about all surveys together: totals, answers per
//! day, NPS by week, themes, and the last runs that changed the warehouse.

use super::{
    ReportError, ReportSettings,
    changes::{self, Changes},
    coverage::{self, Coverage},
    format::{counted, day_text},
    limits::{DAYS_MAX, RUNS_MAX, THEMES_MAX, TREND_WEEKS_MAX},
    nps::{self, NpsPeriods},
    rows::{Row, count, day_number, query, shortened, survey_filter},
    segments::unknown_segments,
    settings::Shown,
    surveys::{self, Surveys},
    untrusted::untrusted,
};
use crate::{
    load::{AnswerRange, LoadError, Reader},
    model::{StoredReport, TimeParts, TimeZone, Untrusted},
    state::State,
};

/// Everything that the report shows.
pub(super) struct ReportData {
    pub totals: Totals,
    pub days: Days,
    /// The NPS over all surveys; `None` if the report is about some surveys.
    pub nps: Option<NpsPeriods>,
    pub surveys: Surveys,
    pub themes: Themes,
    /// The period before with its totals; `None` for a report without a beginning.
    pub before: Option<(AnswerRange, Totals)>,
    pub coverage: Coverage,
    /// What is known against the data, of all surveys.
    pub untrusted: Vec<Untrusted>,
    /// The time zone of days and weeks.
    pub time_zone: TimeZone,
    /// See [`super::Report::unknown_segments`].
    pub unknown_segments: Option<String>,
    pub runs: Vec<RunRow>,
    pub changes: Option<Changes>,
}

/// The totals in the head of the page.
#[derive(Default)]
pub(super) struct Totals {
    pub base_url: Option<String>,
    pub environment: Option<String>,
    pub answers: i64,
    pub sessions: i64,
    pub surveys_answered: i64,
    pub first_day: Option<i64>,
    pub last_day: Option<i64>,
}

pub(super) struct Day {
    /// Days since 1970.
    pub day: i64,
    pub answered: i64,
    pub skipped: i64,
}

/// The newest days with answers, in order.
pub(super) struct Days {
    pub days: Vec<Day>,
    /// The number of earlier days with answers.
    pub earlier: i64,
}

pub(super) struct Theme {
    pub theme: Option<String>,
    pub answers: i64,
    pub surveys: i64,
    /// The number of answers in each of [`Themes::weeks`].
    pub trend: Vec<i64>,
}

pub(super) struct Themes {
    pub shown: Vec<Theme>,
    pub left_out: i64,
    /// The consecutive weeks of the trends, as their Mondays in days since 1970.
    pub weeks: Vec<i64>,
}

pub(super) struct RunRow {
    pub run_id: String,
    pub command: String,
    pub outcome: String,
    /// When the run started, epoch milliseconds by the clock of its machine.
    pub started_ms: i64,
    /// The number of requests and the time by part; `None` if the run's JSON lacks one of them.
    pub figures: Option<(u64, TimeParts)>,
}

impl ReportData {
    /// Returns the answers that the report is about, as [`super::Report::answers`].
    pub fn answers(&self) -> String {
        let Totals { answers, surveys_answered, first_day, last_day, .. } = self.totals;
        let count = format!("{} to {}", counted(answers, "answer"), counted(surveys_answered, "survey"));
        match first_day.zip(last_day) {
            Some((first, last)) => {
                format!("{count}, {} to {} ({})", day_text(first), day_text(last), self.time_zone.name())
            }
            None => count,
        }
    }
}

/// Reads everything that the report shows.
pub(super) fn read(
    reader: &mut Reader,
    state: Option<&State>,
    settings: &ReportSettings,
) -> Result<ReportData, ReportError> {
    let of = survey_filter(&settings.surveys);
    reader.narrow(settings.answers);
    let totals = totals(reader, &of)?;
    let coverage = coverage::coverage(reader, state, totals.base_url.as_deref(), settings.days)?;
    let read_until_ms = coverage.answers_until_ms.unwrap_or(settings.made_ms);
    let to_ms = settings.answers.to_ms.map_or(read_until_ms, |to_ms| to_ms.min(read_until_ms));
    let time_zone = time_zone(reader);
    let before = AnswerRange { to_ms: settings.answers.to_ms.or(Some(to_ms)), ..settings.answers }.before(time_zone);
    let from_ms = settings.answers.from_ms.map(|from_ms| time_zone.local_ms(from_ms));
    let known = AnswerRange { from_ms, to_ms: Some(time_zone.local_ms(to_ms)) };
    let shown = Shown { report: settings, known, before };
    let days_max = if settings.answers.from_ms.is_some() { DAYS_MAX } else { settings.days };
    let (days, nps) = (days(reader, &of, days_max)?, settings.surveys.is_empty().then(|| nps::of_all(reader, known)));
    let (surveys, themes) = (surveys::surveys(reader, &of, &shown)?, themes(reader, &of)?);
    let before = before.map(|range| totals_before(reader, &of, range)).transpose()?;
    reader.narrow(AnswerRange::default());
    Ok(ReportData {
        days,
        nps: nps.transpose()?,
        surveys,
        themes,
        before,
        coverage,
        untrusted: untrusted(reader)?,
        time_zone,
        unknown_segments: settings.segment.as_ref().and_then(|segment| unknown_segments(reader, segment)),
        runs: runs(reader)?,
        changes: settings.changes.map(|between| changes::changes(reader, &settings.surveys, between)).transpose()?,
        totals,
    })
}

/// Returns the time zone of the views. Those of a file of an earlier version are in UTC.
fn time_zone(reader: &mut Reader) -> TimeZone {
    let sql = "SELECT any_value(time_zone) AS time_zone FROM time_zone_offsets";
    let found = query(reader, sql, |row| row.text("time_zone")).ok().and_then(|mut rows| rows.pop().flatten());
    found.and_then(|name| name.parse().ok()).unwrap_or_default()
}

/// Reads the totals. `of` is a SQL predicate for the surveys of the report.
fn totals(reader: &mut Reader, of: &str) -> Result<Totals, LoadError> {
    let sql = format!(
        "SELECT base_url, environment, answers, surveys_answered, first_day, last_day, sessions
         FROM (SELECT sum(answers)::BIGINT AS answers, count(DISTINCT survey_id) AS surveys_answered,
                   {} AS first_day, {} AS last_day
               FROM daily_breakdown WHERE {of}),
              (SELECT count(*) AS sessions FROM sessions WHERE {of}),
              (SELECT max_by(base_url, started_at) AS base_url, max_by(environment, started_at) AS environment FROM sync_runs)",
        day_number("min(day)"),
        day_number("max(day)"),
    );
    let make = |row: Row<'_>| Totals {
        base_url: row.text("base_url"),
        environment: row.text("environment"),
        answers: row.count("answers"),
        sessions: row.count("sessions"),
        surveys_answered: row.count("surveys_answered"),
        first_day: row.integer("first_day"),
        last_day: row.integer("last_day"),
    };
    Ok(query(reader, &sql, make)?.pop().unwrap_or_default())
}

/// Reads the totals of the period before.
fn totals_before(reader: &mut Reader, of: &str, range: AnswerRange) -> Result<(AnswerRange, Totals), LoadError> {
    reader.narrow(range);
    Ok((range, totals(reader, of)?))
}

/// Reads the answers per day, of the `days_max` days up to the last day with answers. `of` is a SQL predicate for the
/// surveys of the report.
fn days(reader: &mut Reader, of: &str, days_max: u32) -> Result<Days, LoadError> {
    let day = day_number("day");
    let sql = format!(
        "WITH by_day AS (
            SELECT {day} AS day, sum(answered)::BIGINT AS answered, sum(skipped)::BIGINT AS skipped
            FROM daily_breakdown WHERE {of} GROUP BY 1
        ), bounded AS (SELECT *, max(day) OVER () AS last_day FROM by_day)
        SELECT day, answered, skipped, count(*) FILTER (day <= last_day - {days_max}) OVER () AS earlier
        FROM bounded QUALIFY day > last_day - {days_max} ORDER BY day"
    );
    let make = |row: Row<'_>| {
        let day = Day { day: row.count("day"), answered: row.count("answered"), skipped: row.count("skipped") };
        (day, row.count("earlier"))
    };
    let found = query(reader, &sql, make)?;
    let earlier = found.first().map_or(0, |(_, earlier)| *earlier);
    Ok(Days { days: found.into_iter().map(|(day, _)| day).collect(), earlier })
}

/// Reads the most frequent themes. The numbers of the view `theme_trend` may be added over weeks and surveys. `of` is a
/// SQL predicate for the surveys of the report.
fn themes(reader: &mut Reader, of: &str) -> Result<Themes, LoadError> {
    let (theme, week) = (shortened("ranked.theme"), day_number("week"));
    let sql = format!(
        "WITH trend AS (SELECT theme, {week} AS week, answers, survey_id FROM theme_trend WHERE {of}),
        ranked AS (
            SELECT theme, sum(answers)::BIGINT AS answers, count(DISTINCT survey_id) AS surveys,
                count(*) OVER () AS themes, row_number() OVER (ORDER BY sum(answers) DESC, theme) AS place
            FROM trend GROUP BY theme QUALIFY place <= {THEMES_MAX}
        ),
        bounds AS (
            SELECT max(week) AS last_week, greatest(max(week) - 7 * {back}, min(week)) AS first_week FROM trend
        ),
        weekly AS (SELECT theme, week, sum(answers)::BIGINT AS answers FROM trend GROUP BY theme, week)
        SELECT {theme} AS theme, ranked.answers, surveys, themes, first_week, last_week,
            (SELECT coalesce(string_agg(week || ':' || weekly.answers, ' ' ORDER BY week), '') FROM weekly
             WHERE weekly.theme IS NOT DISTINCT FROM ranked.theme AND week >= first_week) AS trend
        FROM ranked, bounds ORDER BY place",
        back = TREND_WEEKS_MAX - 1,
    );
    let make = |row: Row<'_>| {
        let weeks: Vec<i64> = match (row.integer("first_week"), row.integer("last_week")) {
            (Some(first), Some(last)) => (first..=last).step_by(7).collect(),
            _ => Vec::new(),
        };
        let counted = pairs(&row.text("trend").unwrap_or_default());
        let count_of = |week: &i64| counted.iter().find(|(at, _)| at == week).map_or(0, |(_, answers)| *answers);
        let trend = weeks.iter().map(count_of).collect();
        let theme =
            Theme { theme: row.text("theme"), answers: row.count("answers"), surveys: row.count("surveys"), trend };
        (theme, weeks, row.count("themes"))
    };
    let found = query(reader, &sql, make)?;
    let (weeks, themes) = found.first().map(|(_, weeks, themes)| (weeks.clone(), *themes)).unwrap_or_default();
    let shown: Vec<Theme> = found.into_iter().map(|(theme, ..)| theme).collect();
    Ok(Themes { left_out: themes - count(shown.len()), shown, weeks })
}

/// Parses pairs of week and number of answers: `20000:3 20007:1`.
fn pairs(text: &str) -> Vec<(i64, i64)> {
    let pair = |pair: &str| {
        let (week, answers) = pair.split_once(':')?;
        Some((week.parse().ok()?, answers.parse().ok()?))
    };
    text.split(' ').filter_map(pair).collect()
}

/// Returns the last runs, newest first.
fn runs(reader: &mut Reader) -> Result<Vec<RunRow>, LoadError> {
    let sql = format!(
        "SELECT run_id, command, outcome, epoch_ms(started_at) AS started_ms, report::VARCHAR AS report
         FROM sync_runs ORDER BY sync_runs.started_at DESC, run_id DESC LIMIT {RUNS_MAX}"
    );
    let figures = |report: StoredReport| Some((report.get("/requests/total")?, report.get("/time_ms")?));
    let make = |row: Row<'_>| RunRow {
        run_id: row.text("run_id").unwrap_or_default(),
        command: row.text("command").unwrap_or_default(),
        outcome: row.text("outcome").unwrap_or_default(),
        started_ms: row.count("started_ms"),
        figures: figures(StoredReport::parse(row.text("report").as_deref())),
    };
    query(reader, &sql, make)
}
