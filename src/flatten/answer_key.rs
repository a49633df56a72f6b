//! What an answer's rows in every table have in common.

use std::borrow::Cow;

use super::table_builder::TableBuilder;

/// The columns that the children of a response share with it, and the record that they come from.
#[derive(Clone, Debug)]
pub(super) struct AnswerKey<'a> {
    pub response_group_uid: Cow<'a, str>,
    pub question_id: i64,
    pub survey_id: Option<i64>,
    /// Microseconds.
    pub created_at: i64,
    /// Place among the records of the page, from 0.
    pub record: i64,
}

impl AnswerKey<'_> {
    /// The first cells of a row of a child table.
    pub(super) fn begin_row(&self, child: &mut TableBuilder) {
        child.text("response_group_uid", Some(&self.response_group_uid));
        child.bigint("question_id", Some(self.question_id));
        child.bigint("survey_id", self.survey_id);
        child.timestamp("created_at", Some(self.created_at));
    }
}
