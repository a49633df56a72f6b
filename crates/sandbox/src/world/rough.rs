//! Data as other services have it: nothing here breaks the contract,
//! but all of it is rare in data that is generated evenly.

use super::{
    super::{json_text::quoted, random::Random, settings::Rough},
    ResponseRow, World, answers,
    words::free_text,
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// How far apart the answers of a slow session are at most.
const SLOW_MS_MAX: i64 = 30 * HOUR_MS;
/// The question members of a record that has no place in a table: it has no id. Tools that read by type take it.
pub(super) const NO_QUESTION: &str = r#""questionId":null,"questionText":"Imported","questionType":"TEXTURLPROMPT""#;
/// Texts that are added to free answers, at most, so that a record has about 500 bytes.
const MORE_TEXTS: i64 = 5;

/// How far apart the answers of a session are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Seconds.
    Usual,
    /// All in one millisecond, as an import writes them.
    AtOnce,
    /// Hours, over the edges of windows.
    Slow,
}

impl Pace {
    /// From one answer to the next.
    pub(super) fn step_ms(self, usual_ms: i64, random: &mut Random) -> i64 {
        match self {
            Pace::Usual => usual_ms,
            Pace::AtOnce => 0,
            Pace::Slow => random.between(usual_ms, SLOW_MS_MAX),
        }
    }
}

impl Rough {
    /// When a session that would begin at a moment begins, and its pace.
    pub(super) fn session(&self, begun_ms: i64, from_ms: i64, random: &mut Random) -> (i64, Pace) {
        let (hour_ms, day_ms) = (begun_ms - begun_ms.rem_euclid(HOUR_MS), begun_ms - begun_ms.rem_euclid(DAY_MS));
        if random.chance(self.edge_share) {
            let (at_ms, pace) = match random.below(8) {
                // What was imported with a date alone.
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
    /// Makes some rows carry the key of an earlier one, with another answer:
    /// in the same millisecond, or whenever they were given.
    pub(super) fn repeat_keys(&self, rows: &mut [ResponseRow], rough: &Rough, random: &mut Random) {
        for at in 1..rows.len() {
            if !random.chance(rough.twice_share) {
                continue;
            }
            let of = random.index(at);
            let Some(first) = rows.get(of).cloned() else { continue };
            let Some(question) = self.asked_in(&first) else { continue };
            let answer = answers::another(question, &first.answer, first.created_ms, random).into_boxed_str();
            if let Some(row) = rows.get_mut(at) {
                let own_ms = (row.created_ms, row.updated_ms);
                *row = ResponseRow { answer, ..first };
                if random.percent(50) {
                    (row.created_ms, row.updated_ms) = own_ms;
                }
            }
        }
    }
}

/// Makes a free answer with a text longer.
pub(super) fn lengthen(answer: &mut String, random: &mut Random) {
    // The text ends with the answer, and is not empty.
    if answer.starts_with(r#""response":""#) && !answer.ends_with(r#":"""#) && answer.pop().is_some() {
        for _ in 0..random.between(1, MORE_TEXTS) {
            let text = quoted(&free_text(random));
            answer.push(' ');
            answer.push_str(text.trim_matches('"'));
        }
        answer.push('"');
    }
}
