//! Reads the figures of each question by segment, from the macros `nps_by_segment`, `likert_by_segment` and
//! `choices_by_segment`.

use super::{
    format::{decimal, percent},
    question_answers::{ByQuestion, SegmentRow, fill_list, first_rows},
    rows::{Row, query, shortened},
};
use crate::load::{LoadError, Reader};

/// The kinds of segments with a name, the thing of an answer that has the name, and the tables of the names.
const NAMED: [(&str, &str, &str); 3] = [
    ("attribute", "the attribute", "visitor_snapshot_attributes"),
    ("user", "a user with the attribute", "current_user_attributes"),
    ("metadata", "the metadata", "response_custom_metadata"),
];

/// Reads the segments of each question. `segment` says how to divide the answers.
pub(super) fn read(reader: &mut Reader, of: &str, segment: &str, found: &mut ByQuestion) -> Result<(), LoadError> {
    let segment = segment.replace('\'', "''");
    let call = |name: &str| format!("{name}('{segment}')");
    let name = format!("{} AS segment", shortened("segment_value"));
    let order = "view.answers DESC, view.segment_value NULLS LAST";
    let value = |row: Row<'_>| SegmentRow {
        segment: row.text("segment"),
        option: None,
        answers: row.count("answers"),
        figure: None,
    };

    let view = format!("(SELECT *, responses AS answers FROM {})", call("nps_by_segment"));
    let sql = first_rows(&view, &format!("{name}, answers, nps, standard_error"), of, order);
    let make = |row: Row<'_>| {
        let error = row.number("standard_error").map_or_else(String::new, |error| format!(" ± {}", decimal(error)));
        SegmentRow { figure: row.number("nps").map(|nps| decimal(nps) + &error), ..value(row) }
    };
    fill_list(reader, &sql, make, |answers| &mut answers.segments, found)?;

    let sql = first_rows(&call("likert_by_segment"), &format!("{name}, answers, mean, top_two_share"), of, order);
    let make = |row: Row<'_>| {
        let share =
            row.number("top_two_share").map_or_else(String::new, |share| format!(", top two {}", percent(share)));
        SegmentRow { figure: row.number("mean").map(|mean| format!("mean {mean:.2}{share}")), ..value(row) }
    };
    fill_list(reader, &sql, make, |answers| &mut answers.segments, found)?;

    let view = format!("(SELECT *, answered AS answers FROM {})", call("choices_by_segment"));
    let option = shortened("coalesce(label, 'option with index ' || selected_index, 'no wording')");
    let columns = format!("{name}, answers, {option} AS option, share");
    let sql = first_rows(&view, &columns, of, &format!("{order}, view.chosen DESC, view.label, view.selected_index"));
    let make = |row: Row<'_>| SegmentRow {
        option: row.text("option"),
        figure: row.number("share").map(percent),
        ..value(row)
    };
    fill_list(reader, &sql, make, |answers| &mut answers.segments, found)
}

/// Returns why the segments of all answers are unknown, and what to do. `None` if an answer has a known segment, if
/// there are no answers, or if the warehouse cannot tell.
pub fn unknown_segments(reader: &mut Reader, segment: &str) -> Option<String> {
    let call = format!("answer_segments('{}')", segment.replace('\'', "''"));
    let mut first_text = |sql: &str| query(reader, sql, |row| row.text("found")).ok()?.pop().flatten();
    match first_text(&format!("SELECT not_requested AS found FROM {call} LIMIT 1")).as_deref() {
        Some("users") => Some(
            "no user was pulled, so the segments are unknown: enable [streams.users], then run studysync users pull"
                .to_owned(),
        ),
        Some(flag) => Some(format!(
            "no run requested {flag}, so the segments are unknown: add it to flags under [streams.responses], then run \
             studysync backfill --from DATE"
        )),
        None => {
            let (kind, name) = segment.split_once(':')?;
            let (_, thing, names) = NAMED.iter().find(|(of, ..)| *of == kind)?;
            first_text(&format!(
                "SELECT 'none' AS found WHERE EXISTS (FROM {call}) AND NOT EXISTS (FROM {call} WHERE segment_value IS NOT NULL)"
            ))?;
            Some(format!(
                "no answer has {thing} '{name}': studysync query \"SELECT DISTINCT name FROM {names}\" lists the names"
            ))
        }
    }
}
