//! The stream of themes: the table `themes`.

use arrow::error::ArrowError;

use super::{
    drift::DriftLog,
    enumerations::report_new_type,
    fields::{Fields, KeyError, wire_fields},
    table_builder::{ColumnSet, RecordTables, TableBuilder},
};
use crate::{
    json::Entry,
    model::{DriftRules, FlatPage, Stream},
};

wire_fields! {
    /// The fields of a theme.
    ThemeField {
        Id = "id",
        CreatedAt = "createdAt",
        UpdatedAt = "updatedAt",
        QuestionId = "questionId",
        QuestionText = "questionText",
        QuestionType = "questionType",
        Response = "response",
        ResponseGroupUid = "responseGroupUid",
        SurveyId = "surveyId",
        Theme = "theme",
        ThemeDescription = "themeDescription",
        VisitorId = "visitorId",
    }
}

use ThemeField as Wire;

/// The table `themes` under construction.
#[derive(Debug)]
pub(super) struct ThemeTables<'a> {
    fields: Fields<'a, ThemeField>,
    themes: TableBuilder,
    drift: DriftLog,
}

impl<'a> RecordTables<'a> for ThemeTables<'a> {
    fn new(records: usize, rules: DriftRules, columns: ColumnSet) -> Result<Self, ArrowError> {
        let drift = DriftLog::new(Stream::Themes.name(), rules);
        Ok(Self { fields: Fields::new(rules), themes: TableBuilder::new("themes", records, columns)?, drift })
    }

    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, KeyError> {
        self.fields.read(entries);
        self.drift.drain_fields(record, "", &mut self.fields);
        let (fields, row) = (&mut self.fields, &mut self.themes);
        let id = fields.key_bigint(Wire::Id)?;
        let response_group_uid = fields.key_text(Wire::ResponseGroupUid)?;
        let question_id = fields.key_bigint(Wire::QuestionId)?;
        let created_at = fields.key_timestamp(Wire::CreatedAt)?;
        row.bigint("id", Some(id));
        row.text("response_group_uid", Some(&response_group_uid));
        row.bigint("question_id", Some(question_id));
        row.bigint("survey_id", fields.bigint(Wire::SurveyId));
        row.bigint("visitor_id", fields.bigint(Wire::VisitorId));
        row.timestamp("created_at", Some(created_at));
        row.timestamp("updated_at", fields.timestamp(Wire::UpdatedAt));
        row.text("question_text", fields.text(Wire::QuestionText).as_deref());
        let question_type = fields.text(Wire::QuestionType);
        row.text("question_type", question_type.as_deref());
        report_new_type(&mut self.drift, record, "questionType", question_type.as_deref());
        row.text("response", fields.text(Wire::Response).as_deref());
        row.text("theme", fields.text(Wire::Theme).as_deref());
        row.text("theme_description", fields.text(Wire::ThemeDescription).as_deref());
        row.json("extra", fields.extra.write());
        row.row_hash();
        let key_hash = row.end_row(record);
        self.drift.drain_fields(record, "", &mut self.fields);
        Ok(key_hash)
    }

    fn drift(&mut self) -> &mut DriftLog {
        &mut self.drift
    }

    fn finish_into(self, page: &mut FlatPage) -> Result<DriftLog, ArrowError> {
        self.themes.finish_into(page)?;
        Ok(self.drift)
    }
}
