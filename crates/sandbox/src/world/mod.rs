//! All that the service holds. Rows are compact; JSON is made when a page is asked for.

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
pub(crate) use vanish::Named;

use super::{json_text::TimeStyle, random::uuid_of, settings::Rough};
use people::Device;

/// `deleted_ms` of a row that is not soft-deleted.
const NOT_DELETED: i64 = i64::MIN;
/// Session of a row that was planted as exact text.
const PLANTED: u32 = u32::MAX;
const GROUP_PURPOSE: u64 = 0x0009_1200;

/// An answered question.
#[derive(Clone, Debug)]
pub(crate) struct ResponseRow {
    created_ms: i64,
    updated_ms: i64,
    deleted_ms: i64,
    survey_id: i64,
    serial: u32,
    /// Index of its session, or [`PLANTED`].
    session: u32,
    /// Index of its question's wording; of a planted row, of its identity.
    wording: u32,
    style: TimeStyle,
    /// The members `response` and `selectedIndexes` (and hostile ones); of a planted row, the exact record.
    answer: Box<str>,
}

/// One visitor answering one survey.
#[derive(Clone, Copy, Debug)]
struct Session {
    visitor: u32,
    /// Index of the survey.
    survey: u32,
}

/// One theme on one response.
#[derive(Clone, Debug)]
pub(crate) struct ThemeRow {
    created_ms: i64,
    updated_ms: i64,
    survey_id: i64,
    serial: u32,
    session: u32,
    wording: u32,
    /// Index of the theme; its text is shared by all rows of the theme.
    theme: u32,
    /// The answer as a JSON string; of a planted row, the exact record.
    response: Box<str>,
}

/// A theme's text.
#[derive(Clone, Debug)]
struct Theme {
    id: i64,
    name: String,
    description: String,
}

/// A survey's place in the list; `raw` is the exact record of a planted one.
#[derive(Clone, Debug)]
pub(crate) struct SurveyRow {
    created_ms: i64,
    id: i64,
    serial: u32,
    /// Index of the survey; without meaning for a planted one.
    survey: u32,
    status: Option<Status>,
    raw: Option<Box<str>>,
}

/// What is known of a row that was planted as exact text.
#[derive(Clone, Debug, Default)]
struct PlantedIdentity {
    group: String,
    question_id: String,
    theme_id: String,
    visitor_uuid: String,
    external_user_id: String,
    is_deleted: bool,
}

/// All that the service holds. Tables other than the three lists only grow, so the indexes inside rows stay valid.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) start_ms: i64,
    /// Up to when visitors have answered.
    answered_until_ms: i64,
    pub(crate) responses: Timeline<ResponseRow>,
    pub(crate) themes: Timeline<ThemeRow>,
    pub(crate) surveys: Timeline<SurveyRow>,
    survey_table: Vec<Survey>,
    /// Question members of records: present and former wordings.
    wordings: Vec<String>,
    theme_table: Vec<Theme>,
    sessions: Vec<Session>,
    planted: Vec<PlantedIdentity>,
    devices: Vec<Device>,
    visitors: u32,
    gone_visitors: HashSet<u32>,
    next_serial: u32,
    /// How rough the data is; `None`: smooth.
    rough: Option<Rough>,
}

impl World {
    fn take_serial(&mut self) -> u32 {
        self.next_serial += 1;
        self.next_serial
    }

    fn group_of(&self, session: u32) -> u128 {
        uuid_of(self.seed ^ GROUP_PURPOSE, u64::from(session))
    }

    fn visitor_of(&self, session: u32) -> Option<Visitor> {
        self.sessions.get(session as usize).map(|session| Visitor::new(self.seed, session.visitor))
    }

    /// A visitor who is still here.
    pub(crate) fn visitor(&self, number: u32) -> Option<Visitor> {
        let is_here = number < self.visitors && !self.gone_visitors.contains(&number);
        is_here.then(|| Visitor::new(self.seed, number))
    }

    /// The numbers of all visitors who are still here.
    pub(crate) fn visitors(&self) -> impl Iterator<Item = Visitor> + '_ {
        (0..self.visitors).filter_map(|number| self.visitor(number))
    }

    /// Soft-deleted responses.
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
