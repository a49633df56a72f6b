//! Who belongs together: from the identifiers that were named to those that they lead to. Pure;
//! what rows say is asked for.
//!
//! A row that carries an identifier of a person leads to the other identifiers on it. A lead is followed unless that
//! would take in somebody else:
//!
//! - One that other rows carry together with the user id of somebody who was not named is shared (a device at a
//!   counter, a family's mail address) and is not followed.
//! - A mail address or a partner's id that rows of other visitors carry, without anybody's user id, links people of
//!   whom nobody knows whether they are the same: it is not followed unless it was named.
//! - A mail address, visitor or session that was named leads to a user id only if it leads to one alone; several have
//!   to be named. The sessions that carry it go in any case: it was asked for.
//! - One under which more visitors or sessions come together than a person has is a stand-in and is not followed,
//!   a user id neither.
//!
//! What names nobody ("", "anonymous") is no identifier to begin with.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    load::CoOccurrence,
    model::{Identifier, IdentifierKind, Spellings, merge_spellings},
};

/// How often what was found is looked for again: a chain of leads longer than this is followed no further, and told.
pub const ROUNDS_MAX: u32 = 16;
/// Visitors under one identifier beyond which it is no person's.
pub const VISITORS_PER_LEAD_MAX: usize = 20;
/// Sessions under one identifier beyond which it is no person's.
pub const SESSIONS_PER_LEAD_MAX: usize = 1000;

/// Why a lead was not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotFollowed {
    /// Other people, who were not named, have it too.
    Shared,
    /// Other visitors have it, who have no user id: they may be other people.
    Strangers,
    /// It is the user id of somebody else: of one of several to whom a named identifier leads,
    /// or of whoever shares one.
    OtherUser,
    /// Too many visitors or sessions have it.
    TooMany,
}

/// The identifiers of the people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedIdentifiers {
    /// What was named.
    pub named: BTreeSet<Identifier>,
    /// What that led to.
    pub linked: BTreeSet<Identifier>,
    /// What was met and left alone.
    pub not_followed: BTreeMap<Identifier, NotFollowed>,
    /// How these were written where they were met, if otherwise.
    pub spellings: Spellings,
    /// Names that the service knows, each with the visitors that it may stand for there.
    pub visitors_of: BTreeMap<Identifier, usize>,
    /// Those of the named that no row was found by which names people in several ways.
    pub unmet: BTreeSet<Identifier>,
    /// How often rows were looked for.
    pub rounds: u32,
    /// Whether every lead was followed to its end.
    pub is_complete: bool,
}

impl LinkedIdentifiers {
    /// Named and led, in order.
    pub fn all(&self) -> Vec<Identifier> {
        self.named.union(&self.linked).cloned().collect()
    }
}

/// Follows the leads of what was named. `look` says which identifiers stand together in rows.
pub fn follow<E>(
    named: &BTreeSet<Identifier>,
    mut look: impl FnMut(&[Identifier]) -> Result<CoOccurrence, E>,
) -> Result<LinkedIdentifiers, E> {
    let mut known = Known::default();
    let mut people: Vec<Person> = named.iter().map(Person::new).collect();
    let mut pending: BTreeSet<Identifier> = named.clone();
    let mut rounds = 0;
    while !pending.is_empty() && rounds < ROUNDS_MAX {
        rounds += 1;
        let wanted: Vec<Identifier> = pending.into_iter().collect();
        known.take(&wanted, look(&wanted)?);
        pending = people.iter_mut().flat_map(|person| person.advance(&known, named)).collect();
        pending.retain(|identifier| !known.looked.contains(identifier));
    }
    let mut identifiers = LinkedIdentifiers {
        named: named.clone(),
        rounds,
        is_complete: pending.is_empty(),
        ..LinkedIdentifiers::default()
    };
    let is_met =
        |identifier: &Identifier| !known.carrying(identifier).is_empty() || known.too_wide.contains(identifier);
    identifiers.unmet = named.iter().filter(|identifier| !is_met(identifier)).cloned().collect();
    identifiers.spellings = std::mem::take(&mut known.spellings);
    for person in &people {
        identifiers.linked.extend(person.followed.iter().filter(|identifier| !named.contains(identifier)).cloned());
        identifiers.not_followed.extend(person.not_followed.iter().map(|(identifier, why)| (identifier.clone(), *why)));
        let visitors =
            person.followed.iter().filter(|identifier| identifier.kind == IdentifierKind::VisitorUuid).count();
        for identifier in &person.followed {
            let stands_for = match identifier.kind {
                IdentifierKind::UserId | IdentifierKind::Email => visitors.max(1),
                IdentifierKind::VisitorUuid => 1,
                _ => continue,
            };
            let most = identifiers.visitors_of.entry(identifier.clone()).or_default();
            *most = stands_for.max(*most);
        }
    }
    let LinkedIdentifiers { named, linked, not_followed, .. } = &mut identifiers;
    not_followed.retain(|identifier, _| !linked.contains(identifier) && !named.contains(identifier));
    Ok(identifiers)
}

fn users<'a>(identifiers: impl Iterator<Item = &'a Identifier>) -> impl Iterator<Item = &'a Identifier> {
    identifiers.filter(|identifier| identifier.kind == IdentifierKind::UserId)
}

/// What was read of rows so far.
#[derive(Debug, Default)]
struct Known {
    rows: Vec<Vec<Identifier>>,
    carrying: HashMap<Identifier, Vec<usize>>,
    seen: HashSet<Vec<Identifier>>,
    looked: HashSet<Identifier>,
    too_wide: HashSet<Identifier>,
    spellings: Spellings,
}

impl Known {
    fn take(&mut self, looked: &[Identifier], co_occurrence: CoOccurrence) {
        merge_spellings(&mut self.spellings, co_occurrence.spellings);
        self.looked.extend(looked.iter().cloned());
        self.too_wide.extend(co_occurrence.too_wide);
        for row in co_occurrence.rows {
            if self.seen.insert(row.clone()) {
                for identifier in &row {
                    self.carrying.entry(identifier.clone()).or_default().push(self.rows.len());
                }
                self.rows.push(row);
            }
        }
    }

    fn carrying(&self, identifier: &Identifier) -> &[usize] {
        self.carrying.get(identifier).map_or(&[], Vec::as_slice)
    }

    fn row(&self, at: usize) -> &[Identifier] {
        self.rows.get(at).map_or(&[], Vec::as_slice)
    }

    /// The user ids on a row; of one without any, those on the rows of its sessions.
    /// `Err` names the sessions that have to be looked for first.
    fn users_of(&self, at: usize) -> Result<BTreeSet<&Identifier>, Vec<Identifier>> {
        let own: BTreeSet<&Identifier> = users(self.row(at).iter()).collect();
        if !own.is_empty() {
            return Ok(own);
        }
        let sessions = self.row(at).iter().filter(|identifier| identifier.kind == IdentifierKind::Session);
        let (mut found, mut unknown) = (BTreeSet::new(), Vec::new());
        for session in sessions {
            if !self.looked.contains(session) {
                unknown.push(session.clone());
            }
            for row in self.carrying(session) {
                found.extend(users(self.row(*row).iter()));
            }
        }
        if unknown.is_empty() { Ok(found) } else { Err(unknown) }
    }

    /// Whether a row, or one of its sessions, carries one of these.
    fn is_of(&self, at: usize, named: &BTreeSet<Identifier>) -> bool {
        let sessions = self.row(at).iter().filter(|identifier| identifier.kind == IdentifierKind::Session);
        let rows = sessions.flat_map(|session| self.carrying(session)).copied();
        rows.chain([at]).any(|row| self.row(row).iter().any(|identifier| named.contains(identifier)))
    }

    /// Whether more visitors carry it, or share a session with it, than a person has.
    fn has_many_visitors(&self, identifier: &Identifier) -> bool {
        let rows = self.carrying(identifier).iter();
        let sessions = rows.clone().flat_map(|row| self.row(*row)).filter(|one| one.kind == IdentifierKind::Session);
        let rows: BTreeSet<usize> = sessions.flat_map(|session| self.carrying(session)).chain(rows).copied().collect();
        let all = rows.iter().flat_map(|row| self.row(*row));
        let visitors: BTreeSet<_> = all.filter(|one| one.kind == IdentifierKind::VisitorUuid).collect();
        self.too_wide.contains(identifier) || visitors.len() > VISITORS_PER_LEAD_MAX
    }
}

/// One of the named, and what belongs to them.
#[derive(Debug)]
struct Person {
    seed: Identifier,
    followed: BTreeSet<Identifier>,
    users: BTreeSet<Identifier>,
    rows: BTreeSet<usize>,
    not_followed: BTreeMap<Identifier, NotFollowed>,
}

/// What became of a lead.
enum Verdict {
    Follow,
    Leave(NotFollowed),
    /// These have to be looked for first.
    Unknown(Vec<Identifier>),
}

impl Person {
    fn new(seed: &Identifier) -> Person {
        Person {
            seed: seed.clone(),
            followed: BTreeSet::from([seed.clone()]),
            users: users(std::iter::once(seed)).cloned().collect(),
            rows: BTreeSet::new(),
            not_followed: BTreeMap::new(),
        }
    }

    /// Follows what can be followed by what is known, and says what has to be looked for to go on.
    fn advance(&mut self, known: &Known, named: &BTreeSet<Identifier>) -> BTreeSet<Identifier> {
        loop {
            let before = (self.followed.len(), self.rows.len());
            self.rows.extend(self.followed.iter().flat_map(|identifier| known.carrying(identifier).iter().copied()));
            let mut pending = self.adopt(known, named);
            let identifiers: BTreeSet<Identifier> = self
                .rows
                .iter()
                .flat_map(|row| known.row(*row))
                .filter(|lead| !self.followed.contains(lead))
                .cloned()
                .collect();
            for lead in identifiers.into_iter().filter(|lead| lead.kind != IdentifierKind::UserId) {
                match self.judge(&lead, known, named) {
                    Verdict::Follow => {
                        self.followed.insert(lead);
                    }
                    Verdict::Leave(why) => {
                        self.not_followed.insert(lead, why);
                    }
                    Verdict::Unknown(first) => pending.extend(first),
                }
            }
            if before == (self.followed.len(), self.rows.len()) {
                pending.extend(self.followed.iter().filter(|own| !known.looked.contains(own)).cloned());
                return pending;
            }
        }
    }

    /// User ids on the person's rows: the person's own, if there is one alone or they were named.
    fn adopt(&mut self, known: &Known, named: &BTreeSet<Identifier>) -> BTreeSet<Identifier> {
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
                if !known.looked.contains(&user) {
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

    fn judge(&self, lead: &Identifier, known: &Known, named: &BTreeSet<Identifier>) -> Verdict {
        use IdentifierKind::{AnonymousId, Email, Session, UserId, VisitorId, VisitorUuid};
        let is_of_seed = || known.carrying(lead).iter().any(|row| known.row(*row).contains(&self.seed));
        if lead.kind == Session && self.seed.kind != UserId && is_of_seed() {
            return Verdict::Follow;
        }
        if !known.looked.contains(lead) {
            return Verdict::Unknown(vec![lead.clone()]);
        }
        let is_visitor = matches!(lead.kind, VisitorId | VisitorUuid);
        if known.too_wide.contains(lead)
            || (is_visitor && self.seed.kind == Email && known.has_many_visitors(&self.seed))
        {
            return Verdict::Leave(NotFollowed::TooMany);
        }
        let (mut visitors, mut sessions, mut unknown) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let mut links_strangers = false;
        for row in known.carrying(lead).iter().filter(|row| !self.rows.contains(row)) {
            match known.users_of(*row) {
                Ok(users) if users.iter().any(|user| !self.users.contains(*user) && !named.contains(*user)) => {
                    return Verdict::Leave(NotFollowed::Shared);
                }
                // A visitor is one wherever they come from; an address is what anybody typed.
                Ok(users) => {
                    let may_be_typed = matches!(lead.kind, Email | AnonymousId);
                    links_strangers |= may_be_typed && users.is_empty() && !known.is_of(*row, named);
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
            if visitors.len() > VISITORS_PER_LEAD_MAX || sessions.len() > SESSIONS_PER_LEAD_MAX {
                return Verdict::Leave(NotFollowed::TooMany);
            }
        }
        match (unknown.is_empty(), links_strangers) {
            (false, _) => Verdict::Unknown(unknown),
            (true, true) => Verdict::Leave(NotFollowed::Strangers),
            (true, false) => Verdict::Follow,
        }
    }
}

#[cfg(test)]
mod tests;
