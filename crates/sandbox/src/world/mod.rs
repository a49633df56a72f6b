//! The data of the service. Rows are stored in a compact form, and their JSON is rendered anew for each page.

mod answers;
mod changes;
mod generate;
mod irregular;
mod keys;
mod people;
mod render;
mod surveys;
mod timeline;
mod words;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

pub use changes::{ChangeRequest, ChangeSummary, StatusChange};
pub(crate) use keys::VisitorSet;
pub(crate) use people::Visitor;
pub(crate) use render::Flags;
pub(crate) use surveys::Status;
pub use timeline::{ListName, RowKey};
pub(crate) use timeline::{Ordered, Position, Row, Timeline, shuffled_order};

use super::{faults::FilteredBy, random::uuid_of, settings::Rough};
use people::Device;
use surveys::Survey;
use timeline::PlantedIdentity;

/// The range of a request without `start` and `end`.
const EVERYTHING: Range<i64> = i64::MIN..i64::MAX;
const GROUP_PURPOSE: u64 = 0x0009_1200;

/// A session: one visitor answers one survey.
#[derive(Clone, Copy, Debug)]
struct Session {
    visitor: u32,
    /// The index in `World::survey_table`.
    survey: u32,
}

/// The text of a theme.
#[derive(Clone, Debug)]
struct Theme {
    id: i64,
    name: String,
    description: String,
}

/// The data of the service. Tables other than the three lists only grow, so that the indexes in rows stay valid.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) start_ms: i64,
    /// The time up to which answers were generated, epoch milliseconds.
    answered_until_ms: i64,
    pub(crate) responses: Timeline,
    pub(crate) themes: Timeline,
    pub(crate) surveys: Timeline,
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

    /// Returns the visitor whose user id or mail address, as `name` returns it, is this text.
    pub(crate) fn visitor_named(&self, text: &str, name: fn(&Visitor) -> Option<String>) -> Option<Visitor> {
        let visitor = Visitor::number_in(text).and_then(|number| self.visitor(number))?;
        (name(&visitor).as_deref() == Some(text)).then_some(visitor)
    }

    /// Returns all visitors who have not vanished.
    pub(crate) fn visitors(&self) -> impl Iterator<Item = Visitor> + '_ {
        (0..self.visitors).filter_map(|number| self.visitor(number))
    }

    /// Returns the number of soft-deleted responses.
    pub(crate) fn deleted_responses(&self) -> usize {
        self.responses.iter().filter(|row| row.deleted_ms.is_some()).count()
    }

    pub(crate) fn rows(&self, list: ListName) -> &Timeline {
        match list {
            ListName::Responses => &self.responses,
            ListName::Surveys => &self.surveys,
            ListName::Themes => &self.themes,
        }
    }

    fn rows_mut(&mut self, list: ListName) -> &mut Timeline {
        match list {
            ListName::Responses => &mut self.responses,
            ListName::Surveys => &mut self.surveys,
            ListName::Themes => &mut self.themes,
        }
    }

    /// Returns the status of a row of the list of surveys; `None` if a planted survey has no known status.
    pub(crate) fn status_of(&self, row: &Row) -> Option<Status> {
        match self.identity_of(row) {
            Some(identity) => identity.status,
            None => self.survey_table.get(row.entry as usize).map(|survey| survey.status),
        }
    }

    /// Returns a predicate that is true if the time of kind `by` of a row of the list is in the range. A row without
    /// such a time is only in the unlimited range. The list filters creation times itself, so for `Created` and
    /// `Ignored` the predicate is always true.
    pub(crate) fn is_within(&self, list: ListName, by: FilteredBy, range: Range<i64>) -> impl Fn(&Row) -> bool + '_ {
        let mut sessions: HashMap<u32, i64> = HashMap::new();
        if list == ListName::Responses && by == FilteredBy::Session {
            for row in self.responses.iter().filter(|row| !row.is_planted()) {
                let start = sessions.entry(row.session).or_insert(row.created_ms);
                *start = row.created_ms.min(*start);
            }
        }
        move |row| {
            let survey = self.survey_table.get(row.entry as usize).filter(|_| !row.is_planted());
            let at_ms = match (by, list) {
                (FilteredBy::Created | FilteredBy::Ignored, _) => return true,
                _ if range == EVERYTHING => return true,
                (FilteredBy::Updated, ListName::Surveys) => survey.map(|survey| survey.updated_ms),
                (FilteredBy::Updated, _) => Some(row.updated_ms),
                (FilteredBy::Session, ListName::Responses) => {
                    Some(*sessions.get(&row.session).unwrap_or(&row.created_ms))
                }
                (FilteredBy::Launched, ListName::Surveys) => survey.and_then(|survey| survey.launched_ms),
                _ => None,
            };
            at_ms.is_some_and(|at_ms| range.contains(&at_ms))
        }
    }
}
