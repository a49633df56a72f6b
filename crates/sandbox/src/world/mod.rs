//! The data of the service. Rows are stored in a compact form, and their JSON is rendered anew for each page.

mod answers;
mod changes;
mod filters;
mod generate;
mod hostile;
mod kinds;
mod people;
mod plant;
mod render;
mod rough;
mod surveys;
mod timeline;
mod vanish;
mod words;

use std::collections::HashSet;

pub use changes::{ChangeRequest, ChangeSummary, RowKey, StatusChange};
pub(crate) use people::Visitor;
pub(crate) use plant::PlantError;
pub(crate) use render::Flags;
pub(crate) use surveys::{Status, Survey};
pub(crate) use timeline::{Ordered, Position, Record, Timeline, shuffled_order};
pub(crate) use vanish::VisitorSet;

use super::{json_text::TimeStyle, random::uuid_of, settings::Rough};
use people::Device;

/// The `deleted_ms` of a row that is not soft-deleted.
const NOT_DELETED: i64 = i64::MIN;
/// The `session` of a row that was planted as exact text.
const PLANTED: u32 = u32::MAX;
const GROUP_PURPOSE: u64 = 0x0009_1200;

/// A response: the answer to one question.
#[derive(Clone, Debug)]
pub(crate) struct ResponseRow {
    created_ms: i64,
    updated_ms: i64,
    deleted_ms: i64,
    survey_id: i64,
    serial: u32,
    /// The index in `World::sessions`, or [`PLANTED`].
    session: u32,
    /// The index of the question's wording in `World::wordings`. For a planted row, its index in `World::planted`.
    wording: u32,
    style: TimeStyle,
    /// The members `response` and `selectedIndexes`, and hostile members, as JSON text. For a planted row, the exact
    /// record.
    answer: Box<str>,
}

/// A session: one visitor answers one survey.
#[derive(Clone, Copy, Debug)]
struct Session {
    visitor: u32,
    /// The index in `World::survey_table`.
    survey: u32,
}

/// A theme of one response.
#[derive(Clone, Debug)]
pub(crate) struct ThemeRow {
    created_ms: i64,
    updated_ms: i64,
    survey_id: i64,
    serial: u32,
    session: u32,
    wording: u32,
    /// The index in `World::theme_table`. All rows of a theme share its text.
    theme: u32,
    /// The answer as a JSON string. For a planted row, the exact record.
    response: Box<str>,
}

/// The text of a theme.
#[derive(Clone, Debug)]
struct Theme {
    id: i64,
    name: String,
    description: String,
}

/// A row of the list of surveys.
#[derive(Clone, Debug)]
pub(crate) struct SurveyRow {
    created_ms: i64,
    id: i64,
    serial: u32,
    /// The index in `World::survey_table`; unused for a planted survey.
    survey: u32,
    status: Option<Status>,
    /// The exact record of a planted survey; `None` for a generated survey.
    raw: Option<Box<str>>,
}

/// The identifying members of a row that was planted as exact text.
#[derive(Clone, Debug, Default)]
struct PlantedIdentity {
    group: String,
    question_id: String,
    theme_id: String,
    visitor_uuid: String,
    external_user_id: String,
    is_deleted: bool,
}

/// The data of the service. Tables other than the three lists only grow, so that the indexes in rows stay valid.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) start_ms: i64,
    /// The time up to which answers were generated, epoch milliseconds.
    answered_until_ms: i64,
    pub(crate) responses: Timeline<ResponseRow>,
    pub(crate) themes: Timeline<ThemeRow>,
    pub(crate) surveys: Timeline<SurveyRow>,
    survey_table: Vec<Survey>,
    /// The question members of response records, as JSON text. Former wordings of questions are kept, because old
    /// answers have them.
    wordings: Vec<String>,
    theme_table: Vec<Theme>,
    sessions: Vec<Session>,
    planted: Vec<PlantedIdentity>,
    devices: Vec<Device>,
    visitors: u32,
    gone_visitors: HashSet<u32>,
    next_serial: u32,
    /// The shares of rough data; `None` for none.
    rough: Option<Rough>,
    /// The text that each response record carries in addition.
    more_text: String,
}

impl World {
    fn take_serial(&mut self) -> u32 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Returns the `responseGroupUid` of a session.
    fn group_of(&self, session: u32) -> u128 {
        uuid_of(self.seed ^ GROUP_PURPOSE, u64::from(session))
    }

    fn visitor_of(&self, session: u32) -> Option<Visitor> {
        self.sessions.get(session as usize).map(|session| Visitor::new(self.seed, session.visitor))
    }

    /// Returns the visitor with this number; `None` if there is none or the visitor vanished.
    pub(crate) fn visitor(&self, number: u32) -> Option<Visitor> {
        let exists = number < self.visitors && !self.gone_visitors.contains(&number);
        exists.then(|| Visitor::new(self.seed, number))
    }

    /// Returns all visitors who have not vanished.
    pub(crate) fn visitors(&self) -> impl Iterator<Item = Visitor> + '_ {
        (0..self.visitors).filter_map(|number| self.visitor(number))
    }

    /// Returns the number of soft-deleted responses.
    pub(crate) fn deleted_responses(&self) -> usize {
        self.responses.iter().filter(|row| row.is_deleted()).count()
    }
}

impl Record for ResponseRow {
    fn created_ms(&self) -> i64 {
        self.created_ms
    }

    fn serial(&self) -> u32 {
        self.serial
    }

    fn survey_id(&self) -> i64 {
        self.survey_id
    }

    fn is_deleted(&self) -> bool {
        self.deleted_ms != NOT_DELETED
    }
}

impl Record for ThemeRow {
    fn created_ms(&self) -> i64 {
        self.created_ms
    }

    fn serial(&self) -> u32 {
        self.serial
    }

    fn survey_id(&self) -> i64 {
        self.survey_id
    }
}

impl Record for SurveyRow {
    fn created_ms(&self) -> i64 {
        self.created_ms
    }

    fn serial(&self) -> u32 {
        self.serial
    }

    fn survey_id(&self) -> i64 {
        self.id
    }
}

impl SurveyRow {
    pub(crate) fn status(&self) -> Option<Status> {
        self.status
    }
}
