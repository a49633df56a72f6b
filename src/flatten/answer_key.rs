//! The columns that the rows of one answer share in all tables.

use std::borrow::Cow;

use super::table_builder::TableBuilder;

/// The columns that a response shares with the rows of its child tables, and the index of its record.
#[derive(Clone, Debug)]
pub(super) struct AnswerKey<'a> {
    pub response_group_uid: Cow<'a, str>,
    pub question_id: i64,
    pub survey_id: Option<i64>,
    /// Creation time of the response, epoch microseconds.
    pub created_at: i64,
    /// Index of the record in the page, from 0.
    pub record: i64,
}

impl AnswerKey<'_> {
    /// Begins a row of a child table with the cells that the row shares with its response.
    pub(super) fn begin_row(&self, child: &mut TableBuilder) {
        child.text("response_group_uid", Some(&self.response_group_uid));
        child.bigint("question_id", Some(self.question_id));
        child.bigint("survey_id", self.survey_id);
        child.timestamp("created_at", Some(self.created_at));
    }
}
