//! Finds rows by their key or their visitor: plants records, and removes rows without a trace.

use std::{collections::HashSet, ops::Range};

use chrono::DateTime;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use uuid::Uuid;

use super::{ListName, PlantedIdentity, Row, RowKey, Status, Visitor, World};

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
    /// Returns the members by which a replacement, a removal or a purge finds the row.
    fn identity(&self) -> PlantedIdentity {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let raw = |value: Option<&RawValue>| value.map(|raw| raw.get().to_owned()).unwrap_or_default();
        PlantedIdentity {
            key: RowKey { group: text(&self.response_group_uid), question: raw(self.question_id) },
            id: raw(self.id),
            visitor_uuid: text(&self.visitor_uuid),
            external_user_id: text(&self.external_user_id),
            status: self.status.as_str().and_then(Status::named),
        }
    }
}

/// The visitors of a purge or a control call.
#[derive(Clone, Debug, Default)]
pub(crate) struct VisitorSet {
    /// The numbers of generated visitors.
    pub(crate) numbers: HashSet<u32>,
    /// Visitor UUIDs and user ids as text, to match planted rows.
    pub(crate) texts: HashSet<String>,
}

impl VisitorSet {
    /// Adds a visitor by number, and by the UUID and user id that planted rows may have.
    pub(crate) fn add(&mut self, visitor: Visitor) {
        self.numbers.insert(visitor.number);
        self.texts.insert(Uuid::from_u128(visitor.uuid).to_string());
        self.texts.extend(visitor.external_user_id().filter(|id| !id.is_empty()));
    }
}

impl World {
    /// Adds a record from its exact JSON text. Replaces the response with the same key, the theme with the same key and
    /// `id`, or the survey with the same `id`. A response without `responseGroupUid` and a survey without an integer
    /// `id` replace none. A response with `deletedAt` is listed only if the request has `with_deleted_responses`.
    pub(crate) fn plant(&mut self, list: ListName, record: &str, created_ms: Option<i64>) -> Result<(), String> {
        let members: PlantedMembers =
            serde_json::from_str(record).map_err(|_| "the record is not a JSON object".to_owned())?;
        let stated = members.created_at.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
        let created_ms = created_ms
            .or(stated.map(|at| at.timestamp_millis()))
            .ok_or("the record has no readable 'createdAt' (give it beside the record as 'created_ms')")?;
        let identity = members.identity();
        let own_id = identity.id.parse::<i64>().ok();
        let replaced = {
            let has_key = self.has_key(&identity.key);
            self.rows(list).iter().position(|row| match list {
                ListName::Responses => !identity.key.group.is_empty() && has_key(row),
                ListName::Themes => has_key(row) && self.theme_id(row) == identity.id,
                ListName::Surveys => own_id == Some(row.survey_id),
            })
        };
        let survey_id = match list {
            ListName::Surveys => own_id.unwrap_or(i64::MIN),
            _ => members.survey_id.as_i64().unwrap_or(0),
        };
        let row = Row {
            survey_id,
            deleted_ms: (!members.deleted_at.is_null()).then_some(created_ms),
            ..Row::new(created_ms, record.into()).planted(self.planted.len())
        };
        let row = Row { serial: self.take_serial(), ..row };
        self.planted.push(identity);
        self.rows_mut(list).change(|rows| {
            if let Some(index) = replaced {
                rows.remove(index);
            }
            rows.push(row);
        });
        Ok(())
    }

    /// Returns the `id` of a theme row as JSON text.
    fn theme_id(&self, row: &Row) -> String {
        match self.identity_of(row) {
            Some(identity) => identity.id.clone(),
            None => self.theme_table.get(row.entry as usize).map(|theme| theme.id.to_string()).unwrap_or_default(),
        }
    }

    /// Removes visitors and all their rows. Returns the keys of the removed responses.
    pub(crate) fn remove_visitors(&mut self, visitors: &VisitorSet) -> Vec<RowKey> {
        self.gone_visitors.extend(&visitors.numbers);
        self.remove_rows(ListName::Themes, |world, row| world.belongs_to(row, visitors));
        self.remove_rows(ListName::Responses, |world, row| world.belongs_to(row, visitors))
    }

    /// Removes the responses created in a half-open range. Themes on these responses stay. Returns the keys of the
    /// responses.
    pub(crate) fn remove_window(&mut self, created_ms: Range<i64>) -> Vec<RowKey> {
        self.remove_rows(ListName::Responses, |_, row| created_ms.contains(&row.created_ms))
    }

    /// Removes a response and its themes. Returns the number of removed rows.
    pub(crate) fn remove_row(&mut self, key: &RowKey) -> usize {
        let lists = [ListName::Responses, ListName::Themes];
        lists.map(|list| self.remove_rows(list, |world, row| world.has_key(key)(row)).len()).iter().sum()
    }

    /// Removes the rows of a list that `is_gone` accepts. Returns the keys of these rows.
    fn remove_rows(&mut self, list: ListName, is_gone: impl Fn(&World, &Row) -> bool) -> Vec<RowKey> {
        let gone: Vec<bool> = self.rows(list).iter().map(|row| is_gone(self, row)).collect();
        let rows = self.rows(list).iter().zip(&gone);
        let keys = rows.filter(|(_, is_gone)| **is_gone).map(|(row, _)| self.key_of(row)).collect();
        let mut gone = gone.into_iter();
        self.rows_mut(list).change(|rows| rows.retain(|_| gone.next() != Some(true)));
        keys
    }

    /// Returns true if a planted response has `text` as its visitor UUID or user id.
    pub(crate) fn has_planted_rows_of(&self, text: &str) -> bool {
        let mut planted = self.responses.iter().filter_map(|row| self.identity_of(row));
        !text.is_empty() && planted.any(|identity| identity.visitor_uuid == text || identity.external_user_id == text)
    }

    fn belongs_to(&self, row: &Row, visitors: &VisitorSet) -> bool {
        match self.identity_of(row) {
            Some(identity) => {
                visitors.texts.contains(&identity.visitor_uuid) || visitors.texts.contains(&identity.external_user_id)
            }
            None => {
                let session = self.sessions.get(row.session as usize);
                session.is_some_and(|session| visitors.numbers.contains(&session.visitor))
            }
        }
    }

    /// Returns the identity of a planted row; `None` for a generated row.
    pub(super) fn identity_of(&self, row: &Row) -> Option<&PlantedIdentity> {
        self.planted.get(row.wording as usize).filter(|_| row.is_planted())
    }

    /// Returns a predicate that is true for the responses and themes with this key.
    fn has_key<'a>(&'a self, key: &'a RowKey) -> impl Fn(&Row) -> bool + 'a {
        // The group is compared as a number first, because building the text of a key is slow.
        let group = Uuid::try_parse(&key.group).ok().map(|group| group.as_u128());
        move |row| (row.is_planted() || group == Some(self.group_of(row.session))) && self.key_of(row) == *key
    }

    /// Returns the key of a response, or of the response that a theme is on.
    pub(super) fn key_of(&self, row: &Row) -> RowKey {
        if let Some(identity) = self.identity_of(row) {
            return identity.key.clone();
        }
        let group = Uuid::from_u128(self.group_of(row.session)).to_string();
        let wording = self.wordings.get(row.wording as usize).map_or("", String::as_str);
        // Every wording begins with `"questionId":` and digits.
        let digits = wording.trim_start_matches("\"questionId\":").split(',').next().unwrap_or_default();
        RowKey { group, question: digits.to_owned() }
    }

    /// Returns the keys of these rows.
    pub(super) fn keys_of<'a>(&self, rows: impl IntoIterator<Item = &'a Row>) -> Vec<RowKey> {
        rows.into_iter().map(|row| self.key_of(row)).collect()
    }
}
