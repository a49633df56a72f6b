//! A survey that people answer while it changes: its questions, what each person saw and answered, and what scans
//! found. A seed determines all of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use studysync_sandbox::{ListName, RowKey};

use crate::{
    harness::{DAY_MS, NOW_MS, Service},
    simulation::dice::Dice,
};

/// The survey that changes.
pub const SURVEY: i64 = 900;
const MINUTE_MS: i64 = 60_000;

/// Lowest and highest value, and values of options that are not points, as a reader of the labels would say.
pub type Scale = (i64, i64, &'static [i64]);

/// Labels of LIKERT questions with their scales.
const SCALES: [(&[&str], Scale); 9] = [
    (&["1", "2", "3", "4", "5"], (1, 5, &[])),
    (&["never", "rarely", "sometimes", "often", "always"], (1, 5, &[])),
    (&["bad", "poor", "fair", "good", "excellent", "N/A"], (1, 5, &[6])),
    (&["Don't know", "no", "rather no", "rather yes", "yes"], (2, 5, &[1])),
    (&["1 - not at all", "2", "3", "4", "5", "6", "7 - completely", "Prefer not to say"], (1, 7, &[8])),
    (&["18-24", "25-34", "35-44", "45-54", "55+"], (1, 5, &[])),
    (&["1-2 times", "3-5 times", "6-10 times", "more often"], (1, 4, &[])),
    (&["0", "1", "2", "3", "4", "Not applicable"], (0, 4, &[5, 6])),
    (&["5 very good", "4", "3", "2", "1 very bad", "Keine Angabe"], (1, 5, &[0, 6])),
];

/// A question as it is defined at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub id: i64,
    pub kind: &'static str,
    pub wording: String,
    pub options: Vec<String>,
    pub scale: Option<Scale>,
    /// The labels of the left and the right end.
    pub ends: [&'static str; 2],
}

pub type Definition = Vec<Question>;

/// The content of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    Nothing,
    Number(i64),
    /// A LIKERT answer that is a text.
    Text(&'static str),
    /// Options by label, with their indexes if the service sends them.
    Options(Vec<String>, Option<Vec<i64>>),
    /// Options by index only.
    Indexes(Vec<i64>),
    /// A content that no view of this test counts.
    Other(Value),
}

/// An answer as the service lists it, and the question as the person saw it.
#[derive(Clone, Debug)]
pub struct Answer {
    pub session: String,
    pub survey: Option<i64>,
    pub saw: Question,
    /// The wording in the answer record.
    pub wording: Option<String>,
    pub at_ms: i64,
    pub given: Given,
    pub is_deleted: bool,
    pub updated_ms: i64,
    /// Whether the survey had not changed between the last scan and this answer.
    pub is_settled: bool,
}

/// The service, and everything that happened to it.
pub struct World {
    service: Service,
    dice: Dice,
    definition: Definition,
    /// Questions that were removed from the survey.
    removed: Vec<Question>,
    next_question: i64,
    next_name: u64,
    sessions: u64,
    pub answers: BTreeMap<(String, i64), Answer>,
    pub night: i64,
}

/// The start of the scan of a night.
pub fn night_ms(night: i64) -> i64 {
    NOW_MS + night * DAY_MS
}

impl World {
    /// A survey with one question of each kind, answered for five days without a change.
    pub fn new(service: Service, seed: u64) -> World {
        let mut world = World {
            service,
            dice: Dice::new(seed, 42),
            definition: Vec::new(),
            removed: Vec::new(),
            next_question: 1,
            next_name: 1,
            sessions: 0,
            answers: BTreeMap::new(),
            night: 0,
        };
        for kind in ["NPS", "LIKERT", "MULTIPLECHOICE", "MULTIPLESELECT", "MATRIX", "RANKORDER", "MAXDIFF", "LIKERT"] {
            let question = world.question(kind);
            world.definition.push(question);
        }
        for day in 0..5 {
            world.answer_between(night_ms(-day) - 20 * 60 * MINUTE_MS, night_ms(-day) - 120 * MINUTE_MS, 6, true);
        }
        world.publish();
        world
    }

    /// A day with changes of the survey, answers before and after each change, and edits of earlier answers.
    pub fn next_day(&mut self) {
        self.night += 1;
        self.service.advance_days(1);
        let changes = self.dice.below(4) as i64;
        let (mut from, ends) = (night_ms(self.night - 1) + 120 * MINUTE_MS, night_ms(self.night) - 120 * MINUTE_MS);
        for change in 0..changes {
            let until = from + (ends - from) / (changes + 1 - change);
            self.answer_between(from, until, 5, change == 0);
            self.change();
            from = until;
        }
        self.answer_between(from, ends, 6, changes == 0);
        self.edit();
        self.publish();
    }

    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The questions of the survey at this time.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    fn name(&mut self, of: &str) -> String {
        self.next_name += 1;
        format!("{of} {}", self.next_name)
    }

    fn question(&mut self, kind: &'static str) -> Question {
        self.next_question += 1;
        let mut question = Question {
            id: self.next_question,
            kind,
            wording: self.name("Question"),
            options: Vec::new(),
            scale: None,
            ends: ["", ""],
        };
        self.set_options(&mut question);
        question
    }

    fn set_options(&mut self, question: &mut Question) {
        match question.kind {
            // One question in five has no options: its scale is derived from the answers.
            "LIKERT" if self.dice.percent(80) => {
                let (labels, scale) = self.dice.pick(&SCALES);
                question.options = labels.iter().map(|label| (*label).to_owned()).collect();
                question.scale = Some(scale);
            }
            "LIKERT" => (question.options, question.scale) = (Vec::new(), None),
            "MULTIPLECHOICE" | "MULTIPLESELECT" => {
                question.options = (0..self.dice.between(3, 5)).map(|_| self.name("option")).collect();
            }
            "MAXDIFF" => {
                let ends = [["Most useful", "Least useful"], ["Worst", "Best"], ["Like", "Dislike"]];
                question.ends = self.dice.pick(&ends);
            }
            _ => {}
        }
    }

    /// Makes one change of the survey.
    fn change(&mut self) {
        let at = self.dice.below(self.definition.len() as u64) as usize;
        let mut question = self.definition[at].clone();
        let has_options = ["MULTIPLECHOICE", "MULTIPLESELECT"].contains(&question.kind);
        match self.dice.below(10) {
            0 if self.definition.len() > 3 => self.removed.push(self.definition.remove(at)),
            1 => {
                let kind = self.dice.pick(&["LIKERT", "NPS", "MULTIPLECHOICE", "RANKORDER"]);
                let returning = if self.dice.percent(40) { self.removed.pop() } else { None };
                let added = returning.unwrap_or_else(|| self.question(kind));
                let place = self.dice.below(self.definition.len() as u64 + 1) as usize;
                self.definition.insert(place, added);
            }
            2 => {
                let moved = self.definition.remove(at);
                let place = self.dice.below(self.definition.len() as u64 + 1) as usize;
                self.definition.insert(place, moved);
            }
            3 => {
                question.wording = self.name("Reworded");
                self.definition[at] = question;
            }
            _ if has_options => {
                self.change_options(&mut question.options);
                self.definition[at] = question;
            }
            _ => {
                self.set_options(&mut question);
                self.definition[at] = question;
            }
        }
    }

    fn change_options(&mut self, options: &mut Vec<String>) {
        match self.dice.below(4) {
            0 => options.insert(0, self.name("inserted")),
            1 => {
                let at = self.dice.below(options.len() as u64) as usize;
                options[at] = self.name("renamed");
            }
            2 => options.rotate_right(1),
            _ if options.len() > 2 => drop(options.remove(0)),
            _ => options.reverse(),
        }
    }

    /// Adds some sessions at random times of a range. `is_settled` says that the survey is as the last scan saw it.
    fn answer_between(&mut self, from_ms: i64, until_ms: i64, sessions: u64, is_settled: bool) {
        for _ in 0..sessions {
            self.sessions += 1;
            let session = format!("session-{}", self.sessions);
            let begun_ms = self.dice.between(from_ms, until_ms - MINUTE_MS);
            // Some answers name no survey, some have no wording, and some people leave before the end.
            let survey = (!self.dice.percent(8)).then_some(SURVEY);
            let reached = match self.dice.percent(60) {
                true => self.definition.len(),
                false => 1 + self.dice.below(self.definition.len() as u64) as usize,
            };
            for (place, saw) in self.definition.clone().into_iter().take(reached).enumerate() {
                let given = self.give(&saw);
                let answer = Answer {
                    session: session.clone(),
                    survey,
                    wording: (!self.dice.percent(15)).then(|| saw.wording.clone()),
                    at_ms: begun_ms + place as i64 * 1000,
                    given,
                    is_deleted: false,
                    updated_ms: begun_ms,
                    is_settled,
                    saw,
                };
                self.answers.insert((session.clone(), answer.saw.id), answer);
            }
        }
    }

    fn give(&mut self, question: &Question) -> Given {
        if self.dice.percent(15) {
            return Given::Nothing;
        }
        match question.kind {
            "NPS" => Given::Number(self.dice.between(0, 10)),
            "LIKERT" if self.dice.percent(4) => Given::Text("not a number"),
            "LIKERT" => {
                let (low, high, others) = question.scale.unwrap_or((1, 4, &[]));
                // For an option that is not a point, the service sends its position or its own number. The test uses
                // the first known value.
                let values: Vec<i64> = (low..=high).chain(others.iter().copied().take(1)).collect();
                Given::Number(self.dice.pick(&values))
            }
            "MULTIPLECHOICE" | "MULTIPLESELECT" => self.choose(question),
            "MATRIX" => Given::Other(json!({"row": self.dice.pick(&["1 bad", "2 good"])})),
            "RANKORDER" => Given::Other(json!({"A": 1, "B": 2})),
            _ => {
                let item =
                    |id: i64, option: &str, selected: Value| json!({"id": id, "option": option, "selected": selected});
                let [left, right] = self.dice.pick(&[["A", "B"], ["B", "A"]]);
                Given::Other(json!([[item(1, left, json!("left")), item(2, right, json!("right"))]]))
            }
        }
    }

    fn choose(&mut self, question: &Question) -> Given {
        let several = if question.kind == "MULTIPLECHOICE" { 1 } else { self.dice.between(1, 3) };
        let mut places: Vec<usize> = (0..question.options.len()).collect();
        places.rotate_left(self.dice.below(question.options.len() as u64) as usize);
        places.truncate(several as usize);
        let indexes: Vec<i64> = places.iter().map(|place| *place as i64).collect();
        if places.len() > 1 && self.dice.percent(25) {
            return Given::Indexes(indexes);
        }
        let labels = places.iter().map(|place| question.options[*place].clone()).collect();
        Given::Options(labels, self.dice.percent(60).then_some(indexes))
    }

    /// Edits, deletes and removes answers of the last three days, which every scan reads again.
    fn edit(&mut self) {
        let since = night_ms(self.night) - 2 * DAY_MS;
        let young: Vec<(String, i64)> =
            self.answers.iter().filter(|(_, answer)| answer.at_ms > since).map(|(key, _)| key.clone()).collect();
        for key in young {
            let mut answer = self.answers[&key].clone();
            answer.updated_ms = night_ms(self.night);
            match self.dice.below(25) {
                0 | 1 => answer.given = self.give(&answer.saw),
                2 => answer.is_deleted = true,
                3 => {
                    let row = RowKey { group: key.0.clone(), question: key.1.to_string() };
                    self.service.control().remove_row(&row);
                    self.answers.remove(&key);
                    continue;
                }
                _ => continue,
            }
            self.answers.insert(key, answer);
        }
    }

    /// Makes the service list the present survey and answers.
    fn publish(&self) {
        let control = self.service.control();
        control.plant(ListName::Surveys, &self.survey().to_string(), None).unwrap();
        for answer in self.answers.values().filter(|answer| answer.at_ms > night_ms(self.night) - 6 * DAY_MS) {
            control.plant(ListName::Responses, &self.record(answer).to_string(), Some(answer.at_ms)).unwrap();
        }
    }

    fn survey(&self) -> Value {
        let question = |question: &Question| {
            let [left, right] = question.ends;
            json!({"id": question.id, "type": question.kind, "questionText": question.wording,
                   "options": question.options, "routingOptions": null,
                   "optionsProperties": {"introText": "", "labels": {"left": left, "right": right}}})
        };
        let questions: Vec<Value> = self.definition.iter().map(question).collect();
        json!({
            "id": SURVEY, "name": "Changing", "platform": "web", "type": "CONTINUOUS", "status": "IN_PROGRESS",
            "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z", "launchedAt": null,
            "completedAt": null, "totalResponseLimit": null, "constraints": [], "questions": questions,
        })
    }

    fn record(&self, answer: &Answer) -> Value {
        let time = |ms: i64| chrono::DateTime::from_timestamp_millis(ms).unwrap().to_rfc3339();
        let (response, indexes) = match &answer.given {
            Given::Nothing => (json!(null), None),
            Given::Number(number) => (json!(number), None),
            Given::Text(text) => (json!(text), None),
            Given::Other(value) => (value.clone(), None),
            Given::Options(labels, indexes) => {
                let response = match (labels.as_slice(), answer.at_ms % 2) {
                    ([label], _) => json!(label),
                    (labels, 0) => json!(labels),
                    (labels, _) => json!(json!(labels).to_string()),
                };
                (response, indexes.clone())
            }
            Given::Indexes(indexes) => (json!("several options"), Some(indexes.clone())),
        };
        let indexes = match (indexes, answer.saw.kind) {
            (Some(indexes), "MULTIPLECHOICE") => json!(indexes[0]),
            (indexes, _) => json!(indexes),
        };
        json!({
            "createdAt": time(answer.at_ms), "updatedAt": time(answer.updated_ms),
            "deletedAt": answer.is_deleted.then(|| time(answer.updated_ms)),
            "externalUserId": "", "questionId": answer.saw.id, "questionText": answer.wording,
            "questionType": answer.saw.kind, "response": response, "selectedIndexes": indexes,
            "responseGroupUid": answer.session, "surveyId": answer.survey, "visitorId": 1,
            "visitorUuid": format!("visitor-{}", answer.session),
        })
    }
}
