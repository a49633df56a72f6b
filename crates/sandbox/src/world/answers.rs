//! Generates answers, as the members `response` and `selectedIndexes` of a response record.
//!
//! A skipped question has a null answer, an empty answer or no row, as at the service. This module generates null and
//! empty answers; `World::answer_survey` leaves out rows.

use super::{
    super::{
        json_text::{Time, json_of},
        random::{Random, uuid_of},
    },
    surveys::{Kind, Question},
    words,
};

/// The weights of the NPS scores from 0 to 10.
const NPS_WEIGHTS: [u32; 11] = [3, 2, 2, 2, 3, 6, 6, 12, 20, 20, 24];
/// Rounds of a MAXDIFF answer.
const MAXDIFF_ROUNDS: usize = 3;
/// Items of each round.
const MAXDIFF_ITEMS: usize = 4;

/// Draws an answer that a visitor gives to a question at `at_ms`. Returns the members `response` and `selectedIndexes`
/// as JSON text, without braces.
pub(crate) fn draw(question: &Question, at_ms: i64, random: &mut Random) -> String {
    let null = || r#""response":null"#.to_owned();
    match question.kind {
        Kind::Nps if random.percent(4) => null(),
        Kind::Nps => format!(r#""response":{}"#, random.weighted(&NPS_WEIGHTS)),
        Kind::Likert if random.percent(4) => null(),
        Kind::Likert => format!(r#""response":{}"#, random.between(1, question.scale_max)),
        Kind::Open => match random.below(100) {
            0..3 => null(),
            3..8 => r#""response":"""#.to_owned(),
            _ => format!(r#""response":{}"#, json_of(&words::free_text(random))),
        },
        Kind::MultipleChoice if random.percent(3) => null(),
        Kind::MultipleChoice => {
            let index = random.index(question.options.len());
            let option = question.options.get(index).copied().unwrap_or_default();
            format!(r#""response":{},"selectedIndexes":{index}"#, json_of(option))
        }
        Kind::MultipleSelect => multiple_select(question, random),
        Kind::Matrix => matrix(question, random),
        Kind::RankOrder => rank_order(question, random),
        Kind::MaxDiff => max_diff(question, random),
        Kind::VideoVoice if random.percent(10) => null(),
        Kind::VideoVoice => video(at_ms, random),
        Kind::ConsentLegal => format!(r#""response":{{"submitted":{}}}"#, random.percent(96)),
        Kind::TextUrlPrompt => null(),
    }
}

/// Draws an answer: null, an empty list, or the chosen options in one of the service's three spellings. The spellings
/// are a JSON list inside a string, a list, and the text of a single option.
fn multiple_select(question: &Question, random: &mut Random) -> String {
    match random.below(100) {
        0..3 => return r#""response":null"#.to_owned(),
        3..7 => return r#""response":[],"selectedIndexes":[]"#.to_owned(),
        _ => {}
    }
    let chosen: Vec<(usize, &str)> =
        (question.options.iter().copied().enumerate()).filter(|_| random.percent(40)).collect();
    let list = format!("[{}]", joined(chosen.iter().map(|(_, option)| json_of(option))));
    let indexes = joined(chosen.iter().map(|(at, _)| at.to_string()));
    let response = match (random.below(10), chosen.as_slice()) {
        (0..2, [(_, only)]) => json_of(only),
        (0..4, _) => list,
        _ => json_of(&list),
    };
    format!(r#""response":{response},"selectedIndexes":[{indexes}]"#)
}

/// Draws a column, or null, for each row of the matrix.
fn matrix(question: &Question, random: &mut Random) -> String {
    let cells = question.options.iter().map(|row| {
        let cell = match question.columns {
            columns if columns.is_empty() || random.percent(5) => "null".to_owned(),
            columns => json_of(random.pick::<&str>(columns)),
        };
        format!("{}:{cell}", json_of(row))
    });
    format!(r#""response":{{{}}}"#, joined(cells))
}

fn rank_order(question: &Question, random: &mut Random) -> String {
    let mut ranks: Vec<usize> = (1..=question.options.len()).collect();
    random.shuffle(&mut ranks);
    let pairs = question.options.iter().zip(ranks).map(|(option, rank)| format!("{}:{rank}", json_of(option)));
    format!(r#""response":{{{}}}"#, joined(pairs))
}

/// Draws some rounds. In each round one item is selected as least and one as most important, or no item at all.
fn max_diff(question: &Question, random: &mut Random) -> String {
    let rounds = (0..MAXDIFF_ROUNDS).map(|_| {
        let mut items: Vec<(usize, &str)> = question.options.iter().copied().enumerate().collect();
        random.shuffle(&mut items);
        items.truncate(MAXDIFF_ITEMS);
        let left = random.index(items.len());
        let right = (left + 1 + random.index(items.len().saturating_sub(1))) % items.len().max(1);
        let is_skipped = random.percent(4);
        let items = items.iter().enumerate().map(|(at, (id, option))| {
            let selected = match at {
                _ if is_skipped => "null",
                at if at == left => r#""left""#,
                at if at == right => r#""right""#,
                _ => "null",
            };
            format!(r#"{{"id":{id},"option":{},"selected":{selected}}}"#, json_of(option))
        });
        format!("[{}]", joined(items))
    });
    format!(r#""response":[{}]"#, joined(rounds))
}

/// Draws an answer that differs from `current`. For a recording, only the transcript changes. This function never
/// returns for a question with only one possible answer.
pub(crate) fn another(question: &Question, current: &str, at_ms: i64, random: &mut Random) -> String {
    loop {
        let other = refreshed_transcript(current, random).unwrap_or_else(|| draw(question, at_ms, random));
        if other != current {
            return other;
        }
    }
}

/// Returns the answer with a new transcript; `None` if the answer is not a recording.
fn refreshed_transcript(answer: &str, random: &mut Random) -> Option<String> {
    let (head, rest) = answer.split_once(r#""transcription":"#)?;
    let (_, tail) = rest.rsplit_once(r#","updatedAt":"#)?;
    Some(format!(r#"{head}"transcription":{},"updatedAt":{tail}"#, json_of(&words::free_text(random))))
}

/// Draws a recording of video or audio, with a transcript.
fn video(at_ms: i64, random: &mut Random) -> String {
    let upload = uuid::Uuid::from_u128(uuid_of(random.next(), 1));
    let media = if random.percent(60) { "video" } else { "audio" };
    let updated_at = Time::from(at_ms + random.between(1000, 90_000));
    format!(
        r#""response":{{"downloadUrl":"https://media.example.com/{upload}/download","duration":{}.{},"mediaType":"{media}","transcription":{},"updatedAt":{},"uploadId":"{upload}","videoUrl":"https://media.example.com/{upload}.m3u8"}}"#,
        random.between(2, 180),
        random.below(10),
        json_of(&words::free_text(random)),
        json_of(&updated_at),
    )
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}
