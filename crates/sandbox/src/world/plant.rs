//! Adds or replaces a single record given as exact JSON text, so that a test can add records that are not generated.

use chrono::DateTime;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use thiserror::Error;

use super::{
    super::json_text::TimeStyle, NOT_DELETED, PLANTED, PlantedIdentity, Record, ResponseRow, RowKey, Status, SurveyRow,
    ThemeRow, World, vanish::RowFinder,
};

/// Why a record cannot be planted.
#[derive(Debug, Error)]
pub(crate) enum PlantError {
    /// The text is no JSON object.
    #[error("the record is not a JSON object")]
    NotAnObject(#[source] serde_json::Error),
    /// The record has no creation time, by which lists are ordered.
    #[error("the record has no readable 'createdAt' (give it beside the record as 'created_ms')")]
    NoCreationTime,
}

/// The members of a planted record that the sandbox needs to list, replace and purge the record.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PlantedMembers<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    created_at: Value,
    deleted_at: Value,
    response_group_uid: Value,
    #[serde(borrow)]
    question_id: Option<&'a RawValue>,
    survey_id: Value,
    visitor_uuid: Value,
    external_user_id: Value,
    status: Value,
}

impl PlantedMembers<'_> {
    /// Reads a record. Returns its members and its creation time: `created_ms`, or else its `createdAt`.
    fn read(record: &str, created_ms: Option<i64>) -> Result<(PlantedMembers<'_>, i64), PlantError> {
        let known: PlantedMembers = serde_json::from_str(record).map_err(PlantError::NotAnObject)?;
        let stated = known.created_at.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
        let created_ms = created_ms.or(stated.map(|at| at.timestamp_millis())).ok_or(PlantError::NoCreationTime)?;
        Ok((known, created_ms))
    }

    /// Returns the members by which a replacement, a removal or a purge finds the row.
    fn identity(&self) -> PlantedIdentity {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let raw = |value: Option<&RawValue>| value.map(|raw| raw.get().to_owned()).unwrap_or_default();
        PlantedIdentity {
            group: text(&self.response_group_uid),
            question_id: raw(self.question_id),
            theme_id: raw(self.id),
            visitor_uuid: text(&self.visitor_uuid),
            external_user_id: text(&self.external_user_id),
            is_deleted: !self.deleted_at.is_null(),
        }
    }
}

impl World {
    /// Stores the identity of a planted row. Returns the index in `World::planted`.
    fn add_identity(&mut self, identity: PlantedIdentity) -> u32 {
        self.planted.push(identity);
        (self.planted.len() - 1) as u32
    }

    /// Adds a response from its exact JSON text. Replaces the response with the same `responseGroupUid` and
    /// `questionId`, unless `responseGroupUid` is empty. A response with `deletedAt` is listed only if the request has
    /// `with_deleted_responses`.
    pub(crate) fn plant_response(&mut self, record: &str, created_ms: Option<i64>) -> Result<RowKey, PlantError> {
        let (known, created_ms) = PlantedMembers::read(record, created_ms)?;
        let identity = known.identity();
        let key = RowKey { group: identity.group.clone(), question: identity.question_id.clone() };
        let wanted = RowFinder::new(key.clone());
        let replaced =
            self.responses.iter().find(|row| !key.group.is_empty() && wanted.is_row(self, row.session, row.wording));
        let replaced = replaced.map(Record::serial);
        let row = ResponseRow {
            created_ms,
            updated_ms: created_ms,
            deleted_ms: if identity.is_deleted { created_ms } else { NOT_DELETED },
            survey_id: known.survey_id.as_i64().unwrap_or(0),
            serial: self.take_serial(),
            session: PLANTED,
            wording: self.add_identity(identity),
            style: TimeStyle::Millis,
            answer: record.into(),
        };
        self.responses.change(|rows| {
            rows.retain(|row| Some(row.serial) != replaced);
            rows.push(row);
        });
        Ok(key)
    }

    /// Adds a theme from its exact JSON text. Replaces the theme with the same `id`, `responseGroupUid` and
    /// `questionId`.
    pub(crate) fn plant_theme(&mut self, record: &str, created_ms: Option<i64>) -> Result<RowKey, PlantError> {
        let (known, created_ms) = PlantedMembers::read(record, created_ms)?;
        let identity = known.identity();
        let key = RowKey { group: identity.group.clone(), question: identity.question_id.clone() };
        let theme_id = identity.theme_id.clone();
        let wanted = RowFinder::new(key.clone());
        let replaced = (self.themes.iter())
            .find(|row| wanted.is_row(self, row.session, row.wording) && self.theme_id(row) == theme_id);
        let replaced = replaced.map(Record::serial);
        let row = ThemeRow {
            created_ms,
            updated_ms: created_ms,
            survey_id: known.survey_id.as_i64().unwrap_or(0),
            serial: self.take_serial(),
            session: PLANTED,
            wording: self.add_identity(identity),
            theme: 0,
            response: record.into(),
        };
        self.themes.change(|rows| {
            rows.retain(|row| Some(row.serial) != replaced);
            rows.push(row);
        });
        Ok(key)
    }

    /// Returns the `id` of a theme row as JSON text.
    fn theme_id(&self, row: &ThemeRow) -> String {
        match row.session {
            PLANTED => {
                self.planted.get(row.wording as usize).map(|identity| identity.theme_id.clone()).unwrap_or_default()
            }
            _ => self.theme_table.get(row.theme as usize).map(|theme| theme.id.to_string()).unwrap_or_default(),
        }
    }

    /// Adds a survey from its exact JSON text. Replaces the survey with the same `id`; a survey without an integer `id`
    /// replaces none.
    pub(crate) fn plant_survey(&mut self, record: &str, created_ms: Option<i64>) -> Result<(), PlantError> {
        let (known, created_ms) = PlantedMembers::read(record, created_ms)?;
        let id = known.id.and_then(|raw| raw.get().parse().ok());
        let status = Status::ALL.into_iter().find(|status| known.status == status.name());
        let serial = self.take_serial();
        let row = SurveyRow {
            created_ms,
            id: id.unwrap_or(i64::MIN),
            serial,
            survey: u32::MAX,
            status,
            raw: Some(record.into()),
        };
        self.surveys.change(|rows| {
            rows.retain(|row| id != Some(row.id));
            rows.push(row);
        });
        Ok(())
    }
}
