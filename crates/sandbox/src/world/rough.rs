//! Rough data: irregularities that the contract allows and real services have, but evenly generated data has not.

use super::{
    super::{json_text::quoted, random::Random, settings::Rough},
    ResponseRow, World, answers,
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
    pub(super) fn repeat_keys(&self, rows: &mut [ResponseRow], rough: &Rough, random: &mut Random) {
        for copy_at in 1..rows.len() {
            if !random.chance(rough.twice_share) {
                continue;
            }
            let original_at = random.index(copy_at);
            let Some(original) = rows.get(original_at).cloned() else { continue };
            let Some(question) = self.editable_question(&original) else { continue };
            let answer = answers::another(question, &original.answer, original.created_ms, random).into_boxed_str();
            if let Some(row) = rows.get_mut(copy_at) {
                let times_of_replaced_row = (row.created_ms, row.updated_ms);
                *row = ResponseRow { answer, ..original };
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
            let text = quoted(&free_text(random));
            answer.push(' ');
            answer.push_str(text.trim_matches('"'));
        }
        answer.push('"');
    }
}
