//! Surveys, their questions, and the eleven question types of the contract: how they are generated, and their records.

use serde::{Deserialize, Serialize};

use super::{
    super::{
        json_text::{Time, json_of, push},
        random::Random,
    },
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
        ["NEW", "IN_PROGRESS", "PAUSED", "COMPLETED", "DRAFT", "ARCHIVED"][self as usize]
    }

    pub(crate) fn named(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }

    fn is_launched(self) -> bool {
        !matches!(self, Status::New | Status::Draft)
    }

    fn is_over(self) -> bool {
        matches!(self, Status::Completed | Status::Archived)
    }
}

/// A question type of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nps,
    Likert,
    Open,
    MultipleChoice,
    MultipleSelect,
    Matrix,
    RankOrder,
    MaxDiff,
    VideoVoice,
    ConsentLegal,
    TextUrlPrompt,
}

impl Kind {
    /// The types with their names in the contract. Types with a higher weight are drawn more often.
    const ALL: [(Kind, &'static str, u32); 11] = [
        (Kind::Nps, "NPS", 12),
        (Kind::Likert, "LIKERT", 20),
        (Kind::Open, "OPEN", 24),
        (Kind::MultipleChoice, "MULTIPLECHOICE", 18),
        (Kind::MultipleSelect, "MULTIPLESELECT", 11),
        (Kind::Matrix, "MATRIX", 5),
        (Kind::RankOrder, "RANKORDER", 3),
        (Kind::MaxDiff, "MAXDIFF", 2),
        (Kind::VideoVoice, "VIDEOVOICE", 2),
        (Kind::ConsentLegal, "CONSENTLEGAL", 2),
        (Kind::TextUrlPrompt, "TEXTURLPROMPT", 1),
    ];

    /// Returns the name of the type in the contract.
    pub(crate) fn name(self) -> &'static str {
        // The table has the order of the variants.
        Kind::ALL[self as usize].1
    }

    fn draw(random: &mut Random) -> Kind {
        // `weighted` returns an index of the weights.
        Kind::ALL[random.weighted(&Kind::ALL.map(|(_, _, weight)| weight))].0
    }

    /// Draws a text for a new question of this type about `subject`.
    fn question_text(self, subject: &str, random: &mut Random) -> String {
        match self {
            Kind::Nps => format!("How likely are you to recommend {subject} to a friend or colleague?"),
            Kind::Likert => format!("{subject} is easy to use."),
            Kind::Open => (*random.pick(&[
                "What could we do better?",
                "What is the main reason for your score?",
                "Was hat Ihnen gefehlt?",
                "Anything else? 💬",
            ]))
            .to_owned(),
            Kind::MultipleChoice => format!("Which of these matters most to you in {subject}?"),
            Kind::MultipleSelect => "Which of these have you used? (choose all that apply)".to_owned(),
            Kind::Matrix => format!("How do you rate these parts of {subject}?"),
            Kind::RankOrder => "Put these in order of importance.".to_owned(),
            Kind::MaxDiff => "Which is least and which is most important?".to_owned(),
            Kind::VideoVoice => "Tell us in a short video or voice message.".to_owned(),
            Kind::ConsentLegal => "I agree to the recording of this session.".to_owned(),
            Kind::TextUrlPrompt => "Thank you! Read more on our site.".to_owned(),
        }
    }
}

/// The question members of a response record.
pub(crate) struct QuestionText<'a> {
    pub(crate) id: i64,
    pub(crate) text: Option<&'a str>,
    pub(crate) kind: &'a str,
}

impl QuestionText<'_> {
    /// Returns the members as JSON text, without braces.
    pub(crate) fn fragment(&self) -> String {
        let text = self.text.map(|text| format!(r#""questionText":{},"#, json_of(text))).unwrap_or_default();
        format!(r#""questionId":{},{text}"questionType":{}"#, self.id, json_of(self.kind))
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
    labels: Option<Labels>,
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
        let launched_ms = status.is_launched().then(|| created_ms + random.between(60_000, DAY_MS / 2));
        let completed_ms =
            launched_ms.filter(|_| status.is_over()).map(|launched| random.between(launched + 1000, now_ms));
        let subject = random.pick(words::SUBJECTS);
        let questions = (0..random.between(4, 8))
            .map(|at| {
                let (forced, ..) = Kind::ALL[number as usize % Kind::ALL.len()];
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

    /// Gives the survey another status, and the times that follow from it.
    pub(super) fn change_status(&mut self, status: Status, now_ms: i64) {
        self.status = status;
        self.updated_ms = now_ms;
        self.completed_ms = status.is_over().then_some(now_ms);
        self.launched_ms = self.launched_ms.or(status.is_launched().then_some(now_ms));
    }

    /// Appends the survey's record.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let record = SurveyRecord {
            id: self.id,
            name: &self.name,
            platform: if self.is_link { "link" } else { "web" },
            kind: "CONTINUOUS",
            status: self.status,
            created_at: self.created_ms.into(),
            updated_at: self.updated_ms.into(),
            launched_at: self.launched_ms.map(Time::from),
            completed_at: self.completed_ms.map(Time::from),
            total_response_limit: self.response_limit,
            constraints: &self.constraints,
            questions: self.questions.iter().map(Question::record).collect(),
        };
        push(out, &record);
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
    (0..random.between(2, 6)).map(|number| json_of(&page(number))).collect()
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
    created_at: Time,
    updated_at: Time,
    launched_at: Option<Time>,
    completed_at: Option<Time>,
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
    labels: Option<Labels>,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    columns: &'a [&'a str],
}

/// The labels of the ends of a scale.
#[derive(Clone, Copy, Debug, Serialize)]
struct Labels {
    left: &'static str,
    right: &'static str,
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
            Kind::MaxDiff => Some(Labels { left: "Least important", right: "Most important" }),
            Kind::Nps => Some(Labels { left: "Not likely", right: "Very likely" }),
            Kind::Likert => Some(Labels { left: "Disagree", right: "Agree" }),
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

    fn record(&self) -> QuestionRecord<'_> {
        let has_properties = self.labels.is_some() || !self.columns.is_empty();
        QuestionRecord {
            id: self.id,
            kind: self.kind.name(),
            question_text: &self.text,
            options: (self.options.iter().enumerate())
                .map(|(order, label)| OptionRecord { id: self.id * 100 + order as i64, label, order })
                .collect(),
            options_properties: has_properties.then_some(OptionsProperties {
                intro_text: "",
                labels: self.labels,
                columns: self.columns,
            }),
            routing_options: None,
        }
    }
}
