//! Removes rows without a trace: the rows of visitors, of a range of time, or with a key.

use std::{collections::HashSet, ops::Range};

use super::{PLANTED, Record, ResponseRow, RowKey, ThemeRow, Visitor, World};

/// Finds rows by key. The group is compared as a number first, because building the text of a key is slow.
pub(super) struct RowFinder {
    key: RowKey,
    /// The group of the key as a number; `None` if the group is not a UUID.
    group: Option<u128>,
}

impl RowFinder {
    pub(super) fn new(key: RowKey) -> Self {
        let group = uuid::Uuid::try_parse(&key.group).ok().map(|group| group.as_u128());
        Self { key, group }
    }

    /// Returns true if the response or theme with this session and wording has the key.
    pub(super) fn is_row(&self, world: &World, session: u32, wording: u32) -> bool {
        let is_possible = session == PLANTED || self.group == Some(world.group_of(session));
        is_possible && world.key_of(session, wording) == self.key
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
        self.texts.insert(uuid::Uuid::from_u128(visitor.uuid).to_string());
        self.texts.extend(visitor.external_user_id().filter(|id| !id.is_empty()));
    }
}

impl World {
    /// Removes visitors and all their rows. Returns the keys of the removed responses.
    pub(crate) fn remove_visitors(&mut self, visitors: &VisitorSet) -> Vec<RowKey> {
        self.gone_visitors.extend(&visitors.numbers);
        let keys = self.keys_where(|world, row| world.belongs_to(row.session, row.wording, visitors));
        let gone: HashSet<u32> = self
            .responses
            .iter()
            .filter(|row| self.belongs_to(row.session, row.wording, visitors))
            .map(|row| row.serial)
            .collect();
        let gone_themes: HashSet<u32> = self
            .themes
            .iter()
            .filter(|row| self.belongs_to(row.session, row.wording, visitors))
            .map(|row| row.serial)
            .collect();
        self.responses.change(|rows| rows.retain(|row| !gone.contains(&row.serial)));
        self.themes.change(|rows| rows.retain(|row| !gone_themes.contains(&row.serial)));
        keys
    }

    /// Removes the responses created in a half-open range. Themes on these responses stay. Returns the keys of the
    /// responses.
    pub(crate) fn remove_window(&mut self, created_ms: Range<i64>) -> Vec<RowKey> {
        let keys = self.keys_where(|_, row| created_ms.contains(&row.created_ms()));
        self.responses.change(|rows| rows.retain(|row| !created_ms.contains(&row.created_ms())));
        keys
    }

    /// Removes a response and its themes. Returns the number of removed rows.
    pub(crate) fn remove_row(&mut self, group: &str, question_id: &str) -> usize {
        let wanted = RowFinder::new(RowKey { group: group.to_owned(), question: question_id.to_owned() });
        let gone: HashSet<u32> = (self.responses.iter())
            .filter(|row| wanted.is_row(self, row.session, row.wording))
            .map(ResponseRow::serial)
            .collect();
        let gone_themes: HashSet<u32> = (self.themes.iter())
            .filter(|row| wanted.is_row(self, row.session, row.wording))
            .map(ThemeRow::serial)
            .collect();
        self.responses.change(|rows| rows.retain(|row| !gone.contains(&row.serial)));
        self.themes.change(|rows| rows.retain(|row| !gone_themes.contains(&row.serial)));
        gone.len() + gone_themes.len()
    }

    /// Returns the keys of the responses that `is_wanted` accepts.
    fn keys_where(&self, is_wanted: impl Fn(&World, &ResponseRow) -> bool) -> Vec<RowKey> {
        self.responses
            .iter()
            .filter(|row| is_wanted(self, row))
            .map(|row| self.key_of(row.session, row.wording))
            .collect()
    }

    /// Returns true if a planted response has `text` as its visitor UUID or user id.
    pub(crate) fn has_planted_rows_of(&self, text: &str) -> bool {
        let is_theirs = |wording: u32| {
            let identity = self.planted.get(wording as usize);
            identity.is_some_and(|identity| identity.visitor_uuid == text || identity.external_user_id == text)
        };
        !text.is_empty() && self.responses.iter().any(|row| row.session == PLANTED && is_theirs(row.wording))
    }

    /// Returns true if a row with this session and wording belongs to one of the visitors. For a planted row, `wording`
    /// is the index in `World::planted`.
    fn belongs_to(&self, session: u32, wording: u32, visitors: &VisitorSet) -> bool {
        if session != PLANTED {
            return self
                .sessions
                .get(session as usize)
                .is_some_and(|session| visitors.numbers.contains(&session.visitor));
        }
        self.planted.get(wording as usize).is_some_and(|identity| {
            visitors.texts.contains(&identity.visitor_uuid) || visitors.texts.contains(&identity.external_user_id)
        })
    }

    /// Returns the key of the response with this session and wording.
    pub(super) fn key_of(&self, session: u32, wording: u32) -> RowKey {
        if session == PLANTED {
            let identity = self.planted.get(wording as usize).cloned().unwrap_or_default();
            return RowKey { group: identity.group, question: identity.question_id };
        }
        let group = uuid::Uuid::from_u128(self.group_of(session)).to_string();
        let wording = self.wordings.get(wording as usize).map_or("", String::as_str);
        // Every wording begins with `"questionId":` and digits.
        let digits = wording.trim_start_matches("\"questionId\":").split(',').next().unwrap_or_default();
        RowKey { group, question: digits.to_owned() }
    }
}
