//! The service's records in plain types: the second computation of the views starts from these, not from tables.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike, NaiveDate};

use crate::harness::{Row, expected::Expected};

/// A current answer, with the rows of its parts.
#[derive(Clone, Debug)]
pub struct Answer {
    pub session: String,
    pub question_id: i64,
    pub survey_id: Option<i64>,
    pub row: Row,
    pub parts: Vec<(&'static str, Row)>,
    pub created_us: i64,
    pub kind: Option<String>,
    pub wording: Option<String>,
    pub number: Option<f64>,
    pub is_skipped: bool,
}

/// The present definition of a question in its survey.
#[derive(Clone, Debug, Default)]
pub struct Definition {
    pub survey_name: Option<String>,
    pub ordinal: i64,
    pub kind: Option<String>,
    pub wording: Option<String>,
    pub left: Option<String>,
    pub right: Option<String>,
    /// Lowest and highest value, and the source of the scale.
    pub scale: Option<(i64, i64, &'static str)>,
}

/// A current theme.
#[derive(Clone, Debug)]
pub struct Theme {
    pub row: Row,
    pub answered_us: i64,
}

/// The data from which all views are computed.
pub struct Truth {
    pub answers: Vec<Answer>,
    pub definitions: BTreeMap<(i64, i64), Definition>,
    pub survey_names: BTreeMap<i64, Option<String>>,
    pub themes: Vec<Theme>,
    /// Least and greatest whole number from 0 to 10 in the answers to a LIKERT question, by survey and question.
    pub likert_ranges: BTreeMap<(Option<i64>, i64), (i64, i64)>,
    /// Labels of options by survey, question and place, counted from 1.
    pub options: BTreeMap<(i64, i64), BTreeMap<i64, String>>,
    /// Index and label of each chosen option, by survey and question.
    pub chosen: BTreeMap<(i64, i64), Vec<ChosenOption>>,
}

/// Index and label.
pub type ChosenOption = (i64, Option<String>);

pub fn integer(row: &Row, name: &str) -> Option<i64> {
    row[name].as_deref().map(|text| text.parse().unwrap())
}

/// The day of a time, UTC.
pub fn day_of(micros: i64) -> NaiveDate {
    DateTime::from_timestamp_micros(micros).unwrap().date_naive()
}

pub fn monday_of(day: NaiveDate) -> NaiveDate {
    day - chrono::Duration::days(i64::from(day.weekday().num_days_from_monday()))
}

pub fn first_of_month(day: NaiveDate) -> NaiveDate {
    day.with_day(1).unwrap()
}

impl Truth {
    /// Leaves out deleted and vanished rows.
    pub fn of(expected: &Expected) -> Truth {
        let mut truth = Truth {
            answers: Vec::new(),
            definitions: BTreeMap::new(),
            survey_names: BTreeMap::new(),
            themes: Vec::new(),
            likert_ranges: BTreeMap::new(),
            options: BTreeMap::new(),
            chosen: BTreeMap::new(),
        };
        let mut times = BTreeMap::new();
        for (key, entity) in expected.entities("responses") {
            let stands = entity.row["deleted_at"].is_none() && !entity.has_vanished;
            times.insert(key.clone(), stands.then(|| integer(&entity.row, "created_at").unwrap()));
            if stands {
                truth.note_scale_and_choices(&answer(&entity.row, &entity.children));
                truth.answers.push(answer(&entity.row, &entity.children));
            }
        }
        for (_, entity) in expected.entities("themes").filter(|(_, entity)| !entity.has_vanished) {
            let [session, question] =
                ["response_group_uid", "question_id"].map(|name| entity.row[name].clone().unwrap());
            let found_us = integer(&entity.row, "created_at").unwrap();
            let answered = times.get(&format!("{session} / {question}")).copied().unwrap_or(Some(found_us));
            truth.themes.extend(answered.map(|answered_us| Theme { row: entity.row.clone(), answered_us }));
        }
        for (_, entity) in expected.entities("surveys") {
            truth.survey_names.insert(integer(&entity.row, "id").unwrap(), entity.row["name"].clone());
            truth.read_questions(&entity.row["name"], &entity.children);
        }
        truth
    }

    fn read_questions(&mut self, survey_name: &Option<String>, children: &[(&'static str, Row)]) {
        for (_, row) in children.iter().filter(|(table, _)| *table == "survey_questions") {
            let (survey_id, ordinal) = (integer(row, "survey_id").unwrap(), integer(row, "question_ordinal").unwrap());
            let Some(question_id) = integer(row, "question_id") else { continue };
            let labels = children.iter().filter(|(table, option)| {
                *table == "survey_question_options" && integer(option, "question_ordinal") == Some(ordinal)
            });
            let labels: Vec<Option<&str>> = labels.map(|(_, option)| option["label"].as_deref()).collect();
            let is_likert = row["question_type"].as_deref() == Some("LIKERT");
            let definition = Definition {
                survey_name: survey_name.clone(),
                ordinal,
                kind: row["question_type"].clone(),
                wording: row["question_text"].clone(),
                left: row["left_label"].clone(),
                right: row["right_label"].clone(),
                scale: is_likert.then(|| scale(&labels, row["options_properties"].as_deref())).flatten(),
            };
            for (at, label) in labels.iter().enumerate() {
                let options = self.options.entry((survey_id, question_id)).or_default();
                label.map(|label| options.entry(at as i64 + 1).or_insert_with(|| label.to_owned()));
            }
            self.definitions.entry((survey_id, question_id)).or_insert(definition);
        }
    }

    fn note_scale_and_choices(&mut self, answer: &Answer) {
        let key = (answer.survey_id, answer.question_id);
        let plausible = answer.number.filter(|number| number.fract() == 0.0 && (0.0..=10.0).contains(number));
        if let Some(number) = plausible.filter(|_| answer.kind.as_deref() == Some("LIKERT")) {
            let number = number as i64;
            let range = self.likert_ranges.entry(key).or_insert((number, number));
            *range = (range.0.min(number), range.1.max(number));
        }
        let Some(survey_id) = answer.survey_id else { return };
        let key = (survey_id, answer.question_id);
        for (_, row) in answer.parts.iter().filter(|(table, _)| *table == "response_choices") {
            if let Some(index) = integer(row, "selected_index") {
                self.chosen.entry(key).or_default().push((index, row["label"].clone()));
            }
        }
    }

    /// Returns the label of an index: an option of the survey, if it is proven how indexes are counted, or else the
    /// label in all other answers.
    pub fn label_of_index(&self, survey_id: i64, question_id: i64, index: i64) -> Option<String> {
        let key = (survey_id, question_id);
        let chosen = self.chosen.get(&key)?;
        let called = |index: i64| {
            let labels: std::collections::BTreeSet<&String> =
                chosen.iter().filter(|(other, _)| *other == index).filter_map(|(_, label)| label.as_ref()).collect();
            if labels.len() == 1 { labels.first().map(|label| (*label).clone()) } else { None }
        };
        let empty = BTreeMap::new();
        let options = self.options.get(&key).unwrap_or(&empty);
        let mut firsts = std::collections::BTreeSet::new();
        for (index, _) in chosen {
            let label = called(*index);
            let place = options.iter().find(|(_, option)| Some(*option) == label.as_ref());
            firsts.extend(place.map(|(place, _)| index - place + 1));
        }
        let (least, most) = (chosen.iter().map(|(at, _)| *at).min()?, chosen.iter().map(|(at, _)| *at).max()?);
        if let Some(last) = options.keys().max() {
            match (least == 0, most == *last) {
                (true, _) if most < *last => drop(firsts.insert(0)),
                (false, true) => drop(firsts.insert(1)),
                _ => {}
            }
        }
        let first = firsts.first().filter(|first| firsts.len() == 1 && (0..=1).contains(*first));
        first.and_then(|first| options.get(&(index - first + 1)).cloned()).or_else(|| called(index))
    }

    pub fn definition(&self, survey_id: Option<i64>, question_id: i64) -> Option<&Definition> {
        self.definitions.get(&(survey_id?, question_id))
    }

    /// Returns the present wording, or else the latest one in these answers.
    pub fn wording<'a>(
        &self,
        survey_id: Option<i64>,
        question_id: i64,
        answers: impl IntoIterator<Item = &'a Answer>,
    ) -> Option<String> {
        let today = self.definition(survey_id, question_id).and_then(|definition| definition.wording.clone());
        let shown = answers.into_iter().filter_map(|answer| Some((answer.created_us, answer.wording.clone()?)));
        today.or_else(|| shown.max().map(|(_, wording)| wording))
    }

    pub fn survey_name(&self, survey_id: Option<i64>) -> Option<String> {
        self.survey_names.get(&survey_id?).cloned().flatten()
    }
}

fn answer(row: &Row, parts: &[(&'static str, Row)]) -> Answer {
    Answer {
        session: row["response_group_uid"].clone().unwrap(),
        question_id: integer(row, "question_id").unwrap(),
        survey_id: integer(row, "survey_id"),
        created_us: integer(row, "created_at").unwrap(),
        kind: row["question_type"].clone(),
        wording: row["question_text"].clone(),
        number: row["answer_number"].as_deref().map(|text| text.parse().unwrap()),
        is_skipped: row["is_skipped"].as_deref() == Some("true"),
        parts: parts.to_vec(),
        row: row.clone(),
    }
}

/// Returns the scale of a definition: by its options, or else by its property "range".
fn scale(labels: &[Option<&str>], properties: Option<&str>) -> Option<(i64, i64, &'static str)> {
    let leading = |label: &Option<&str>| -> Option<i64> {
        let label = (*label)?.trim_start();
        let signed = label.trim_start_matches(['-', '+']).len();
        let digits = label[label.len() - signed..].chars().take_while(char::is_ascii_digit).count();
        let number = &label[..label.len() - signed + digits];
        let next = label[number.len()..].chars().next();
        (!matches!(next, Some('.' | ','))).then(|| number.parse().ok()).flatten()
    };
    if labels.len() >= 2 {
        let values: Vec<i64> = labels.iter().filter_map(leading).collect();
        let is_numbered = values.len() == labels.len();
        let (low, high) = (values.iter().min().copied(), values.iter().max().copied());
        let numbered = low.zip(high).filter(|_| is_numbered);
        let (low, high) = numbered.unwrap_or((1, labels.len() as i64));
        return Some((low, high, "options"));
    }
    let properties: serde_json::Value = serde_json::from_str(properties?).ok()?;
    let range = &properties["range"];
    let range = range.as_i64().or_else(|| range.as_str()?.parse().ok())?;
    (2..=99).contains(&range).then_some((1, range, "properties"))
}
