//! The rows of a list in order of creation, with an index by survey. A binary search finds the rows of a window.

use std::{
    collections::HashMap,
    ops::{Deref, Range},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    super::{faults::Order, json_text::TimeStyle, random::mix},
    surveys::Status,
};

/// The `session` of a row that was planted as exact text.
const PLANTED: u32 = u32::MAX;

/// A list of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListName {
    /// Responses.
    #[default]
    Responses,
    /// Surveys.
    Surveys,
    /// Themes.
    Themes,
}

/// A row of a list: a response (the answer to one question), a theme of one response, or a survey.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) created_ms: i64,
    /// Not used for surveys.
    pub(crate) updated_ms: i64,
    /// When the response was soft-deleted; `None` for other rows.
    pub(crate) deleted_ms: Option<i64>,
    pub(crate) survey_id: i64,
    /// The number of the row, which is unique in its list. Rows that share a millisecond are ordered by this number.
    pub(crate) serial: u32,
    /// The index in `World::sessions`; not used for surveys.
    pub(crate) session: u32,
    /// The index of the question's wording in `World::wordings`. For a planted row, its index in `World::planted`.
    pub(crate) wording: u32,
    /// The index of a theme in `World::theme_table`, or of a survey in `World::survey_table`.
    pub(crate) entry: u32,
    pub(crate) style: TimeStyle,
    /// Of a response: the members `response` and `selectedIndexes`, and hostile members, as JSON text. Of a theme: the
    /// answer as a JSON string. Of a planted row: the exact record.
    pub(crate) text: Box<str>,
}

impl Row {
    /// Creates a row with this text at this time; the other fields are 0.
    pub(crate) fn new(created_ms: i64, text: Box<str>) -> Self {
        let (survey_id, serial, session, wording, entry) = (0, 0, 0, 0, 0);
        let (updated_ms, deleted_ms, style) = (created_ms, None, TimeStyle::Millis);
        Self { created_ms, updated_ms, deleted_ms, survey_id, serial, session, wording, entry, style, text }
    }

    /// Makes the row a planted one, whose identity has this index in `World::planted`.
    pub(crate) fn planted(self, identity: usize) -> Self {
        Self { session: PLANTED, wording: identity as u32, ..self }
    }

    /// Returns true if the row was planted as exact text.
    pub(crate) fn is_planted(&self) -> bool {
        self.session == PLANTED
    }
}

/// The key of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowKey {
    /// `responseGroupUid`
    pub group: String,
    /// `questionId`, as JSON text
    pub question: String,
}

/// The identifying members of a row that was planted as exact text.
#[derive(Clone, Debug, Default)]
pub(super) struct PlantedIdentity {
    pub(super) key: RowKey,
    /// `id`, as JSON text
    pub(super) id: String,
    pub(super) visitor_uuid: String,
    pub(super) external_user_id: String,
    pub(super) status: Option<Status>,
}

/// Rows sorted by creation time and serial.
#[derive(Debug)]
pub(crate) struct Timeline {
    rows: Vec<Row>,
    /// The indexes of the rows of each survey.
    by_survey: HashMap<i64, Vec<u32>>,
    /// Increases with each change, to detect stale caches.
    pub(crate) version: u64,
}

impl Deref for Timeline {
    type Target = [Row];

    fn deref(&self) -> &[Row] {
        &self.rows
    }
}

/// The rows of a window, in order of creation.
pub(crate) struct Span<'a> {
    rows: &'a [Row],
    /// The indexes of the window's rows in `rows`; `None` for all rows.
    picked: Option<&'a [u32]>,
}

impl<'a> Span<'a> {
    pub(crate) fn len(&self) -> usize {
        self.picked.map_or(self.rows.len(), <[u32]>::len)
    }

    pub(crate) fn get(&self, at: usize) -> Option<&'a Row> {
        match self.picked {
            None => self.rows.get(at),
            Some(picked) => picked.get(at).and_then(|position| self.rows.get(*position as usize)),
        }
    }
}

impl Timeline {
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        let mut timeline = Self { rows, by_survey: HashMap::new(), version: 0 };
        timeline.index();
        timeline
    }

    /// Changes the rows, then sorts and indexes them again.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Vec<Row>)) {
        change(&mut self.rows);
        self.index();
        self.version += 1;
    }

    /// Sorts the rows and builds the index by survey.
    fn index(&mut self) {
        let key = |row: &Row| (row.created_ms, row.serial);
        if !self.rows.is_sorted_by_key(key) {
            self.rows.sort_unstable_by_key(key);
        }
        self.by_survey.clear();
        for (at, row) in self.rows.iter().enumerate() {
            // The index fits, because `RESPONSES_MAX` is far below 2^32.
            self.by_survey.entry(row.survey_id).or_default().push(at as u32);
        }
    }

    /// Returns the rows created in a half-open range, of one survey or of all surveys.
    pub(crate) fn span(&self, created_ms: Range<i64>, survey_id: Option<i64>) -> Span<'_> {
        let from = self.rows.partition_point(|row| row.created_ms < created_ms.start);
        let to = self.rows.partition_point(|row| row.created_ms < created_ms.end).max(from);
        let Some(survey_id) = survey_id else {
            return Span { rows: self.rows.get(from..to).unwrap_or_default(), picked: None };
        };
        let picked = self.by_survey.get(&survey_id).map(Vec::as_slice).unwrap_or_default();
        let first = picked.partition_point(|at| (*at as usize) < from);
        let last = picked.partition_point(|at| (*at as usize) < to);
        Span { rows: &self.rows, picked: Some(picked.get(first..last).unwrap_or_default()) }
    }
}

/// The position at which a page begins: at the start of the list, after a row, or before or after all rows of a
/// millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Start,
    /// The row's creation time and serial.
    AfterRow(i64, u32),
    AtMillisecond(i64),
    AfterMillisecond(i64),
}

/// The rows of a window in the order in which the service lists them.
pub(crate) struct Ordered<'a> {
    span: Span<'a>,
    order: Order,
    shuffled: Arc<Vec<u32>>,
}

/// Returns the indexes of a span in shuffled order. Rows of one millisecond stay together, so that a position can be a
/// millisecond.
pub(crate) fn shuffled_order(span: &Span<'_>) -> Vec<u32> {
    let mut keyed: Vec<(u64, u32)> =
        (0..span.len()).filter_map(|at| span.get(at).map(|row| (scatter(row.created_ms), at as u32))).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, at)| at).collect()
}

/// Returns the sort key of a creation time in shuffled order.
fn scatter(created_ms: i64) -> u64 {
    mix(0x5CA7_7E12, created_ms as u64)
}

impl<'a> Ordered<'a> {
    /// Orders the rows of a span. `shuffled` is the result of [`shuffled_order`], and is used only if `order` is
    /// `Shuffled`.
    pub(crate) fn new(span: Span<'a>, order: Order, shuffled: Arc<Vec<u32>>) -> Self {
        Self { span, order, shuffled }
    }

    pub(crate) fn len(&self) -> usize {
        self.span.len()
    }

    /// Returns the row with this index in the order of the list; `None` after the last row.
    pub(crate) fn get(&self, at: usize) -> Option<&'a Row> {
        match self.order {
            Order::OldestFirst => self.span.get(at),
            Order::NewestFirst => self.span.get(self.len().checked_sub(at + 1)?),
            Order::Shuffled => self.span.get(*self.shuffled.get(at)? as usize),
        }
    }

    /// Returns the index of the first row at or after a position.
    pub(crate) fn seek(&self, position: Position) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle) {
                Some(row) if self.is_before(row, position) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// Returns true if the row is before the position in this order.
    fn is_before(&self, row: &Row, position: Position) -> bool {
        let (ms, serial, includes_ties) = match position {
            Position::Start => return false,
            Position::AfterRow(ms, serial) => (ms, Some(serial), false),
            Position::AtMillisecond(ms) => (ms, None, false),
            Position::AfterMillisecond(ms) => (ms, None, true),
        };
        let created_ms = row.created_ms;
        if created_ms == ms {
            return match (serial, self.order) {
                (None, _) => includes_ties,
                (Some(serial), Order::NewestFirst) => row.serial >= serial,
                (Some(serial), _) => row.serial <= serial,
            };
        }
        match self.order {
            Order::OldestFirst => created_ms < ms,
            Order::NewestFirst => created_ms > ms,
            Order::Shuffled => scatter(created_ms) < scatter(ms),
        }
    }
}
