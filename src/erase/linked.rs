//! Finds the other identifiers of the named people. Pure: the caller supplies the rows.
//!
//! A row with an identifier of a person links to the other identifiers on the row. Following a link means to take the
//! linked identifier as one of the person. A link that could lead to another person is not followed:
//!
//! - An identifier that also occurs with the user id of an unnamed person is not followed, because it is shared.
//!   Examples are a device at a counter and a family's mail address.
//! - A mail address or partner id on rows of other visitors without a user id may link different people. Such an
//!   identifier is followed only if those rows have a named identifier.
//! - A named mail address, visitor or session links to a user id only if there is exactly one user id. Of several user
//!   ids, only the named ones are followed. The sessions with the named identifier are erased in any case.
//! - An identifier with more visitors or sessions than one person has is a placeholder and is not followed, even if it
//!   is a user id.
//!
//! Values that name nobody ("", "anonymous") are not identifiers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    load::CoOccurrence,
    model::{Identifier, IdentifierKind, Spellings, merge_spellings},
};

/// The maximum number of rounds of queries. A longer chain of links is cut and reported as incomplete.
pub const ROUNDS_MAX: u32 = 16;
/// The maximum number of visitors of an identifier. An identifier with more visitors is a placeholder.
pub const VISITORS_PER_IDENTIFIER_MAX: usize = 20;
/// The maximum number of sessions of an identifier. An identifier with more sessions is a placeholder.
pub const SESSIONS_PER_IDENTIFIER_MAX: usize = 1000;

/// Why a linked identifier was not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotFollowed {
    /// The identifier also occurs with the user id of a person who was not named.
    Shared,
    /// Other visitors without a user id have the identifier; they may be other people.
    Strangers,
    /// The identifier is a user id that was not named, and may belong to another person.
    OtherUser,
    /// Too many visitors or sessions have the identifier.
    TooMany,
}

/// The identifiers of the people to erase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedIdentifiers {
    /// The identifiers in the request.
    pub named: BTreeSet<Identifier>,
    /// Identifiers that were found by links.
    pub linked: BTreeSet<Identifier>,
    /// Identifiers on the people's rows that were not followed, and the reason.
    pub not_followed: BTreeMap<Identifier, NotFollowed>,
    /// Spellings in the data that differ from the normalized identifier.
    pub spellings: Spellings,
    /// User ids, mail addresses and visitor UUIDs, by which the service can purge. For each, the largest number of
    /// visitors that the service could delete.
    pub visitors_of: BTreeMap<Identifier, usize>,
    /// Named identifiers for which no row was found.
    pub without_rows: BTreeSet<Identifier>,
    /// Number of rounds of queries.
    pub rounds: u32,
    /// True if every chain of links was followed to its end.
    pub is_complete: bool,
}

impl LinkedIdentifiers {
    /// Returns the named and linked identifiers, sorted.
    pub fn all(&self) -> Vec<Identifier> {
        self.named.union(&self.linked).cloned().collect()
    }
}

/// Follows the links of the named identifiers, and returns all identifiers of the people. `find_rows` returns the rows
/// with any of the given identifiers; it is called once per round, with identifiers whose rows were not read yet.
///
/// After [`ROUNDS_MAX`] rounds, returns the links so far and `is_complete` false.
pub fn follow<E>(
    named: &BTreeSet<Identifier>,
    mut find_rows: impl FnMut(&[Identifier]) -> Result<Vec<CoOccurrence>, E>,
) -> Result<LinkedIdentifiers, E> {
    let mut known = RowIndex::default();
    let mut people: Vec<Person> = named.iter().map(Person::new).collect();
    let mut pending: BTreeSet<Identifier> = named.clone();
    let mut rounds = 0;
    while !pending.is_empty() && rounds < ROUNDS_MAX {
        rounds += 1;
        let wanted: Vec<Identifier> = pending.into_iter().collect();
        known.add(&wanted, find_rows(&wanted)?);
        pending = people.iter_mut().flat_map(|person| person.advance(&known, named)).collect();
        pending.retain(|identifier| !known.queried.contains(identifier));
    }
    let mut identifiers = LinkedIdentifiers {
        named: named.clone(),
        rounds,
        is_complete: pending.is_empty(),
        ..LinkedIdentifiers::default()
    };
    let has_rows =
        |identifier: &Identifier| !known.rows_with(identifier).is_empty() || known.too_wide.contains(identifier);
    identifiers.without_rows = named.iter().filter(|identifier| !has_rows(identifier)).cloned().collect();
    identifiers.spellings = std::mem::take(&mut known.spellings);
    for person in &people {
        identifiers.linked.extend(person.followed.iter().filter(|identifier| !named.contains(identifier)).cloned());
        identifiers.not_followed.extend(person.not_followed.iter().map(|(identifier, why)| (identifier.clone(), *why)));
        let visitors =
            person.followed.iter().filter(|identifier| identifier.kind == IdentifierKind::VisitorUuid).count();
        for identifier in &person.followed {
            let visitors_max = match identifier.kind {
                IdentifierKind::UserId | IdentifierKind::Email => visitors.max(1),
                IdentifierKind::VisitorUuid => 1,
                _ => continue,
            };
            let largest = identifiers.visitors_of.entry(identifier.clone()).or_default();
            *largest = visitors_max.max(*largest);
        }
    }
    let LinkedIdentifiers { named, linked, not_followed, .. } = &mut identifiers;
    not_followed.retain(|identifier, _| !linked.contains(identifier) && !named.contains(identifier));
    Ok(identifiers)
}

fn users<'a>(identifiers: impl Iterator<Item = &'a Identifier>) -> impl Iterator<Item = &'a Identifier> {
    identifiers.filter(|identifier| identifier.kind == IdentifierKind::UserId)
}

/// The rows that were read so far, indexed by identifier.
#[derive(Debug, Default)]
struct RowIndex {
    /// The identifiers of each row.
    rows: Vec<Vec<Identifier>>,
    /// The indexes of the rows with an identifier.
    rows_with: HashMap<Identifier, Vec<usize>>,
    /// The set of `rows`, to skip rows that are read again.
    seen: HashSet<Vec<Identifier>>,
    /// Identifiers whose rows were read.
    queried: HashSet<Identifier>,
    /// Identifiers that occur in too many sessions, so that their rows were not read.
    too_wide: HashSet<Identifier>,
    spellings: Spellings,
}

impl RowIndex {
    fn add(&mut self, queried: &[Identifier], found: Vec<CoOccurrence>) {
        self.queried.extend(queried.iter().cloned());
        for CoOccurrence { rows, too_wide, spellings } in found {
            merge_spellings(&mut self.spellings, spellings);
            self.too_wide.extend(too_wide);
            self.add_rows(rows);
        }
    }

    fn add_rows(&mut self, rows: BTreeSet<Vec<Identifier>>) {
        for row in rows {
            if self.seen.insert(row.clone()) {
                for identifier in &row {
                    self.rows_with.entry(identifier.clone()).or_default().push(self.rows.len());
                }
                self.rows.push(row);
            }
        }
    }

    fn rows_with(&self, identifier: &Identifier) -> &[usize] {
        self.rows_with.get(identifier).map_or(&[], Vec::as_slice)
    }

    fn row(&self, index: usize) -> &[Identifier] {
        self.rows.get(index).map_or(&[], Vec::as_slice)
    }

    /// Returns the user ids on a row. For a row without a user id, returns the user ids on other rows of the same
    /// sessions.
    ///
    /// # Errors
    /// The sessions whose rows have to be read first.
    fn users_of(&self, index: usize) -> Result<BTreeSet<&Identifier>, Vec<Identifier>> {
        let on_row: BTreeSet<&Identifier> = users(self.row(index).iter()).collect();
        if !on_row.is_empty() {
            return Ok(on_row);
        }
        let sessions = self.row(index).iter().filter(|identifier| identifier.kind == IdentifierKind::Session);
        let (mut found, mut unknown) = (BTreeSet::new(), Vec::new());
        for session in sessions {
            if !self.queried.contains(session) {
                unknown.push(session.clone());
            }
            for row in self.rows_with(session) {
                found.extend(users(self.row(*row).iter()));
            }
        }
        if unknown.is_empty() { Ok(found) } else { Err(unknown) }
    }

    /// Returns true if a row, or another row of the same session, has a named identifier.
    fn is_of_named(&self, index: usize, named: &BTreeSet<Identifier>) -> bool {
        let sessions = self.row(index).iter().filter(|identifier| identifier.kind == IdentifierKind::Session);
        let rows = sessions.flat_map(|session| self.rows_with(session)).copied();
        rows.chain([index]).any(|row| self.row(row).iter().any(|identifier| named.contains(identifier)))
    }

    /// Returns true if the identifier occurs in too many sessions, or with more than [`VISITORS_PER_IDENTIFIER_MAX`]
    /// visitors on its rows and on other rows of the same sessions.
    fn has_many_visitors(&self, identifier: &Identifier) -> bool {
        let rows = self.rows_with(identifier).iter();
        let sessions = rows.clone().flat_map(|row| self.row(*row)).filter(|one| one.kind == IdentifierKind::Session);
        let rows: BTreeSet<usize> = sessions.flat_map(|session| self.rows_with(session)).chain(rows).copied().collect();
        let all = rows.iter().flat_map(|row| self.row(*row));
        let visitors: BTreeSet<_> = all.filter(|one| one.kind == IdentifierKind::VisitorUuid).collect();
        self.too_wide.contains(identifier) || visitors.len() > VISITORS_PER_IDENTIFIER_MAX
    }
}

/// A named identifier and what was linked to it.
#[derive(Debug)]
struct Person {
    /// The named identifier.
    start: Identifier,
    /// The identifiers that are taken as identifiers of the person.
    followed: BTreeSet<Identifier>,
    /// The user ids among `followed`.
    users: BTreeSet<Identifier>,
    /// The indexes of the rows with any identifier of `followed`.
    rows: BTreeSet<usize>,
    /// Identifiers on the person's rows that were not followed, and the reason.
    not_followed: BTreeMap<Identifier, NotFollowed>,
}

/// The decision about an identifier on a row of the person.
enum LinkDecision {
    /// The identifier belongs to the person.
    Follow,
    /// The identifier may belong to another person.
    Reject(NotFollowed),
    /// The decision needs the rows of these identifiers, which were not read yet.
    NeedsRows(Vec<Identifier>),
}

impl Person {
    /// Creates a person with one named identifier and without links.
    fn new(start: &Identifier) -> Person {
        Person {
            start: start.clone(),
            followed: BTreeSet::from([start.clone()]),
            users: users(std::iter::once(start)).cloned().collect(),
            rows: BTreeSet::new(),
            not_followed: BTreeMap::new(),
        }
    }

    /// Follows links as far as the rows in the index allow. Returns the identifiers whose rows are needed to continue;
    /// none if all links were followed.
    fn advance(&mut self, known: &RowIndex, named: &BTreeSet<Identifier>) -> BTreeSet<Identifier> {
        loop {
            let before = (self.followed.len(), self.rows.len());
            self.rows.extend(self.followed.iter().flat_map(|identifier| known.rows_with(identifier).iter().copied()));
            let mut pending = self.adopt_user_ids(known, named);
            let identifiers: BTreeSet<Identifier> = self
                .rows
                .iter()
                .flat_map(|row| known.row(*row))
                .filter(|candidate| !self.followed.contains(candidate))
                .cloned()
                .collect();
            for candidate in identifiers.into_iter().filter(|candidate| candidate.kind != IdentifierKind::UserId) {
                match self.decide(&candidate, known, named) {
                    LinkDecision::Follow => {
                        self.followed.insert(candidate);
                    }
                    LinkDecision::Reject(why) => {
                        self.not_followed.insert(candidate, why);
                    }
                    LinkDecision::NeedsRows(first) => pending.extend(first),
                }
            }
            if before == (self.followed.len(), self.rows.len()) {
                pending.extend(self.followed.iter().filter(|own| !known.queried.contains(own)).cloned());
                return pending;
            }
        }
    }

    /// Follows each named user id on the person's rows. Follows an unnamed user id only if the person has no other user
    /// id, and if it has not too many visitors. Returns the identifiers whose rows are needed for a decision.
    fn adopt_user_ids(&mut self, known: &RowIndex, named: &BTreeSet<Identifier>) -> BTreeSet<Identifier> {
        let (mut found, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for row in &self.rows {
            match known.users_of(*row) {
                Ok(users) => found.extend(users.into_iter().cloned()),
                Err(first) => unknown.extend(first),
            }
        }
        let mut others: BTreeSet<Identifier> = found.difference(&self.users).cloned().collect();
        let is_only_one = self.users.is_empty() && others.len() == 1 && unknown.is_empty();
        for user in others.clone() {
            if is_only_one && !named.contains(&user) {
                if !known.queried.contains(&user) {
                    unknown.insert(user);
                    continue;
                }
                if known.has_many_visitors(&user) {
                    others.remove(&user);
                    self.not_followed.insert(user, NotFollowed::TooMany);
                    continue;
                }
            }
            if is_only_one || named.contains(&user) {
                self.users.insert(user.clone());
                self.followed.insert(user.clone());
                self.not_followed.remove(&user);
                others.remove(&user);
            }
        }
        if unknown.is_empty() {
            self.not_followed.extend(others.into_iter().map(|user| (user, NotFollowed::OtherUser)));
        }
        unknown
    }

    /// Decides by the rules in the module's documentation whether an identifier on a row of the person is followed.
    /// User ids are decided by [`Self::adopt_user_ids`].
    fn decide(&self, candidate: &Identifier, known: &RowIndex, named: &BTreeSet<Identifier>) -> LinkDecision {
        use IdentifierKind::{AnonymousId, Email, Session, UserId, VisitorId, VisitorUuid};
        let is_with_start = || known.rows_with(candidate).iter().any(|row| known.row(*row).contains(&self.start));
        if candidate.kind == Session && self.start.kind != UserId && is_with_start() {
            return LinkDecision::Follow;
        }
        if !known.queried.contains(candidate) {
            return LinkDecision::NeedsRows(vec![candidate.clone()]);
        }
        let is_visitor = matches!(candidate.kind, VisitorId | VisitorUuid);
        if known.too_wide.contains(candidate)
            || (is_visitor && self.start.kind == Email && known.has_many_visitors(&self.start))
        {
            return LinkDecision::Reject(NotFollowed::TooMany);
        }
        let (mut visitors, mut sessions, mut unknown) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let mut links_strangers = false;
        for row in known.rows_with(candidate).iter().filter(|row| !self.rows.contains(row)) {
            match known.users_of(*row) {
                Ok(users) if users.iter().any(|user| !self.users.contains(*user) && !named.contains(*user)) => {
                    return LinkDecision::Reject(NotFollowed::Shared);
                }
                Ok(users) => {
                    // Different people can enter the same mail address, but a visitor id belongs to one visitor.
                    let may_be_typed = matches!(candidate.kind, Email | AnonymousId);
                    links_strangers |= may_be_typed && users.is_empty() && !known.is_of_named(*row, named);
                }
                Err(first) => unknown.extend(first),
            }
            for identifier in known.row(*row) {
                match identifier.kind {
                    Session => drop(sessions.insert(identifier)),
                    VisitorUuid => drop(visitors.insert(identifier)),
                    _ => {}
                }
            }
            if visitors.len() > VISITORS_PER_IDENTIFIER_MAX || sessions.len() > SESSIONS_PER_IDENTIFIER_MAX {
                return LinkDecision::Reject(NotFollowed::TooMany);
            }
        }
        match (unknown.is_empty(), links_strangers) {
            (false, _) => LinkDecision::NeedsRows(unknown),
            (true, true) => LinkDecision::Reject(NotFollowed::Strangers),
            (true, false) => LinkDecision::Follow,
        }
    }
}

#[cfg(test)]
mod tests;
