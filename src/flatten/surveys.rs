//! The stream of surveys: `surveys`, their questions with the options, and their constraints.
//!
//! The row hash covers the exact texts of `questions` and `constraints` too, as their tables are replaced with the survey. A
//! list of a wrong shape, or with an item that is no object, goes to the survey's `extra` as a whole, beside the rows of the items
//! that are.

use arrow::error::ArrowError;

use super::{
    RecordTables,
    content_hash::column_mark,
    fields::{Fields, Unplaceable, wire_fields},
    json::{self, Entry, Shape},
    questions::Questions,
    table_builder::TableBuilder,
};
use crate::model::TableBatch;

wire_fields! {
    /// The fields of a survey.
    SurveyField {
        Id = "id",
        Name = "name",
        Platform = "platform",
        Type = "type",
        Status = "status",
        CreatedAt = "createdAt",
        UpdatedAt = "updatedAt",
        LaunchedAt = "launchedAt",
        CompletedAt = "completedAt",
        TotalResponseLimit = "totalResponseLimit",
        Constraints = "constraints",
        Questions = "questions",
    }
}

wire_fields! {
    /// The fields of a targeting rule.
    ConstraintField {
        Type = "type",
        ComparisonType = "comparisonType",
        Event = "event",
        Value = "value",
    }
}

use SurveyField as Wire;

#[derive(Debug)]
pub(super) struct SurveyTables<'a> {
    fields: Fields<'a, SurveyField>,
    constraint: Fields<'a, ConstraintField>,
    surveys: TableBuilder,
    questions: Questions<'a>,
    constraints: TableBuilder,
    entries: Vec<Entry<'a>>,
}

impl<'a> RecordTables<'a> for SurveyTables<'a> {
    fn new(records: usize) -> Result<Self, ArrowError> {
        Ok(Self {
            fields: Fields::default(),
            constraint: Fields::default(),
            surveys: TableBuilder::new("surveys", records)?,
            questions: Questions::new()?,
            constraints: TableBuilder::new("survey_constraints", 0)?,
            entries: Vec::new(),
        })
    }

    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, Unplaceable> {
        self.fields.read(entries);
        let (fields, row) = (&mut self.fields, &mut self.surveys);
        let id = fields.key_bigint(Wire::Id)?;
        row.bigint("id", Some(id));
        row.text("name", fields.text(Wire::Name).as_deref());
        row.text("platform", fields.text(Wire::Platform).as_deref());
        row.text("type", fields.text(Wire::Type).as_deref());
        row.text("status", fields.text(Wire::Status).as_deref());
        row.timestamp("created_at", fields.timestamp(Wire::CreatedAt));
        row.timestamp("updated_at", fields.timestamp(Wire::UpdatedAt));
        row.timestamp("launched_at", fields.timestamp(Wire::LaunchedAt));
        row.timestamp("completed_at", fields.timestamp(Wire::CompletedAt));
        row.bigint("total_response_limit", fields.bigint(Wire::TotalResponseLimit));
        self.append_list(Wire::Questions, |tables, at, entries| tables.questions.append(id, record, at, entries));
        self.append_list(Wire::Constraints, |tables, at, entries| tables.append_constraint(id, record, at, entries));
        let (fields, row) = (&mut self.fields, &mut self.surveys);
        row.text("extra", fields.extra.write());
        for field in [Wire::Questions, Wire::Constraints] {
            if let Some(raw) = fields.json(field) {
                row.content.text(column_mark(super::fields::WireField::name(field)), raw);
            }
        }
        row.row_hash();
        Ok(row.end_row(record))
    }

    fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        self.surveys.finish_into(batches)?;
        self.questions.finish_into(batches)?;
        self.constraints.finish_into(batches)
    }
}

impl<'a> SurveyTables<'a> {
    /// Hands the items of a list to `append`, with their places from 1, and keeps the whole list where some part found no row.
    fn append_list(&mut self, field: SurveyField, append: impl Fn(&mut Self, i64, &[Entry<'a>])) {
        let Some(raw) = self.fields.json(field) else {
            return;
        };
        let items = (json::shape(raw) == Shape::List).then(|| json::read_items(raw)).flatten();
        let mut is_whole = items.is_some();
        for (at, item) in items.unwrap_or_default().into_iter().enumerate() {
            let mut entries = std::mem::take(&mut self.entries);
            entries.clear();
            if json::shape(item) == Shape::Object && json::read_entries(item, &mut entries).is_some() {
                append(self, at as i64 + 1, &entries);
            } else {
                is_whole = false;
            }
            self.entries = entries;
        }
        if !is_whole {
            self.fields.keep(field);
        }
    }

    fn append_constraint(&mut self, survey_id: i64, record: i64, ordinal: i64, entries: &[Entry<'a>]) {
        self.constraint.read(entries);
        let (fields, row) = (&mut self.constraint, &mut self.constraints);
        row.bigint("survey_id", Some(survey_id));
        row.bigint("constraint_ordinal", Some(ordinal));
        row.text("constraint_type", fields.text(ConstraintField::Type).as_deref());
        row.text("comparison_type", fields.text(ConstraintField::ComparisonType).as_deref());
        row.text("event", fields.text(ConstraintField::Event).as_deref());
        row.double("value", fields.double(ConstraintField::Value));
        row.text("extra", fields.extra.write());
        row.end_row(record);
    }
}
