//! Reads the figures of the period before, from the view `figures`, and the scales of LIKERT questions, from the view
//! `likert_top_two`. A question without a defined scale has that of its answers, which may differ between periods.

use super::{
    question_answers::{BeforeFigure, ByQuestion},
    rows::{Row, key, query, shortened},
    settings::Shown,
};
use crate::load::{LoadError, Reader};

/// Reads the figures. Without a period before, there are none.
pub(super) fn read(reader: &mut Reader, of: &str, shown: &Shown<'_>, found: &mut ByQuestion) -> Result<(), LoadError> {
    let Some(before) = shown.before else { return Ok(()) };
    let sql = format!(
        "SELECT survey_id, question_id, figure, {} AS label, selected_index::BIGINT AS selected_index, answers, value
         FROM figures WHERE {of}",
        shortened("label")
    );
    let make = |row: Row<'_>| {
        let figure = BeforeFigure {
            figure: row.text("figure").unwrap_or_default(),
            label: row.text("label"),
            index: row.integer("selected_index"),
            answers: row.count("answers"),
            value: row.number("value").unwrap_or(0.0),
        };
        (key(row), figure)
    };
    let scales = format!(
        "SELECT survey_id, question_id, scale_min::BIGINT AS scale_min, scale_max::BIGINT AS scale_max
         FROM likert_top_two WHERE {of}"
    );
    let scale = |row: Row<'_>| (key(row), (row.count("scale_min"), row.count("scale_max")));
    reader.narrow(before);
    let (figures, scales) = (query(reader, &sql, make), query(reader, &scales, scale));
    reader.narrow(shown.report.answers);
    for (key, figure) in figures? {
        found.entry(key).or_default().before.push(figure);
    }
    for (key, scale) in scales? {
        found.entry(key).or_default().scale_before = Some(scale);
    }
    Ok(())
}
