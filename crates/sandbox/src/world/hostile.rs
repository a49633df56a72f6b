//! Hostile rows: unusual records that the contract does not show, but which a service may send. By default no hostile
//! rows are generated.

use super::{
    super::{
        json_text::{TimeStyle, quoted},
        random::Random,
    },
    ResponseRow,
    kinds::QuestionText,
};

/// Length of the long text, in bytes.
const LONG_TEXT_BYTES: usize = 1 << 20;
/// Maximum long texts of a world, so that they do not fill the memory.
pub(super) const LONG_TEXTS_MAX: u32 = 64;
/// Number of hostile wordings. No survey has these questions, which have unknown types, no text, or an id above 2^53.
const WORDINGS: usize = 4;

/// Appends the hostile wordings. [`make_hostile`] expects them to be the last wordings.
pub(super) fn add_wordings(wordings: &mut Vec<String>) {
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
pub(super) fn make_hostile(row: &mut ResponseRow, wordings: usize, random: &mut Random, long_texts: &mut u32) {
    let first = wordings.saturating_sub(WORDINGS);
    let reword = |row: &mut ResponseRow, nth: usize, answer: &str| {
        row.wording = (first + nth) as u32;
        row.answer = answer.into();
    };
    match random.below(16) {
        0 => reword(row, 0, r#""response":{"taskStatus":"completed","durationMs":12345,"steps":[1,2]}"#),
        1 => reword(row, 1, r#""response":[{"bundle":{"price":9.99},"chosen":true},[]]"#),
        2 => reword(row, 2, r#""response":"no question text""#),
        3 => reword(row, 3, r#""response":3"#),
        4 => extend(row, r#""score":1.5,"unknownField":{"deep":[{"a":null}]},"tags":["x"]"#),
        5 => {
            row.answer =
                r#""response":9007199254740993,"bigNumber":123456789012345678901234567890,"tiny":1e-400"#.into()
        }
        6 => row.answer = r#""response":"a NUL \u0000 and a lone surrogate \ud83d here""#.into(),
        7 => row.style = TimeStyle::Offset,
        8 => row.style = TimeStyle::Seconds,
        9 if *long_texts > 0 && random.percent(10) => {
            *long_texts -= 1;
            row.answer = format!(r#""response":{}"#, quoted(&"long text ".repeat(LONG_TEXT_BYTES / 10))).into();
        }
        9 => row.answer = r#""response":"""#.into(),
        10 => row.answer = r#""response":"9""#.into(),
        11 => row.answer = r#""response":"Price","selectedIndexes":null"#.into(),
        12 => row.answer = r#""response":{"unexpected":["object",1,true,null]},"selectedIndexes":"0""#.into(),
        13 => row.answer = r#""response":-1"#.into(),
        14 => row.answer = r#""selectedIndexes":[2,0,2]"#.into(),
        _ => row.answer = r#""response":4.5,"response":5"#.into(),
    }
}

/// Adds members to the answer of a row.
fn extend(row: &mut ResponseRow, members: &str) {
    row.answer = format!("{},{members}", row.answer).into_boxed_str();
}
