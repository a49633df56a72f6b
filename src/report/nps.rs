//! Reads NPS over time from the views `nps_by_week` and `nps_by_month`, over all surveys and for each question.
//!
//! Weeks are shown if they have answers enough. Otherwise months are shown, because the band of a week with few answers
//! is too wide to be read.

use std::collections::BTreeMap;

use super::{
    limits::PERIODS_MAX,
    rows::{Key, Row, count, day_number, key, query},
};
use crate::{
    load::{AnswerRange, LoadError, Reader},
    model::DAY_MS,
};

/// The mean number of answers below which weeks are joined into months.
pub(super) const ANSWERS_OF_WEEK_MIN: i64 = 30;

/// The length of the periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Period {
    #[default]
    Week,
    Month,
}

impl Period {
    /// Returns the name: `week` or `month`.
    pub fn name(self) -> &'static str {
        match self {
            Period::Week => "week",
            Period::Month => "month",
        }
    }

    /// Returns SQL for the last day of the period in the column of its name.
    fn last_day(self) -> &'static str {
        match self {
            Period::Week => "week + 6",
            Period::Month => "last_day(month)",
        }
    }
}

/// The NPS of one week or month, of all questions or of one question.
pub(super) struct NpsPeriod {
    /// The first and the last day of the period, in days since 1970.
    pub first_day: i64,
    pub last_day: i64,
    pub responses: i64,
    pub promoters: i64,
    pub passives: i64,
    pub detractors: i64,
    pub nps: f64,
    /// The lower end of the 95 % band; `None` for a single answer.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Why answers of the period may be missing: `unfinished`, or `begins earlier`; `None` for a whole period.
    pub missing: Option<&'static str>,
}

/// The newest periods with answers, in order.
#[derive(Default)]
pub(super) struct NpsPeriods {
    pub period: Period,
    pub shown: Vec<NpsPeriod>,
    /// The number of earlier periods with answers.
    pub earlier: i64,
}

impl NpsPeriods {
    /// Returns the last whole period; if none is whole, the last one.
    pub fn headline(&self) -> Option<&NpsPeriod> {
        self.shown.iter().rfind(|period| period.missing.is_none()).or(self.shown.last())
    }

    /// Returns true if the whole weeks have so few answers that months are shown.
    fn has_few_answers(&self) -> bool {
        let whole: Vec<i64> =
            self.shown.iter().filter(|week| week.missing.is_none()).map(|week| week.responses).collect();
        whole.iter().sum::<i64>() < ANSWERS_OF_WEEK_MIN * count(whole.len())
    }
}

/// Reads the NPS over all surveys. All answers of the range `known` are there; its ends are local times, as the days of
/// the periods are.
pub(super) fn of_all(reader: &mut Reader, known: AnswerRange) -> Result<NpsPeriods, LoadError> {
    let mut read = |period: Period| {
        let sql = sql(period, "nps_by_", "", "", "true");
        let found = query(reader, &sql, |row| (row.count("periods"), nps_period(row, known)))?;
        let all = found.first().map_or(0, |(periods, _)| *periods);
        let shown: Vec<NpsPeriod> = found.into_iter().map(|(_, period)| period).collect();
        Ok(NpsPeriods { period, earlier: all - count(shown.len()), shown })
    };
    let weeks = read(Period::Week)?;
    if weeks.has_few_answers() { read(Period::Month) } else { Ok(weeks) }
}

/// Reads the NPS of each question. `of` is a SQL predicate for the surveys of the report. All answers of the range
/// `known` are there, as in [`of_all`].
pub(super) fn per_question(
    reader: &mut Reader,
    of: &str,
    known: AnswerRange,
) -> Result<BTreeMap<Key, NpsPeriods>, LoadError> {
    let mut read = |period: Period| {
        let sql = sql(period, "nps_by_", "_per_question", "survey_id, question_id, ", of);
        let mut found: BTreeMap<Key, NpsPeriods> = BTreeMap::new();
        let make = |row: Row<'_>| (key(row), row.count("periods"), nps_period(row, known));
        for (key, all, one) in query(reader, &sql, make)? {
            let periods = found.entry(key).or_insert_with(|| NpsPeriods { period, ..NpsPeriods::default() });
            periods.shown.push(one);
            periods.earlier = all - count(periods.shown.len());
        }
        Ok::<_, LoadError>(found)
    };
    let mut found = read(Period::Week)?;
    if found.values().any(NpsPeriods::has_few_answers) {
        let mut months = read(Period::Month)?;
        for (key, weeks) in &mut found {
            if weeks.has_few_answers()
                && let Some(months) = months.remove(key)
            {
                *weeks = months;
            }
        }
    }
    Ok(found)
}

/// Returns SQL for the newest periods of a view, of each combination of the columns `keys`.
fn sql(period: Period, before: &str, after: &str, keys: &str, of: &str) -> String {
    let name = period.name();
    let partition = match keys.trim_end_matches(", ") {
        "" => String::new(),
        keys => format!("PARTITION BY {keys}"),
    };
    format!(
        "SELECT {keys}{first} AS first_day, {last} AS last_day, responses, promoters, passives, detractors, nps, nps_low,
             nps_high, count(*) OVER ({partition}) AS periods
         FROM {before}{name}{after} WHERE {of}
         QUALIFY row_number() OVER ({partition} ORDER BY {name} DESC) <= {PERIODS_MAX}
         ORDER BY {keys}{name}",
        first = day_number(name),
        last = day_number(period.last_day()),
    )
}

fn nps_period(row: Row<'_>, known: AnswerRange) -> NpsPeriod {
    let (first_day, last_day) = (row.count("first_day"), row.count("last_day"));
    NpsPeriod {
        first_day,
        last_day,
        responses: row.count("responses"),
        promoters: row.count("promoters"),
        passives: row.count("passives"),
        detractors: row.count("detractors"),
        nps: row.number("nps").unwrap_or(0.0),
        low: row.number("nps_low"),
        high: row.number("nps_high"),
        missing: match known {
            _ if last_day.saturating_add(1).saturating_mul(DAY_MS) > known.to_ms.unwrap_or(i64::MAX) => {
                Some("unfinished")
            }
            _ if first_day.saturating_mul(DAY_MS) < known.from_ms.unwrap_or(i64::MIN) => Some("begins earlier"),
            _ => None,
        },
    }
}
