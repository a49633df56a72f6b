//! Ends the suppression of people before the service has purged them, for example because they signed up again.

use std::collections::{BTreeMap, BTreeSet};

use super::{KeyedHash, SuppressionEntry, SuppressionList};
use crate::model::{Identifier, IdentifierKind, IntervalSet, Stream, Window, WrittenIdentifier};

/// The part of an erasure whose suppression ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSuppression {
    pub erasure_id: String,
    /// Number of identifiers that are no longer suppressed.
    pub identifiers: usize,
    /// Number of identifiers of the erasure that stay suppressed; 0 if the suppression of the erasure is over.
    pub left: usize,
    /// Windows in which scans may have left out records of the erased people.
    pub windows: BTreeMap<Stream, Vec<Window>>,
}

/// What ids name: erasures, and identifiers of people.
#[derive(Default)]
struct Named {
    erasures: BTreeSet<String>,
    hashes: BTreeSet<KeyedHash>,
}

impl SuppressionList {
    /// Ends the suppression of the people with these ids. An id is that of an erasure, or any identifier of a person;
    /// several ids can be separated by commas. Changes the list in memory only: [`SuppressionList::write`] writes it.
    ///
    /// An erasure of one named person ends with any identifier of the person. Of an erasure of several people, only the
    /// identifiers with an id end, because nothing says to whom the linked ones belong. It ends if all named ones end.
    ///
    /// # Errors
    /// Returns the ids that name nobody on the list, without any change.
    pub fn end(&mut self, ids: &[String]) -> Result<Vec<EndedSuppression>, Vec<String>> {
        let mut named = Named::default();
        let unknown: Vec<String> = ids.iter().filter(|id| !self.find(id, &mut named)).cloned().collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let mut ended = Vec::new();
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain_mut(|entry| {
            let end = self.end_entry(entry, &named);
            let is_over = end.as_ref().is_some_and(|end| end.left == 0);
            ended.extend(end);
            !is_over
        });
        self.entries = entries;
        Ok(ended)
    }

    /// Adds what an id names. Returns false if it names nobody on the list.
    fn find(&self, id: &str, named: &mut Named) -> bool {
        if self.find_one(id, named) {
            return true;
        }
        let parts: Vec<&str> = id.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        parts.len() > 1 && parts.iter().filter(|part| !self.find_one(part, named)).count() == 0
    }

    fn find_one(&self, id: &str, named: &mut Named) -> bool {
        let known = |hash: &KeyedHash| {
            self.entries.iter().any(|entry| entry.named.contains(hash) || entry.linked.contains(hash))
        };
        let hashes: Vec<KeyedHash> = self.hashes_of(id).into_iter().filter(known).collect();
        let is_erasure = self.entries.iter().any(|entry| entry.erasure_id == id);
        named.erasures.extend(is_erasure.then(|| id.to_owned()));
        let is_known = is_erasure || !hashes.is_empty();
        named.hashes.extend(hashes);
        is_known
    }

    fn hashes_of(&self, text: &str) -> Vec<KeyedHash> {
        let Some(key) = &self.key else { return Vec::new() };
        let written = IdentifierKind::ALL.into_iter().filter_map(|kind| WrittenIdentifier::read(kind, text));
        // Earlier versions of the program hashed identifiers as they were written.
        let forms = written.flat_map(|written| [written.as_written(), Some(written.identifier)]);
        forms.flatten().map(|identifier| key.hash(&identifier)).collect()
    }

    /// Removes what `named` names from an entry. Returns `None` if that is nothing.
    fn end_entry(&self, entry: &mut SuppressionEntry, named: &Named) -> Option<EndedSuppression> {
        let is_ended = |hash: &KeyedHash| named.hashes.contains(hash);
        let has_any = entry.named.iter().chain(&entry.linked).any(is_ended);
        let is_whole = named.erasures.contains(&entry.erasure_id)
            || (has_any && entry.named.len() == 1)
            || (!entry.named.is_empty() && entry.named.iter().all(is_ended));
        if !is_whole && !has_any {
            return None;
        }
        let before = entry.named.len() + entry.linked.len();
        if is_whole {
            (entry.named, entry.linked) = (Vec::new(), Vec::new());
        } else {
            entry.named.retain(|hash| !is_ended(hash));
            entry.linked.retain(|hash| !is_ended(hash));
            // Otherwise a run would request the user from the service, and find that it was not purged.
            if let Some(key) = &self.key {
                let hash = |id: &String| Identifier::read(IdentifierKind::UserId, id).map(|one| key.hash(&one));
                let users = entry.users.iter().filter(|sealed| {
                    let id = entry.open_user(key, sealed);
                    !id.as_ref().and_then(hash).is_some_and(|hash| is_ended(&hash))
                });
                entry.users = users.cloned().collect();
            }
        }
        let left = entry.named.len() + entry.linked.len();
        let windows = entry.met.keys().map(|stream| (*stream, entry.unproven(*stream))).collect();
        Some(EndedSuppression { erasure_id: entry.erasure_id.clone(), identifiers: before - left, left, windows })
    }
}

impl SuppressionEntry {
    /// Returns the windows of a stream that had records of the people, except those in which a later scan found none.
    fn unproven(&self, stream: Stream) -> Vec<Window> {
        let mut unproven: IntervalSet = self.met.get(&stream).into_iter().flatten().copied().collect();
        self.absent.get(&stream).into_iter().flatten().for_each(|window| unproven.remove(*window));
        unproven.windows().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: &str = "user-anna";

    /// A list with an erasure of one person, and one of two.
    fn list(folder: &std::path::Path) -> SuppressionList {
        let mut list = SuppressionList::read(folder).unwrap();
        let key = list.key().unwrap();
        let hash = |kind, text: &str| key.hash(&Identifier::read(kind, text).unwrap());
        let (user, mail, number) = (IdentifierKind::UserId, IdentifierKind::Email, IdentifierKind::VisitorId);
        let entry = |id: &str, users: &[&str], linked| SuppressionEntry {
            erasure_id: id.to_owned(),
            until_ms: 5,
            named: users.iter().map(|id| hash(user, id)).collect(),
            linked,
            users: SuppressionEntry::sealed_users(&key, id, users).unwrap(),
            met: BTreeMap::from([(Stream::Responses, vec![Window::new(0, 100)])]),
            absent: BTreeMap::from([(Stream::Responses, vec![Window::new(20, 30)])]),
        };
        let linked = vec![hash(mail, "anna@example.com"), hash(number, "17")];
        list.put(entry("one", &[ANNA], linked)).unwrap();
        list.put(entry("two", &["user-bob", "user,cid"], vec![hash(mail, "bob@example.com")])).unwrap();
        list
    }

    fn ended(ids: &[&str]) -> Result<Vec<(String, usize, usize)>, Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let mut list = list(folder.path());
        let before = list.clone();
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let result = list.end(&ids);
        if result.is_err() {
            assert_eq!(list.entries, before.entries);
        }
        Ok(result?.into_iter().map(|end| (end.erasure_id, end.identifiers, end.left)).collect())
    }

    #[test]
    fn p9_each_id_of_a_person_ends_their_suppression() {
        for id in [ANNA, "Anna@Example.com", "017", "one"] {
            assert_eq!(ended(&[id]), Ok(vec![("one".to_owned(), 3, 0)]), "{id}");
        }
        let both = vec![("one".to_owned(), 3, 0), ("two".to_owned(), 3, 0)];
        for ids in [&["one", "two"][..], &["one,two"], &[ANNA, "user,cid", "user-bob"]] {
            assert_eq!(ended(ids), Ok(both.clone()), "{ids:?}");
        }
        assert_eq!(ended(&["user,cid"]), Ok(vec![("two".to_owned(), 1, 2)]));
        assert_eq!(ended(&["user-bob", "bob@example.com"]), Ok(vec![("two".to_owned(), 2, 1)]));
        assert_eq!(ended(&[ANNA, "nobody", "one,none"]), Err(vec!["nobody".to_owned(), "one,none".to_owned()]));
    }

    #[test]
    fn p9_others_of_the_erasure_stay_suppressed() {
        let folder = tempfile::tempdir().unwrap();
        let mut list = list(folder.path());
        let windows = list.end(&["user-bob".to_owned()]).unwrap().remove(0).windows;
        let expected = vec![Window::new(0, 20), Window::new(30, 100)];
        assert_eq!(windows, BTreeMap::from([(Stream::Responses, expected)]));
        let key = list.key().unwrap();
        let entry = list.entries().iter().find(|entry| entry.erasure_id == "two").unwrap();
        assert_eq!(entry.user_ids(&key), ["user,cid"], "the service is not asked whether it has purged the other");
        let hash = |text| key.hash(&Identifier::read(IdentifierKind::UserId, text).unwrap());
        assert!(entry.named.contains(&hash("user,cid")) && !entry.named.contains(&hash("user-bob")));
    }
}
