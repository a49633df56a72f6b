//! Generates the world from its settings: surveys, sessions, answers, themes. The same settings give the same world.

use std::collections::HashSet;

use super::{
    super::{random::Random, settings::Settings},
    Device, Row, Session, Survey, Theme, Timeline, World, answers,
    irregular::{self, Pace},
    surveys::{Kind, Question},
    words,
};

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;
/// The weights of the hours of a UTC day, for the number of answers. A day of a weekend has 6/16 of the answers of
/// another day.
const HOUR_WEIGHTS: [u64; 24] = [2, 1, 1, 1, 1, 2, 4, 7, 11, 14, 15, 14, 13, 14, 15, 14, 12, 10, 8, 6, 5, 4, 3, 2];
/// Maximum time from the first to the last answer of a session in smooth data.
const SESSION_MS_MAX: i64 = 6 * ANSWER_MS_MAX;
/// Maximum time between two answers of a session in smooth data.
const ANSWER_MS_MAX: i64 = 40_000;
/// Maximum draws of a time; the last one is used whatever its hour.
const MOMENT_DRAWS_MAX: usize = 64;
/// The id of the first theme.
const FIRST_THEME_ID: i64 = 900;
/// Number of visitors for 100 sessions, because some visitors return.
const VISITORS_PER_100_SESSIONS: u64 = 55;

/// Draws a time from `from_ms` to `to_ms`. Times by day are more likely than times by night, and weekends are less
/// likely.
pub(super) fn moment_between(from_ms: i64, to_ms: i64, random: &mut Random) -> i64 {
    let mut at_ms = from_ms;
    for _ in 0..MOMENT_DRAWS_MAX {
        at_ms = random.between(from_ms, to_ms);
        let hour = at_ms.rem_euclid(DAY_MS) / HOUR_MS;
        // 1970-01-01 was a Thursday, so day 2 of a week from then is a Saturday and day 3 a Sunday.
        let is_weekend = matches!(at_ms.div_euclid(DAY_MS).rem_euclid(7), 2 | 3);
        let weight = HOUR_WEIGHTS[hour as usize] * if is_weekend { 6 } else { 16 };
        if random.below(15 * 16) < weight {
            break;
        }
    }
    at_ms
}

impl World {
    /// Generates the data. Takes about two seconds for a million responses.
    pub(crate) fn generate(settings: &Settings) -> World {
        let (seed, now_ms) = (settings.seed, settings.now_ms);
        let start_ms = now_ms - i64::from(settings.days) * DAY_MS;
        let mut wordings = Vec::new();
        let survey_table: Vec<Survey> = (0..settings.surveys)
            .map(|number| Survey::generate(number, seed, start_ms, now_ms, &mut wordings))
            .collect();
        let mut world = World {
            seed,
            start_ms,
            answered_until_ms: now_ms,
            responses: Timeline::new(Vec::new()),
            themes: Timeline::new(Vec::new()),
            surveys: Timeline::new(survey_rows(&survey_table)),
            survey_table,
            wordings,
            theme_table: Vec::new(),
            sessions: Vec::new(),
            planted: Vec::new(),
            devices: Device::all(),
            visitors: 0,
            gone_visitors: HashSet::new(),
            next_serial: 0,
            rough: settings.rough,
            more_text: words::text_of_bytes(settings.text_bytes as usize, seed),
        };
        // No survey has this wording. The hostile wordings have to be the last ones, because `make_hostile` finds them
        // by their position.
        world.wordings.push(irregular::NO_QUESTION.to_owned());
        irregular::add_hostile_wordings(&mut world.wordings);
        world.generate_theme_table();
        let wanted = settings.responses as usize;
        let sessions_expected = settings.responses / 4 + 1;
        world.visitors = (sessions_expected * VISITORS_PER_100_SESSIONS / 100 + 1) as u32;
        let mut random = Random::new(seed, 1);
        let mut rows = Vec::with_capacity(wanted);
        while rows.len() < wanted {
            let begun_ms = moment_between(start_ms, now_ms - SESSION_MS_MAX, &mut random);
            world.answer_survey(begun_ms, now_ms, &mut random, &mut rows);
            rows.truncate(wanted);
        }
        world.finish_rows(&mut rows, settings);
        let themes = world.generate_themes(&rows, settings);
        world.responses = Timeline::new(rows);
        world.themes = Timeline::new(themes);
        world
    }

    /// Adds a session, in which one visitor answers some questions of a live survey. Appends the responses of the
    /// session to `rows`, without serials. In rough data the session may begin at another time than `begun_ms`.
    pub(super) fn answer_survey(&mut self, begun_ms: i64, now_ms: i64, random: &mut Random, rows: &mut Vec<Row>) {
        let (begun_ms, pace) = match &self.rough {
            Some(rough) => rough.session(begun_ms, self.start_ms, random),
            None => (begun_ms, Pace::Usual),
        };
        let survey_at = self.live_survey(begun_ms, random);
        let session = self.sessions.len() as u32;
        let visitor = self.draw_visitor(random);
        let Some(survey) = self.survey_table.get(survey_at) else { return };
        let wanted = random.between(2, 6) as usize;
        let mut at_ms = begun_ms;
        let answered: Vec<&Question> = survey.questions.iter().filter(|_| !random.percent(8)).take(wanted).collect();
        for question in answered {
            let updated_ms = match random.below(100) {
                0..85 => at_ms,
                85..95 => at_ms + random.between(1000, 240_000),
                _ => at_ms + random.between(60_000, 5 * DAY_MS),
            };
            let mut answer = answers::draw(question, at_ms, random);
            if self.rough.is_some() && question.kind == Kind::Open {
                irregular::lengthen(&mut answer, random);
            }
            rows.push(Row {
                updated_ms: updated_ms.min(now_ms).max(at_ms),
                survey_id: survey.id,
                session,
                wording: question.wording,
                ..Row::new(at_ms, answer.into())
            });
            let usual_ms = random.between(2000, ANSWER_MS_MAX);
            at_ms = (at_ms + pace.step_ms(usual_ms, random)).min(now_ms.max(begun_ms));
        }
        self.sessions.push(Session { visitor, survey: survey_at as u32 });
    }

    /// Draws the number of a visitor. If this visitor has vanished, adds a new visitor and returns its number.
    fn draw_visitor(&mut self, random: &mut Random) -> u32 {
        let drawn = random.below(u64::from(self.visitors)) as u32;
        if !self.gone_visitors.contains(&drawn) {
            return drawn;
        }
        self.visitors += 1;
        self.visitors - 1
    }

    /// Draws a survey that is live at this time. After a few draws without success, returns the first survey, which is
    /// live at each time.
    fn live_survey(&self, at_ms: i64, random: &mut Random) -> usize {
        const DRAWS: usize = 4;
        (0..DRAWS)
            .map(|_| random.index(self.survey_table.len()))
            .find(|at| self.survey_table.get(*at).is_some_and(|survey| survey.is_live_at(at_ms)))
            .unwrap_or(0)
    }

    /// Sorts and numbers generated rows. Makes some of these rows rough, tied, soft-deleted or hostile, as the settings
    /// say.
    fn finish_rows(&mut self, rows: &mut [Row], settings: &Settings) {
        let mut random = Random::new(settings.seed, 4);
        if let Some(rough) = &settings.rough {
            self.repeat_keys(rows, rough, &mut random);
            let no_question =
                self.wordings.iter().position(|wording| wording == irregular::NO_QUESTION).unwrap_or_default();
            let rejected = rows.iter_mut().filter(|_| random.chance(rough.reject_share));
            rejected.for_each(|row| row.wording = no_question as u32);
        }
        rows.sort_unstable_by_key(|row| (row.created_ms, row.session, row.wording));
        if settings.ties_per_ms > 1 {
            for tie in rows.chunks_mut(settings.ties_per_ms as usize) {
                let first_ms = tie.first().map_or(0, |row| row.created_ms);
                tie.iter_mut().for_each(|row| row.created_ms = first_ms);
            }
        }
        let mut random = Random::new(settings.seed, 2);
        let mut long_texts = irregular::LONG_TEXTS_MAX;
        for row in rows.iter_mut() {
            row.serial = self.take_serial();
            if random.chance(settings.deleted_share) {
                let deleted_ms = random.between(row.created_ms, settings.now_ms);
                row.deleted_ms = Some(deleted_ms);
                if random.percent(50) {
                    row.updated_ms = deleted_ms.max(row.updated_ms);
                }
            }
            if random.chance(settings.hostile_share) {
                irregular::make_hostile(row, self.wordings.len(), &mut random, &mut long_texts);
            }
        }
    }

    fn generate_theme_table(&mut self) {
        let count = self.survey_table.len() as u64 * words::THEMES_PER_SURVEY;
        self.theme_table.extend((0..count).map(|number| {
            let (name, description) = words::theme(number);
            Theme { id: FIRST_THEME_ID + number as i64, name, description }
        }));
    }

    /// Generates themes on a share of the OPEN answers with a text.
    fn generate_themes(&mut self, rows: &[Row], settings: &Settings) -> Vec<Row> {
        let mut random = Random::new(settings.seed, 3);
        let mut themes = Vec::new();
        for row in rows {
            if self.open_text(row).is_some() && random.chance(settings.theme_share) {
                let count = 1 + usize::from(random.percent(20));
                for nth in 0..count {
                    themes.extend(self.theme_row(row, nth as u64, settings.now_ms, &mut random));
                }
            }
        }
        themes
    }

    /// Draws a theme for a response; `None` if the response is no OPEN answer with a text. Consecutive `nth` give one
    /// response different themes.
    pub(super) fn theme_row(&mut self, row: &Row, nth: u64, now_ms: i64, random: &mut Random) -> Option<Row> {
        let text: Box<str> = self.open_text(row)?.into();
        let survey = self.sessions.get(row.session as usize)?.survey;
        let half = words::THEMES_PER_SURVEY / 2;
        let theme = u64::from(survey) * words::THEMES_PER_SURVEY + (nth % 2) * half + random.below(half);
        let latest_ms = (row.created_ms + 6 * HOUR_MS).min(now_ms);
        let created_ms = random.between(row.created_ms + 60_000, latest_ms).min(now_ms);
        Some(Row {
            survey_id: row.survey_id,
            serial: self.take_serial(),
            session: row.session,
            wording: row.wording,
            entry: theme as u32,
            ..Row::new(created_ms, text)
        })
    }

    /// Returns the text of an OPEN answer as a JSON string; `None` for other answers and for an empty text.
    pub(super) fn open_text<'a>(&self, row: &'a Row) -> Option<&'a str> {
        let wording = self.wordings.get(row.wording as usize).filter(|_| !row.is_planted())?;
        let text = row.text.strip_prefix(r#""response":"#)?;
        let is_plain = wording.ends_with(&format!(r#""{}""#, Kind::Open.name())) && !text.contains(r#"","#);
        (is_plain && text.len() > 2 && text.starts_with('"')).then_some(text)
    }
}

fn survey_rows(survey_table: &[Survey]) -> Vec<Row> {
    let row = |(survey, at): (&Survey, u32)| Row {
        survey_id: survey.id,
        serial: at,
        entry: at,
        ..Row::new(survey.created_ms, Box::default())
    };
    survey_table.iter().zip(0..).map(row).collect()
}
