//! Merges two folders of erasures: that of this machine, and the copy in the bucket of a warehouse that several
//! machines write in turns.
//!
//! A receipt says how far an erasure is. So an entry of the list is dropped if the receipt says that the suppression is
//! over, and a journal if there is a receipt.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use super::{
    SuppressionEntry, SuppressionError,
    suppression_list::{KEY_FILE, LIST_FILE, ListFile},
};

/// The texts of the files in a folder of erasures, by name.
pub type ErasureFiles = BTreeMap<String, String>;

/// How far an erasure is, by its receipt. Later states are larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Progress {
    /// True if nobody of the erasure is suppressed any more.
    is_over: bool,
    /// How often the suppression of some of the people ended.
    ends: usize,
}

impl Progress {
    fn of(receipt: &str) -> Progress {
        let receipt: Value = serde_json::from_str(receipt).unwrap_or_default();
        let ends = receipt["suppression_ended"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_over =
            receipt.get("service_has_purged").is_some() || ends.iter().any(|end| end["identifiers_left"] == 0);
        Progress { is_over, ends: ends.len() }
    }
}

/// Returns the files of both folders. `folder` is that of this machine, and `copy` names the other one.
///
/// # Errors
/// `OtherKey` if both have erasures, with different keys.
pub fn merge_erasures(
    own: &ErasureFiles,
    other: &ErasureFiles,
    folder: &Path,
    copy: &str,
) -> Result<ErasureFiles, SuppressionError> {
    let mut merged = own.clone();
    for (name, text) in other {
        let known = merged.entry(name.clone()).or_insert_with(|| text.clone());
        if is_receipt(name) && Progress::of(text) > Progress::of(known) {
            known.clone_from(text);
        }
    }
    let has_receipt = |name: &str| name.strip_suffix(".journal").is_some_and(|id| own_or(own, other, id).is_some());
    merged.retain(|name, _| !has_receipt(name));
    if own.get(KEY_FILE) != other.get(KEY_FILE) && own.contains_key(KEY_FILE) && other.contains_key(KEY_FILE) {
        match (needs_key(own, folder)?, needs_key(other, folder)?) {
            (true, true) => {
                return Err(SuppressionError::OtherKey { folder: folder.to_owned(), copy: copy.to_owned() });
            }
            (true, false) => {}
            (false, _) => drop(merged.insert(KEY_FILE.to_owned(), other[KEY_FILE].clone())),
        }
    }
    let entries = merge_entries(own, other, &merged, folder)?;
    if own.contains_key(LIST_FILE) || other.contains_key(LIST_FILE) {
        merged.insert(LIST_FILE.to_owned(), ListFile::of(entries).text(folder)?);
    }
    Ok(merged)
}

/// Returns the entries of both lists whose suppression is not over. Of an erasure in both lists, the entry of the
/// bucket counts, which the last writer has left there, unless this machine has ended more of it.
fn merge_entries(
    own: &ErasureFiles,
    other: &ErasureFiles,
    merged: &ErasureFiles,
    folder: &Path,
) -> Result<Vec<SuppressionEntry>, SuppressionError> {
    let progress = |files: &ErasureFiles, entry: &SuppressionEntry| {
        files.get(&receipt_of(&entry.erasure_id)).map(|receipt| Progress::of(receipt)).unwrap_or_default()
    };
    let mut entries = entries(own, folder)?;
    for mut entry in self::entries(other, folder)? {
        let Some(known) = entries.iter_mut().find(|known| known.erasure_id == entry.erasure_id) else {
            entries.push(entry);
            continue;
        };
        if progress(own, &entry) <= progress(other, &entry) {
            entry.add_met(known);
            *known = entry;
        }
    }
    entries.retain(|entry| !progress(merged, entry).is_over);
    Ok(entries)
}

fn entries(files: &ErasureFiles, folder: &Path) -> Result<Vec<SuppressionEntry>, SuppressionError> {
    files.get(LIST_FILE).map_or(Ok(Vec::new()), |text| ListFile::entries_in(text.as_bytes(), &folder.join(LIST_FILE)))
}

/// Returns true if files are written with the key.
fn needs_key(files: &ErasureFiles, folder: &Path) -> Result<bool, SuppressionError> {
    Ok(files.keys().any(|name| name.ends_with(".journal")) || !entries(files, folder)?.is_empty())
}

fn own_or<'a>(own: &'a ErasureFiles, other: &'a ErasureFiles, erasure_id: &str) -> Option<&'a String> {
    let name = receipt_of(erasure_id);
    own.get(&name).or_else(|| other.get(&name))
}

fn receipt_of(erasure_id: &str) -> String {
    format!("{erasure_id}.json")
}

fn is_receipt(name: &str) -> bool {
    name.ends_with(".json") && name != LIST_FILE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Identifier, IdentifierKind, Stream, Window},
        person::{IdentifierKey, SuppressionList},
    };

    /// The files of a machine that has erased a person.
    fn erased(key: Option<&str>, erasure_id: &str) -> ErasureFiles {
        let folder = tempfile::tempdir().unwrap();
        if let Some(key) = key {
            std::fs::write(folder.path().join(KEY_FILE), key).unwrap();
        }
        let mut list = SuppressionList::read(folder.path()).unwrap();
        let key: IdentifierKey = list.key().unwrap();
        let named = vec![key.hash(&Identifier::read(IdentifierKind::UserId, "anna").unwrap())];
        let met = BTreeMap::from([(Stream::Responses, vec![Window::new(0, 10)])]);
        let entry = SuppressionEntry {
            erasure_id: erasure_id.to_owned(),
            until_ms: 5,
            named,
            linked: Vec::new(),
            users: Vec::new(),
            met,
            absent: BTreeMap::new(),
        };
        list.put(entry).unwrap();
        let read = |name: &str| (name.to_owned(), std::fs::read_to_string(folder.path().join(name)).unwrap());
        ErasureFiles::from([read(KEY_FILE), read(LIST_FILE)])
    }

    fn ids(files: &ErasureFiles) -> Vec<String> {
        let ids = entries(files, Path::new("f")).unwrap().into_iter().map(|entry| entry.erasure_id);
        ids.collect()
    }

    fn merge(own: &ErasureFiles, other: &ErasureFiles) -> Result<ErasureFiles, SuppressionError> {
        merge_erasures(own, other, Path::new("f"), "s3://b/w")
    }

    fn with(files: &ErasureFiles, name: &str, text: &str) -> ErasureFiles {
        let mut files = files.clone();
        files.insert(name.to_owned(), text.to_owned());
        files
    }

    #[test]
    fn p9_a_merged_list_has_the_people_of_both() {
        let one = erased(None, "one");
        let two = erased(Some(&one[KEY_FILE]), "two");
        assert_eq!(ids(&merge(&one, &two).unwrap()), ["one", "two"]);
        assert_eq!(merge(&ErasureFiles::new(), &one).unwrap(), merge(&one, &one).unwrap());
        assert_eq!(ids(&merge(&one, &ErasureFiles::new()).unwrap()), ["one"]);
    }

    #[test]
    fn p9_a_suppression_that_is_over_does_not_come_back() {
        let one = erased(None, "one");
        let over = [r#"{"service_has_purged":{}}"#, r#"{"suppression_ended":[{"identifiers_left":0}]}"#];
        for receipt in over {
            let mut ended = with(&one, "one.json", receipt);
            ended.remove(LIST_FILE);
            let behind = with(&one, "one.json", "{}");
            for merged in [merge(&behind, &ended).unwrap(), merge(&ended, &behind).unwrap()] {
                assert_eq!((ids(&merged), merged["one.json"].as_str()), (Vec::new(), receipt));
            }
        }
        // A part of the people: the machine that ended it has fewer identifiers.
        let mut part = with(&one, "one.json", r#"{"suppression_ended":[{"identifiers_left":1}]}"#);
        part.insert(LIST_FILE.to_owned(), one[LIST_FILE].replace("\"until_ms\": 5", "\"until_ms\": 6"));
        let behind = with(&one, "one.json", "{}");
        for merged in [merge(&behind, &part).unwrap(), merge(&part, &behind).unwrap()] {
            assert_eq!(entries(&merged, Path::new("f")).unwrap()[0].until_ms, 6);
        }
    }

    #[test]
    fn p9_a_journal_of_a_finished_erasure_does_not_come_back() {
        let one = erased(None, "one");
        let begun = with(&one, "one.journal", "{}");
        assert!(merge(&one, &begun).unwrap().contains_key("one.journal"));
        let finished = with(&one, "one.json", "{}");
        for merged in [merge(&begun, &finished).unwrap(), merge(&finished, &begun).unwrap()] {
            assert!(!merged.contains_key("one.journal"));
        }
    }

    #[test]
    fn p9_lists_with_different_keys_are_not_merged() {
        let (one, two) = (erased(None, "one"), erased(None, "two"));
        assert!(matches!(merge(&one, &two), Err(SuppressionError::OtherKey { .. })));
        // A key that nothing needs gives way.
        let only_key = ErasureFiles::from([(KEY_FILE.to_owned(), two[KEY_FILE].clone())]);
        for merged in [merge(&only_key, &one).unwrap(), merge(&one, &only_key).unwrap()] {
            assert_eq!((ids(&merged), &merged[KEY_FILE]), (vec!["one".to_owned()], &one[KEY_FILE]));
        }
    }
}
