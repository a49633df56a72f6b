//! Computes what the views must return for a survey that changed, from the answers and the results of scans, without
//! SQL.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{Answer, Definition, Given, Question, SURVEY, Scale, night_ms};
use crate::{
    harness::Cell,
    views::recompute::{Rows, cell, optional},
};

/// The state of knowledge after a scan: the answers, and the survey in each scan so far.
pub struct Known {
    pub answers: Vec<Answer>,
    pub definitions: Vec<Definition>,
}

/// A question as a scan first found it, at this position, and the time of the scan.
struct Version<'a> {
    from_ms: i64,
    question: &'a Question,
}

type Key = (Option<i64>, i64);
/// Answers, value and standard error.
pub type Figure = (usize, f64, Option<f64>);
/// Survey, question, figure, label, index.
pub type FigureKey = (Option<i64>, i64, &'static str, Cell, Option<i64>);

/// The labels and the indexes of a choice answer.
fn chosen(answer: &Answer) -> Vec<(Option<String>, Option<i64>)> {
    match &answer.given {
        Given::Options(labels, None) => labels.iter().map(|label| (Some(label.clone()), None)).collect(),
        Given::Options(labels, Some(indexes)) => {
            labels.iter().zip(indexes).map(|(label, index)| (Some(label.clone()), Some(*index))).collect()
        }
        Given::Indexes(indexes) => indexes.iter().map(|index| (None, Some(*index))).collect(),
        _ => Vec::new(),
    }
}

/// All values that a person can choose on a scale: its points, and options that are not points.
fn values((low, high, others): Scale) -> BTreeSet<i64> {
    (low..=high).chain(others.iter().copied()).collect()
}

/// Returns whether an answer contains an option or value that only the second version has.
fn is_of_the_next(answer: &Answer, current: &Question, next: &Question) -> bool {
    match &answer.given {
        Given::Number(number) if answer.saw.kind == "LIKERT" => current
            .scale
            .zip(next.scale)
            .is_some_and(|(current, next)| values(next).contains(number) && !values(current).contains(number)),
        Given::Options(labels, _) => {
            labels.iter().any(|label| next.options.contains(label) && !current.options.contains(label))
        }
        Given::Indexes(indexes) => {
            let last = *indexes.iter().max().unwrap();
            last > current.options.len() as i64 && last <= next.options.len() as i64
        }
        _ => false,
    }
}

/// Survey, question, and the label or the index of an option.
type ChosenOption = (Option<i64>, i64, Cell, Option<i64>);

impl Known {
    fn versions(&self, id: i64) -> Vec<Version<'_>> {
        let mut versions: Vec<Version> = Vec::new();
        let mut before: Option<(usize, &Question)> = None;
        for (night, definition) in self.definitions.iter().enumerate() {
            let found = definition.iter().enumerate().find(|(_, question)| question.id == id);
            if let Some((_, question)) = found.filter(|found| before != Some(*found)) {
                versions.push(Version { from_ms: night_ms(night as i64), question });
            }
            before = found;
        }
        versions
    }

    /// Returns the number of the version that was answered, from 1, and the version.
    pub fn judged(&self, answer: &Answer) -> Option<(usize, &Question)> {
        answer.survey?;
        let versions = self.versions(answer.saw.id);
        let has_wording = |version: &Version| answer.wording.as_ref() == Some(&version.question.wording);
        let is_worded = versions.iter().any(has_wording);
        let possible: Vec<usize> = (0..versions.len()).filter(|at| !is_worded || has_wording(&versions[*at])).collect();
        let stood = possible.iter().rposition(|at| versions[*at].from_ms <= answer.at_ms).unwrap_or(0);
        let at = *possible.get(stood)?;
        let next = possible.get(stood + 1).copied();
        let is_next = next.is_some_and(|next| is_of_the_next(answer, versions[at].question, versions[next].question));
        let at = next.filter(|_| is_next).unwrap_or(at);
        Some((at + 1, versions[at].question))
    }

    /// Returns the answers to each question of these types.
    fn answers_to(&self, kinds: &[&str]) -> BTreeMap<Key, Vec<&Answer>> {
        let mut questions: BTreeMap<Key, Vec<&Answer>> = BTreeMap::new();
        for answer in self.answers.iter().filter(|answer| kinds.contains(&answer.saw.kind)) {
            questions.entry((answer.survey, answer.saw.id)).or_default().push(answer);
        }
        questions
    }

    /// The present wording of a question: from the survey, or else the last one that a person saw.
    pub fn wording(&self, (survey, id): Key) -> Cell {
        let defined = self.definitions.last()?.iter().find(|question| survey == Some(SURVEY) && question.id == id);
        let shown = self.answers.iter().filter(|answer| (answer.survey, answer.saw.id) == (survey, id));
        let shown = shown.filter_map(|answer| Some((answer.at_ms, answer.wording.clone()?))).max();
        defined.map(|question| question.wording.clone()).or(shown.map(|(_, wording)| wording))
    }

    /// The label of each choice: session, question, place, index, label.
    pub fn choices(&self) -> Vec<(&Answer, usize, Option<i64>, Cell)> {
        let mut choices = Vec::new();
        for answers in self.answers_to(&["MULTIPLECHOICE", "MULTIPLESELECT"]).values() {
            let names = Names::of(self, answers);
            for answer in answers {
                for (place, (label, index)) in chosen(answer).into_iter().enumerate() {
                    let label = label.or_else(|| names.name(self.judged(answer)?, index?));
                    choices.push((*answer, place + 1, index, label));
                }
            }
        }
        choices
    }

    /// Each LIKERT answer: version number, value, scale, and whether the value is a point, not rated, or outside.
    fn rated(answers: &[&Answer], known: &Known) -> Vec<(usize, i64, (i64, i64), &'static str)> {
        let judged: Vec<(usize, Option<Scale>, Option<i64>)> = (answers.iter())
            .filter_map(|answer| {
                let number = match answer.given {
                    Given::Number(number) => Some(number),
                    Given::Text(_) => None,
                    _ => return None,
                };
                let version = known.judged(answer);
                Some((version.map_or(0, |(at, _)| at), version.and_then(|(_, question)| question.scale), number))
            })
            .collect();
        // Without a definition, the scale is the shortest usual one that fits.
        let free = judged.iter().filter(|(_, scale, _)| scale.is_none()).filter_map(|(.., number)| *number);
        let free: BTreeSet<i64> = free.filter(|number| (0..=10).contains(number)).collect();
        let usual = free.first().zip(free.last()).map(|(least, greatest)| {
            let low = i64::from(*least != 0);
            (low, [low + 4, low + 6, 10].into_iter().find(|high| high >= greatest).unwrap())
        });
        let rate = |(version, scale, number): (usize, Option<Scale>, Option<i64>)| {
            let (low, high) = scale.map(|(low, high, _)| (low, high)).or(usual).unwrap_or((0, -1));
            let kind = match number {
                None => "not rated",
                Some(number) if (low..=high).contains(&number) => "point",
                Some(number) if scale.is_some_and(|(.., others)| others.contains(&number)) => "not rated",
                Some(_) => "outside",
            };
            (version, number.unwrap_or(0), (low, high), kind)
        };
        judged.into_iter().map(rate).collect()
    }

    /// For each LIKERT question: points, sum of points, points in the top two boxes, points on scales that have boxes,
    /// and answers that are not rated.
    pub fn likert(&self) -> BTreeMap<Key, [i64; 5]> {
        let mut figures = BTreeMap::new();
        for (key, answers) in self.answers_to(&["LIKERT"]) {
            let rated = Known::rated(&answers, self);
            let points: Vec<_> = rated.iter().filter(|(.., kind)| *kind == "point").collect();
            let boxed: Vec<_> = points.iter().filter(|(_, _, (low, high), _)| high - low >= 2).collect();
            let top = boxed.iter().filter(|(_, value, (_, high), _)| *value >= high - 1).count();
            let others = rated.iter().filter(|(.., kind)| *kind == "not rated").count();
            let sum = points.iter().map(|(_, value, ..)| value).sum();
            if !points.is_empty() {
                let [points, top, boxed, others] = [points.len(), top, boxed.len(), others].map(|count| count as i64);
                figures.insert(key, [points, sum, top, boxed, others]);
            }
        }
        figures
    }

    /// Every figure.
    pub fn figures(&self) -> BTreeMap<FigureKey, Figure> {
        let mut figures = BTreeMap::new();
        for ((survey, id), answers) in self.answers_to(&["NPS"]) {
            let worth = |answer: &&Answer| match answer.given {
                Given::Number(9..=10) => Some(100.0),
                Given::Number(7..=8) => Some(0.0),
                Given::Number(_) => Some(-100.0),
                _ => None,
            };
            let worths: Vec<f64> = answers.iter().filter_map(worth).collect();
            let n = worths.len() as f64;
            let mean = worths.iter().sum::<f64>() / n;
            let squares: f64 = worths.iter().map(|worth| (worth - mean).powi(2)).sum();
            let error = (worths.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt());
            if !worths.is_empty() {
                figures.insert((survey, id, "nps", None, None), (worths.len(), mean, error));
            }
        }
        for ((survey, id), [_, _, top, boxed, _]) in self.likert() {
            if boxed > 0 {
                let figure = share(top as usize, boxed as usize);
                figures.insert((survey, id, "top_two_share", None, None), figure);
            }
        }
        let answered = self.answers_to(&["MULTIPLECHOICE", "MULTIPLESELECT"]);
        for ((survey, id, label, index), sessions) in self.choosers() {
            let is_answer = |answer: &&&Answer| answer.given != Given::Nothing;
            let all = answered[&(survey, id)].iter().filter(is_answer).count();
            figures.insert((survey, id, "choice_share", label, index), share(sessions.len(), all));
        }
        figures
    }

    /// Returns the sessions that chose each option.
    fn choosers(&self) -> BTreeMap<ChosenOption, BTreeSet<&str>> {
        let mut choosers: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for (answer, _, index, label) in self.choices() {
            let index = index.filter(|_| label.is_none());
            choosers.entry((answer.survey, answer.saw.id, label, index)).or_default().insert(&answer.session);
        }
        choosers
    }

    /// Session, whether it is completed, and its first question.
    pub fn sessions(&self) -> Rows {
        let mut sets: Vec<(i64, Vec<i64>)> = Vec::new();
        for (night, definition) in self.definitions.iter().enumerate() {
            let ids: Vec<i64> = definition.iter().map(|question| question.id).collect();
            if sets.last().is_none_or(|(_, last)| *last != ids) {
                sets.push((night_ms(night as i64), ids));
            }
        }
        let mut sessions: BTreeMap<&str, Vec<&Answer>> = BTreeMap::new();
        self.answers.iter().for_each(|answer| sessions.entry(&answer.session).or_default().push(answer));
        let row = |(session, answers): (&str, Vec<&Answer>)| {
            let begun = answers.iter().map(|answer| answer.at_ms).min().unwrap();
            let shown: BTreeSet<i64> = answers.iter().map(|answer| answer.saw.id).collect();
            let first = answers.iter().find(|answer| answer.at_ms == begun).unwrap().saw.id;
            let stood = sets.iter().rposition(|(from, _)| *from <= begun).unwrap_or(0);
            let is_next = sets
                .get(stood + 1)
                .is_some_and(|(_, next)| shown.iter().any(|id| next.contains(id) && !sets[stood].1.contains(id)));
            let last = sets[stood + usize::from(is_next)].1.last().unwrap();
            let is_completed = answers[0].survey.is_some() && shown.contains(last);
            vec![cell(session), cell(is_completed), cell(first)]
        };
        sessions.into_iter().map(row).collect()
    }
}

fn share(part: usize, whole: usize) -> Figure {
    let share = part as f64 / whole as f64;
    (whole, share, (whole > 1).then(|| (share * (1.0 - share) / whole as f64).sqrt()))
}

/// The meaning of the indexes of a question.
struct Names {
    /// The labels in answers for each version and index.
    called: BTreeMap<(usize, i64), BTreeSet<String>>,
    /// The index of the first option, if it is proven.
    first: Option<i64>,
}

impl Names {
    fn of(known: &Known, answers: &[&Answer]) -> Names {
        let mut called: BTreeMap<(usize, i64), BTreeSet<String>> = BTreeMap::new();
        let mut ranges: BTreeMap<usize, (i64, i64)> = BTreeMap::new();
        let mut options: BTreeMap<usize, &[String]> = BTreeMap::new();
        for answer in answers {
            let Some((version, question)) = known.judged(answer) else { continue };
            options.insert(version, &question.options);
            for (label, index) in chosen(answer) {
                let Some(index) = index else { continue };
                called.entry((version, index)).or_default().extend(label);
                let range = ranges.entry(version).or_insert((index, index));
                *range = (range.0.min(index), range.1.max(index));
            }
        }
        let mut firsts = BTreeSet::new();
        for ((version, index), labels) in called.iter().filter(|(_, labels)| labels.len() == 1) {
            let place = options[version].iter().position(|option| Some(option) == labels.first());
            firsts.extend(place.map(|place| index - place as i64));
        }
        for (version, (least, greatest)) in ranges {
            let count = options[&version].len() as i64;
            firsts.extend((least == 0 && greatest < count).then_some(0));
            firsts.extend((least > 0 && greatest == count).then_some(1));
        }
        let first = firsts.first().copied().filter(|first| firsts.len() == 1 && (0..=1).contains(first));
        Names { called, first }
    }

    fn name(&self, (version, question): (usize, &Question), index: i64) -> Option<String> {
        let option = self.first.and_then(|first| question.options.get(usize::try_from(index - first).ok()?));
        let called = self.called.get(&(version, index)).filter(|labels| labels.len() == 1);
        option.or_else(|| called?.first()).cloned()
    }
}

/// A figure as a row of the view `figures`.
pub fn row(((survey, question, name, label, index), (answers, value, error)): (&FigureKey, &Figure)) -> Vec<Cell> {
    let key = [optional(*survey), cell(question), cell(name), label.clone(), optional(*index)];
    [&key[..], &[cell(answers), cell(value), optional(*error)]].concat()
}
