//! Reads the figures of each question by segment, from the macros `nps_by_segment`, `likert_by_segment` and
//! `choices_by_segment`.

use super::{
    format::{decimal, percent},
    question_answers::{ByQuestion, SegmentRow, fill_list, first_rows},
    rows::{Row, shortened},
};
use crate::load::{LoadError, Reader};

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
