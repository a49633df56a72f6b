//! Reads the answers to open questions: counts, themes, and the newest answers in people's own words.

use super::{
    limits::VERBATIM_CHARS_MAX,
    question_answers::{ByQuestion, OpenAnswers, Verbatim, fill_list, first_rows},
    rows::{Row, day_number, key, query, shortened},
};
use crate::load::{LoadError, Reader};

/// Reads the answers to the open questions, and the `verbatims` newest answers to each.
pub(super) fn read(reader: &mut Reader, of: &str, verbatims: u32, found: &mut ByQuestion) -> Result<(), LoadError> {
    let sql = format!(
        "SELECT survey_id, question_id, count(*) FILTER (NOT is_empty) AS texts, count(*) FILTER (is_empty) AS empty,
             count(*) FILTER (has_link) AS with_link
         FROM open_answers WHERE {of} GROUP BY survey_id, question_id"
    );
    let make = |row: Row<'_>| (key(row), [row.count("texts"), row.count("empty"), row.count("with_link")]);
    for (key, [texts, empty, with_link]) in query(reader, &sql, make)? {
        found.entry(key).or_default().open = Some(OpenAnswers { texts, empty, with_link, ..OpenAnswers::default() });
    }
    let themes = format!(
        "(SELECT survey_id, question_id, theme, count(DISTINCT response_group_uid) AS answers FROM current_themes
          WHERE {of} GROUP BY survey_id, question_id, theme)"
    );
    let columns = format!("{} AS theme, answers", shortened("theme"));
    let sql = first_rows(&themes, &columns, "true", "view.answers DESC, view.theme");
    let make = |row: Row<'_>| (row.text("theme"), row.count("answers"));
    fill_list(reader, &sql, make, |answers| &mut answers.open.get_or_insert_default().themes, found)?;
    if verbatims > 0 {
        let sql = format!(
            "SELECT survey_id, question_id, {} AS day, left(answer, {}) AS answer
             FROM open_answers AS view WHERE NOT is_empty AND {of}
             QUALIFY row_number() OVER (PARTITION BY survey_id, question_id
                 ORDER BY created_at DESC, response_group_uid, source) <= {verbatims}
             ORDER BY survey_id, question_id, created_at DESC, response_group_uid, source",
            day_number("created_at::DATE"),
            VERBATIM_CHARS_MAX + 1,
        );
        let make = |row: Row<'_>| {
            (key(row), Verbatim { day: row.count("day"), answer: row.text("answer").unwrap_or_default() })
        };
        for (key, verbatim) in query(reader, &sql, make)? {
            found.entry(key).or_default().open.get_or_insert_default().verbatims.push(verbatim);
        }
    }
    Ok(())
}
