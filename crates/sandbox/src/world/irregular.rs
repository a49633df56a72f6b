//! Irregular data: rough data, which the contract allows and real services have, but evenly generated data has not; and
//! hostile rows, unusual records that the contract does not show, but which a service may send. By default neither is
//! generated.

use super::{
    super::{
        json_text::{TimeStyle, json_of},
        random::Random,
        settings::Rough,
    },
    Row, World, answers,
    surveys::QuestionText,
    words::free_text,
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Maximum time between two answers of a slow session.
const SLOW_MS_MAX: i64 = 30 * HOUR_MS;
/// The question members of a record that fits no table, because the question has no id.
pub(super) const NO_QUESTION: &str = r#""questionId":null,"questionText":"Imported","questionType":"TEXTURLPROMPT""#;
/// Maximum number of texts that are added to a free answer, so that a record has about 500 bytes.
const MORE_TEXTS: i64 = 5;

/// The time between the answers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Some seconds.
    Usual,
    /// No time: all answers are in one millisecond, as after an import.
    AtOnce,
    /// Up to 30 hours, so that the session extends over several windows.
    Slow,
}

impl Pace {
    /// Draws the time from one answer to the next.
    pub(super) fn step_ms(self, usual_ms: i64, random: &mut Random) -> i64 {
        match self {
            Pace::Usual => usual_ms,
            Pace::AtOnce => 0,
            Pace::Slow => random.between(usual_ms, SLOW_MS_MAX),
        }
    }
}

impl Rough {
    /// Draws the start and the pace of a session that would begin at `begun_ms` in smooth data. A start that is moved
    /// to the edge of a day or an hour is not before `from_ms`.
    pub(super) fn session(&self, begun_ms: i64, from_ms: i64, random: &mut Random) -> (i64, Pace) {
        let (hour_ms, day_ms) = (begun_ms - begun_ms.rem_euclid(HOUR_MS), begun_ms - begun_ms.rem_euclid(DAY_MS));
        if random.chance(self.edge_share) {
            let (at_ms, pace) = match random.below(8) {
                // All responses at midnight, like data that was imported with dates only.
                0..4 => (day_ms, Pace::AtOnce),
                4 => (day_ms, Pace::Usual),
                5 => (day_ms - 1, Pace::Usual),
                6 => (hour_ms, Pace::Usual),
                _ => (hour_ms - 1, Pace::Usual),
            };
            return (at_ms.max(from_ms), pace);
        }
        let pace = match random.below(100) {
            0..2 => Pace::AtOnce,
            2..4 => Pace::Slow,
            _ => Pace::Usual,
        };
        (begun_ms, pace)
    }
}

impl World {
    /// Replaces some rows by a copy of an earlier row with another answer. Half of the copies have the times of the
    /// replaced row, the others those of the earlier row.
    pub(super) fn repeat_keys(&self, rows: &mut [Row], rough: &Rough, random: &mut Random) {
        for copy_at in 1..rows.len() {
            if !random.chance(rough.twice_share) {
                continue;
            }
            let original_at = random.index(copy_at);
            let Some(original) = rows.get(original_at).cloned() else { continue };
            let Some(question) = self.editable_question(&original) else { continue };
            let text = answers::another(question, &original.text, original.created_ms, random).into_boxed_str();
            if let Some(row) = rows.get_mut(copy_at) {
                let times_of_replaced_row = (row.created_ms, row.updated_ms);
                *row = Row { text, ..original };
                if random.percent(50) {
                    (row.created_ms, row.updated_ms) = times_of_replaced_row;
                }
            }
        }
    }
}

/// Adds random texts to an answer that is a text and not empty. Other answers stay unchanged.
pub(super) fn lengthen(answer: &mut String, random: &mut Random) {
    // `answer` ends with the closing quote of the text.
    if answer.starts_with(r#""response":""#) && !answer.ends_with(r#":"""#) && answer.pop().is_some() {
        for _ in 0..random.between(1, MORE_TEXTS) {
            let text = json_of(&free_text(random));
            answer.push(' ');
            answer.push_str(text.trim_matches('"'));
        }
        answer.push('"');
    }
}

/// Length of the long text, in bytes.
const LONG_TEXT_BYTES: usize = 1 << 20;
/// Maximum long texts of a world, so that they do not fill the memory.
pub(super) const LONG_TEXTS_MAX: u32 = 64;
/// Number of hostile wordings. No survey has these questions, which have unknown types, no text, or an id above 2^53.
const WORDINGS: usize = 4;

/// Appends the hostile wordings. [`make_hostile`] expects them to be the last wordings.
pub(super) fn add_hostile_wordings(wordings: &mut Vec<String>) {
    let odd = [
        QuestionText { id: 999_001, text: Some("Record your screen"), kind: "recordedtask" },
        QuestionText { id: 999_002, text: Some("Which bundle?"), kind: "conjoint" },
        QuestionText { id: 999_003, text: None, kind: "OPEN" },
        QuestionText { id: 9_007_199_254_740_993, text: Some("An id past 2^53"), kind: "LIKERT" },
    ];
    wordings.extend(odd.iter().map(QuestionText::fragment));
    debug_assert_eq!(odd.len(), WORDINGS);
}

/// Makes one row hostile in a random way. `wordings` is the number of wordings, with the hostile ones last.
/// `long_texts` is the number of long texts that are still allowed.
pub(super) fn make_hostile(row: &mut Row, wordings: usize, random: &mut Random, long_texts: &mut u32) {
    let first = wordings.saturating_sub(WORDINGS);
    let reword = |row: &mut Row, nth: usize, answer: &str| {
        row.wording = (first + nth) as u32;
        row.text = answer.into();
    };
    match random.below(16) {
        0 => reword(row, 0, r#""response":{"taskStatus":"completed","durationMs":12345,"steps":[1,2]}"#),
        1 => reword(row, 1, r#""response":[{"bundle":{"price":9.99},"chosen":true},[]]"#),
        2 => reword(row, 2, r#""response":"no question text""#),
        3 => reword(row, 3, r#""response":3"#),
        4 => extend(row, r#""score":1.5,"unknownField":{"deep":[{"a":null}]},"tags":["x"]"#),
        5 => {
            row.text = r#""response":9007199254740993,"bigNumber":123456789012345678901234567890,"tiny":1e-400"#.into()
        }
        6 => row.text = r#""response":"a NUL \u0000 and a lone surrogate \ud83d here""#.into(),
        7 => row.style = TimeStyle::Offset,
        8 => row.style = TimeStyle::Seconds,
        9 if *long_texts > 0 && random.percent(10) => {
            *long_texts -= 1;
            row.text = format!(r#""response":{}"#, json_of(&"long text ".repeat(LONG_TEXT_BYTES / 10))).into();
        }
        9 => row.text = r#""response":"""#.into(),
        10 => row.text = r#""response":"9""#.into(),
        11 => row.text = r#""response":"Price","selectedIndexes":null"#.into(),
        12 => row.text = r#""response":{"unexpected":["object",1,true,null]},"selectedIndexes":"0""#.into(),
        13 => row.text = r#""response":-1"#.into(),
        14 => row.text = r#""selectedIndexes":[2,0,2]"#.into(),
        _ => row.text = r#""response":4.5,"response":5"#.into(),
    }
}

fn extend(row: &mut Row, members: &str) {
    row.text = format!("{},{members}", row.text).into_boxed_str();
}
