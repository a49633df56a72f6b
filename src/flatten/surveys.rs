//! The stream of surveys: `surveys`, their questions with the options, and their constraints.
//!
//! The row hash covers the exact texts of `questions` and `constraints` too, as their tables are replaced with the
//! survey. A list of a wrong shape, or with an item that is no object, goes to the survey's `extra` as a whole, beside
//! the rows of the items that are. What the drift rules discard of a list is not hashed either: it changes nothing that
//! is stored.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{
    RecordTables,
    drift::{DriftLog, without_discarded},
    enumeration::Enumeration,
    fields::{Fields, Unplaceable, WireField as _, wire_fields},
    questions::Questions,
    table_builder::TableBuilder,
};
use crate::{
    json::{self, Entry, Shape},
    model::{DriftMode, DriftRules, Stream, TableBatch, column_name_hash},
};

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
    /// Of each list of the survey, what is stored of it if that is not all.
    cut: Vec<(SurveyField, String)>,
    words: Words,
    drift: DriftLog,
}

/// The columns whose values the contract lists.
#[derive(Debug)]
struct Words {
    platform: Enumeration,
    survey_type: Enumeration,
    status: Enumeration,
    constraint_type: Enumeration,
    comparison_type: Enumeration,
}

impl Words {
    fn new() -> Self {
        Self {
            platform: Enumeration::of("surveys", "platform", "platform"),
            survey_type: Enumeration::of("surveys", "type", "type"),
            status: Enumeration::of("surveys", "status", "status"),
            constraint_type: Enumeration::of("survey_constraints", "constraint_type", "constraints[].type"),
            comparison_type: Enumeration::of("survey_constraints", "comparison_type", "constraints[].comparisonType"),
        }
    }
}

impl<'a> RecordTables<'a> for SurveyTables<'a> {
    fn new(records: usize, rules: DriftRules) -> Result<Self, ArrowError> {
        Ok(Self {
            fields: Fields::new(rules),
            constraint: Fields::new(rules),
            surveys: TableBuilder::new("surveys", records)?,
            questions: Questions::new(rules)?,
            constraints: TableBuilder::new("survey_constraints", 0)?,
            entries: Vec::new(),
            cut: Vec::new(),
            words: Words::new(),
            drift: DriftLog::new(Stream::Surveys.name(), rules),
        })
    }

    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, Unplaceable> {
        self.fields.read(entries);
        self.drift.take(record, "", &mut self.fields);
        self.cut.clear();
        let (fields, row) = (&mut self.fields, &mut self.surveys);
        let id = fields.key_bigint(Wire::Id)?;
        row.bigint("id", Some(id));
        row.text("name", fields.text(Wire::Name).as_deref());
        for (column, field, words) in [
            ("platform", Wire::Platform, &self.words.platform),
            ("type", Wire::Type, &self.words.survey_type),
            ("status", Wire::Status, &self.words.status),
        ] {
            let word = fields.text(field);
            words.note_new(word.as_deref(), record, &mut self.drift);
            row.text(column, word.as_deref());
        }
        row.timestamp("created_at", fields.timestamp(Wire::CreatedAt));
        row.timestamp("updated_at", fields.timestamp(Wire::UpdatedAt));
        row.timestamp("launched_at", fields.timestamp(Wire::LaunchedAt));
        row.timestamp("completed_at", fields.timestamp(Wire::CompletedAt));
        row.bigint("total_response_limit", fields.bigint(Wire::TotalResponseLimit));
        self.append_list(Wire::Questions, |tables, at, entries| {
            tables.questions.append((id, record), at, entries, &mut tables.drift)
        });
        self.append_list(Wire::Constraints, |tables, at, entries| tables.append_constraint(id, record, at, entries));
        let (fields, row) = (&mut self.fields, &mut self.surveys);
        row.text("extra", fields.extra.write());
        for field in [Wire::Questions, Wire::Constraints] {
            if let Some(raw) = fields.json(field) {
                let cut = self.cut.iter().find(|(cut, _)| cut.slot() == field.slot());
                row.content.text(column_name_hash(field.name()), cut.map_or(raw, |(_, stored)| stored));
            }
        }
        row.row_hash();
        self.drift.take(record, "", &mut self.fields);
        Ok(self.surveys.end_row(record))
    }

    fn drift(&mut self) -> &mut DriftLog {
        &mut self.drift
    }

    fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<DriftLog, ArrowError> {
        self.surveys.finish_into(batches)?;
        self.questions.finish_into(batches)?;
        self.constraints.finish_into(batches)?;
        Ok(self.drift)
    }
}

impl<'a> SurveyTables<'a> {
    /// Hands the items of a list to `append`, with their places from 1, and keeps the whole list where some part found
    /// no row. `append` returns what is stored of an item if that is not all of it.
    fn append_list(&mut self, field: SurveyField, append: impl Fn(&mut Self, i64, &[Entry<'a>]) -> Option<String>) {
        let Some(raw) = self.fields.json(field) else {
            return;
        };
        let items = (json::shape(raw) == Shape::List).then(|| json::read_items(raw)).flatten();
        let mut is_whole = items.is_some();
        let (mut stored, mut is_cut) = (Vec::new(), false);
        for (at, item) in items.unwrap_or_default().into_iter().enumerate() {
            let mut entries = std::mem::take(&mut self.entries);
            entries.clear();
            if json::shape(item) == Shape::Object && json::read_entries(item, &mut entries).is_some() {
                let part = append(self, at as i64 + 1, &entries);
                is_cut |= part.is_some();
                stored.push(part.map_or(Cow::Borrowed(item), Cow::Owned));
            } else {
                is_whole = false;
            }
            self.entries = entries;
        }
        if !is_whole {
            self.fields.keep_clash(field);
            is_cut |= self.fields.rules.type_clashes == DriftMode::DiscardValue;
        }
        if is_cut {
            self.cut.push((field, format!("[{}]", stored.join(","))));
        }
    }

    fn append_constraint(
        &mut self,
        survey_id: i64,
        record: i64,
        ordinal: i64,
        entries: &[Entry<'a>],
    ) -> Option<String> {
        self.constraint.read(entries);
        let (fields, row) = (&mut self.constraint, &mut self.constraints);
        row.bigint("survey_id", Some(survey_id));
        row.bigint("constraint_ordinal", Some(ordinal));
        for (column, field, words) in [
            ("constraint_type", ConstraintField::Type, &self.words.constraint_type),
            ("comparison_type", ConstraintField::ComparisonType, &self.words.comparison_type),
        ] {
            let word = fields.text(field);
            words.note_new(word.as_deref(), record, &mut self.drift);
            row.text(column, word.as_deref());
        }
        row.text("event", fields.text(ConstraintField::Event).as_deref());
        row.double("value", fields.double(ConstraintField::Value));
        row.text("extra", fields.extra.write());
        row.end_row(record);
        let kept = without_discarded(entries, &fields.drift, fields.rules);
        self.drift.take(record, "constraints[].", fields);
        kept
    }
}
