//! The stream of surveys: `surveys`, their questions with the options, and their constraints.
//!
//! The row hash also covers the complete values of `questions` and `constraints`, because a changed survey replaces the
//! rows of these tables. The hash excludes members that the drift rules discard.
//!
//! If `questions` or `constraints` is not a list, or has an item that is not an object, `extra` stores the complete
//! value, unless the drift rules discard it. Items that are objects still have rows.

use std::borrow::Cow;

use arrow::error::ArrowError;

use super::{
    drift::{DriftLog, without_discarded},
    enumerations::Enumeration,
    fields::{Fields, KeyError, WireField as _, wire_fields},
    questions::QuestionTables,
    table_builder::{ColumnSet, RecordTables, TableBuilder},
};
use crate::{
    json::{self, Entry},
    model::{DriftMode, DriftRules, FlatPage, Stream, column_name_hash},
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
    /// The fields of a constraint, which is a targeting rule of a survey.
    ConstraintField {
        Type = "type",
        ComparisonType = "comparisonType",
        Event = "event",
        Value = "value",
    }
}

use SurveyField as Wire;

/// The tables of the stream of surveys under construction.
#[derive(Debug)]
pub(super) struct SurveyTables<'a> {
    fields: Fields<'a, SurveyField>,
    constraint: Fields<'a, ConstraintField>,
    surveys: TableBuilder,
    questions: QuestionTables<'a>,
    constraints: TableBuilder,
    entries: Vec<Entry<'a>>,
    /// The lists from which the drift rules discard something, without the discarded values, as JSON.
    lists_without_discarded: Vec<(SurveyField, String)>,
    enumerations: Enumerations,
    drift: DriftLog,
}

/// The columns that are enumerations: the contract lists their words.
#[derive(Debug)]
struct Enumerations {
    platform: Enumeration,
    survey_type: Enumeration,
    status: Enumeration,
    constraint_type: Enumeration,
    comparison_type: Enumeration,
}

impl Enumerations {
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
    fn new(records: usize, rules: DriftRules, columns: ColumnSet) -> Result<Self, ArrowError> {
        Ok(Self {
            fields: Fields::new(rules),
            constraint: Fields::new(rules),
            surveys: TableBuilder::new("surveys", records, columns)?,
            questions: QuestionTables::new(rules, columns)?,
            constraints: TableBuilder::new("survey_constraints", 0, columns)?,
            entries: Vec::new(),
            lists_without_discarded: Vec::new(),
            enumerations: Enumerations::new(),
            drift: DriftLog::new(Stream::Surveys.name(), rules),
        })
    }

    /// Appends the row of a survey, and the rows of its questions and constraints.
    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, KeyError> {
        self.fields.read(entries);
        self.drift.drain_fields(record, "", &mut self.fields);
        self.lists_without_discarded.clear();
        let (fields, row) = (&mut self.fields, &mut self.surveys);
        let id = fields.key_bigint(Wire::Id)?;
        row.bigint("id", Some(id));
        row.bigint("survey_id", Some(id));
        row.text("name", fields.text(Wire::Name).as_deref());
        for (column, field, enumeration) in [
            ("platform", Wire::Platform, &self.enumerations.platform),
            ("type", Wire::Type, &self.enumerations.survey_type),
            ("status", Wire::Status, &self.enumerations.status),
        ] {
            let word = fields.text(field);
            enumeration.report_unlisted(word.as_deref(), record, &mut self.drift);
            row.text(column, word.as_deref());
        }
        row.timestamp("created_at", fields.timestamp(Wire::CreatedAt));
        row.timestamp("updated_at", fields.timestamp(Wire::UpdatedAt));
        row.timestamp("launched_at", fields.timestamp(Wire::LaunchedAt));
        row.timestamp("completed_at", fields.timestamp(Wire::CompletedAt));
        row.bigint("total_response_limit", fields.bigint(Wire::TotalResponseLimit));
        self.append_list(Wire::Questions, |tables, ordinal, entries| {
            tables.questions.append(record, id, ordinal, entries, &mut tables.drift)
        });
        self.append_list(Wire::Constraints, |tables, ordinal, entries| {
            tables.append_constraint(record, id, ordinal, entries)
        });
        let (fields, row) = (&mut self.fields, &mut self.surveys);
        row.json("extra", fields.extra.write());
        for field in [Wire::Questions, Wire::Constraints] {
            if let Some(raw) = fields.json(field) {
                let stored = self.lists_without_discarded.iter().find(|(list, _)| list.slot() == field.slot());
                let raw = stored.map_or(raw, |(_, stored)| stored);
                let list = column_name_hash(field.name());
                row.content.written_text(list, |bytes| json::write_canonical(raw, &[], bytes));
            }
        }
        row.row_hash();
        self.drift.drain_fields(record, "", &mut self.fields);
        Ok(self.surveys.end_row(record))
    }

    fn drift(&mut self) -> &mut DriftLog {
        &mut self.drift
    }

    fn finish_into(self, page: &mut FlatPage) -> Result<DriftLog, ArrowError> {
        self.surveys.finish_into(page)?;
        self.questions.finish_into(page)?;
        self.constraints.finish_into(page)?;
        Ok(self.drift)
    }
}

impl<'a> SurveyTables<'a> {
    /// Calls `append` with the ordinal (from 1) and the members of each item of a list. If the list is malformed, adds
    /// the complete list to `extra`, unless the drift rules discard it. `append` returns the item without the members
    /// that the drift rules discard; `None` if they discard none.
    fn append_list(&mut self, field: SurveyField, append: impl Fn(&mut Self, i64, &[Entry<'a>]) -> Option<String>) {
        let Some(raw) = self.fields.json(field) else {
            return;
        };
        let items = json::read_items(raw);
        let mut is_well_formed = items.is_some();
        let (mut stored, mut is_partly_discarded) = (Vec::new(), false);
        for (ordinal, item) in (1_i64..).zip(items.unwrap_or_default()) {
            let mut entries = std::mem::take(&mut self.entries);
            entries.clear();
            if json::read_entries(item, &mut entries).is_some() {
                let part = append(self, ordinal, &entries);
                is_partly_discarded |= part.is_some();
                stored.push(part.map_or(Cow::Borrowed(item), Cow::Owned));
            } else {
                is_well_formed = false;
            }
            self.entries = entries;
        }
        if !is_well_formed {
            self.fields.add_clash_to_extra(field);
            is_partly_discarded |= self.fields.rules.type_clashes == DriftMode::DiscardValue;
        }
        if is_partly_discarded {
            self.lists_without_discarded.push((field, format!("[{}]", stored.join(","))));
        }
    }

    /// Appends a row of `survey_constraints`. Returns the constraint without the members that the drift rules discard;
    /// `None` if they discard none.
    fn append_constraint(
        &mut self,
        record: i64,
        survey_id: i64,
        ordinal: i64,
        entries: &[Entry<'a>],
    ) -> Option<String> {
        self.constraint.read(entries);
        let (fields, row) = (&mut self.constraint, &mut self.constraints);
        row.bigint("survey_id", Some(survey_id));
        row.bigint("constraint_ordinal", Some(ordinal));
        for (column, field, enumeration) in [
            ("constraint_type", ConstraintField::Type, &self.enumerations.constraint_type),
            ("comparison_type", ConstraintField::ComparisonType, &self.enumerations.comparison_type),
        ] {
            let word = fields.text(field);
            enumeration.report_unlisted(word.as_deref(), record, &mut self.drift);
            row.text(column, word.as_deref());
        }
        row.text("event", fields.text(ConstraintField::Event).as_deref());
        row.double("value", fields.double(ConstraintField::Value));
        row.json("extra", fields.extra.write());
        row.end_row(record);
        let stored = without_discarded(entries, &fields.drift, fields.rules);
        self.drift.drain_fields(record, "constraints[].", fields);
        stored
    }
}
