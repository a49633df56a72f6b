//! Generates surveys and their questions, and writes their records.

use serde::{Deserialize, Serialize};

use super::{
    super::{json_text, random::Random},
    kinds::{Kind, QuestionText},
    words,
};

const DAY_MS: i64 = 86_400_000;
/// The id of the first survey.
const FIRST_SURVEY_ID: i64 = 4100;
/// The distance between the first question ids of consecutive surveys.
const QUESTION_IDS_PER_SURVEY: i64 = 50;

/// The status of a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    New,
    InProgress,
    Paused,
    Completed,
    Draft,
    Archived,
}

impl Status {
    pub(crate) const ALL: [Status; 6] =
        [Status::New, Status::InProgress, Status::Paused, Status::Completed, Status::Draft, Status::Archived];

    /// Returns the name of the status in a survey record.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::New => "NEW",
            Status::InProgress => "IN_PROGRESS",
            Status::Paused => "PAUSED",
            Status::Completed => "COMPLETED",
            Status::Draft => "DRAFT",
            Status::Archived => "ARCHIVED",
        }
    }
}

/// A targeting rule.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Constraint {
    comparison_type: &'static str,
    event: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    value: i64,
}

/// A question of a survey, with its present text.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) id: i64,
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// The index of the present wording in `World::wordings`.
    pub(crate) wording: u32,
    /// The choices, rows or items, depending on the kind.
    pub(crate) options: Vec<&'static str>,
    /// The columns of a MATRIX question.
    pub(crate) columns: &'static [&'static str],
    /// The highest value of a LIKERT question.
    pub(crate) scale_max: i64,
    /// The labels of the left and right end of the scale.
    labels: Option<(&'static str, &'static str)>,
}

/// A survey.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) is_link: bool,
    pub(crate) status: Status,
    pub(crate) created_ms: i64,
    pub(crate) updated_ms: i64,
    pub(crate) launched_ms: Option<i64>,
    pub(crate) completed_ms: Option<i64>,
    response_limit: Option<i64>,
    constraints: Vec<Constraint>,
    pub(crate) questions: Vec<Question>,
    /// The addresses of pages that show the survey, as JSON strings.
    pub(crate) pages: Vec<String>,
}

impl Survey {
    /// Returns true if visitors can answer the survey at this time.
    pub(crate) fn is_live_at(&self, at_ms: i64) -> bool {
        self.launched_ms.is_some_and(|launched| launched <= at_ms)
            && self.completed_ms.is_none_or(|completed| at_ms < completed)
    }

    /// Generates the survey with this number. Surveys 0 to 2 are launched before `start_ms` and never completed, so
    /// that a survey is live at each time. Surveys 3 to 7 have the statuses of [`Status::ALL`] in turn, without `New`,
    /// so that each of these statuses occurs. Adds the text of each question to `wordings`.
    pub(crate) fn generate(number: u32, seed: u64, start_ms: i64, now_ms: i64, wordings: &mut Vec<String>) -> Self {
        let mut random = Random::new(seed, 0x5_0000 + u64::from(number));
        let id = FIRST_SURVEY_ID + i64::from(number) * 7;
        let is_link = number % 4 == 3;
        let status = match number {
            0..=2 => Status::InProgress,
            number if (number as usize) < 2 + Status::ALL.len() => Status::ALL[number as usize - 2],
            _ => *random.pick(&Status::ALL),
        };
        let latest_ms = if number < 3 { start_ms } else { start_ms + (now_ms - start_ms) * 2 / 3 };
        let created_ms = random.between(start_ms - 120 * DAY_MS, latest_ms - DAY_MS);
        let is_launched = !matches!(status, Status::New | Status::Draft);
        let launched_ms = is_launched.then(|| created_ms + random.between(60_000, DAY_MS / 2));
        let is_over = matches!(status, Status::Completed | Status::Archived);
        let completed_ms = launched_ms.filter(|_| is_over).map(|launched| random.between(launched + 1000, now_ms));
        let subject = random.pick(words::SUBJECTS);
        let questions = (0..random.between(4, 8))
            .map(|at| {
                let forced = Kind::ALL[number as usize % Kind::ALL.len()];
                let kind = match at {
                    0 if random.percent(70) => Kind::Nps,
                    1 => forced,
                    _ => Kind::draw(&mut random),
                };
                Question::generate(
                    kind,
                    FIRST_SURVEY_ID * 10 + i64::from(number) * QUESTION_IDS_PER_SURVEY + at,
                    subject,
                    &mut random,
                    wordings,
                )
            })
            .collect();
        Self {
            id,
            name: format!("{subject} {}", 2024 + number % 3),
            is_link,
            status,
            created_ms,
            updated_ms: completed_ms.or(launched_ms).unwrap_or(created_ms),
            launched_ms,
            completed_ms,
            response_limit: random.percent(30).then(|| random.between(1, 50) * 100),
            constraints: if is_link { Vec::new() } else { constraints(&mut random) },
            questions,
            pages: pages(is_link, id, &mut random),
        }
    }

    /// Appends the survey's record.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let time = |at_ms: Option<i64>| {
            at_ms.map(|at_ms| {
                let mut text = Vec::new();
                json_text::push_time(&mut text, at_ms, json_text::TimeStyle::Millis);
                String::from_utf8_lossy(&text).trim_matches('"').to_owned()
            })
        };
        let record = SurveyRecord {
            id: self.id,
            name: &self.name,
            platform: if self.is_link { "link" } else { "web" },
            kind: "CONTINUOUS",
            status: self.status,
            created_at: time(Some(self.created_ms)),
            updated_at: time(Some(self.updated_ms)),
            launched_at: time(self.launched_ms),
            completed_at: time(self.completed_ms),
            total_response_limit: self.response_limit,
            constraints: &self.constraints,
            questions: self.questions.iter().map(Question::record).collect(),
        };
        // Writing to a vector cannot fail, and the record has only string keys.
        let _ = serde_json::to_writer(out, &record);
    }
}

/// Draws targeting rules.
fn constraints(random: &mut Random) -> Vec<Constraint> {
    let mut all =
        vec![Constraint { comparison_type: "gte", event: None, kind: "SESSION_COUNT", value: random.between(1, 5) }];
    if random.percent(50) {
        let event = random.percent(30).then(|| "checkout_opened".to_owned());
        all.push(Constraint {
            comparison_type: "eq",
            event,
            kind: "TIME_ON_PAGE_DELAY",
            value: random.between(0, 60) * 1000,
        });
    }
    all
}

/// Draws the addresses of pages that show the survey, as JSON strings.
fn pages(is_link: bool, id: i64, random: &mut Random) -> Vec<String> {
    let page = |number: i64| {
        if is_link {
            return format!("https://studies.example.com/s/{id}?ref={number}");
        }
        let folder = ["home", "reports", "größe"][number as usize % 3];
        format!("https://app.example.com/{folder}/items?id={}&q=a%20b#tab-{number}", 1000 * id + number)
    };
    (0..random.between(2, 6)).map(|number| json_text::quoted(&page(number))).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SurveyRecord<'a> {
    id: i64,
    name: &'a str,
    platform: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    status: Status,
    created_at: Option<String>,
    updated_at: Option<String>,
    launched_at: Option<String>,
    completed_at: Option<String>,
    total_response_limit: Option<i64>,
    constraints: &'a [Constraint],
    questions: Vec<QuestionRecord<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuestionRecord<'a> {
    id: i64,
    #[serde(rename = "type")]
    kind: &'static str,
    question_text: &'a str,
    options: Vec<OptionRecord<'a>>,
    options_properties: Option<OptionsProperties<'a>>,
    routing_options: Option<()>,
}

#[derive(Serialize)]
struct OptionRecord<'a> {
    id: i64,
    label: &'a str,
    order: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OptionsProperties<'a> {
    intro_text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Labels<'a>>,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    columns: &'a [&'a str],
}

#[derive(Serialize)]
struct Labels<'a> {
    left: &'a str,
    right: &'a str,
}

impl Question {
    /// Generates a question and adds its wording.
    fn generate(kind: Kind, id: i64, subject: &str, random: &mut Random, wordings: &mut Vec<String>) -> Self {
        let draw_some = |pool: &[&'static str], count: i64, random: &mut Random| {
            let mut all = pool.to_vec();
            random.shuffle(&mut all);
            all.truncate(count as usize);
            all
        };
        let options = match kind {
            Kind::MultipleChoice | Kind::MultipleSelect => draw_some(words::CHOICES, random.between(3, 7), random),
            Kind::Matrix | Kind::RankOrder => draw_some(words::ASPECTS, random.between(3, 5), random),
            Kind::MaxDiff => draw_some(words::ASPECTS, 6, random),
            _ => Vec::new(),
        };
        let labels = match kind {
            Kind::MaxDiff => Some(("Least important", "Most important")),
            Kind::Nps => Some(("Not likely", "Very likely")),
            Kind::Likert => Some(("Disagree", "Agree")),
            _ => None,
        };
        let columns = if kind == Kind::Matrix { *random.pick(words::COLUMNS) } else { &[] };
        let scale_max = if random.percent(25) { 7 } else { 5 };
        let mut question = Self { id, kind, text: String::new(), wording: 0, options, columns, scale_max, labels };
        question.reword(kind.question_text(subject, random), wordings);
        question
    }

    /// Gives the question a new text. Existing answers keep the old wording.
    pub(crate) fn reword(&mut self, text: String, wordings: &mut Vec<String>) {
        self.wording = wordings.len() as u32;
        wordings.push(QuestionText { id: self.id, text: Some(&text), kind: self.kind.name() }.fragment());
        self.text = text;
    }

    /// Returns the question in the form of a survey record.
    fn record(&self) -> QuestionRecord<'_> {
        let has_properties = self.labels.is_some() || !self.columns.is_empty();
        QuestionRecord {
            id: self.id,
            kind: self.kind.name(),
            question_text: &self.text,
            options: (self.options.iter().enumerate())
                .map(|(order, label)| OptionRecord { id: self.id * 100 + order as i64, label, order })
                .collect(),
            options_properties: has_properties.then(|| OptionsProperties {
                intro_text: "",
                labels: self.labels.map(|(left, right)| Labels { left, right }),
                columns: self.columns,
            }),
            routing_options: None,
        }
    }
}
