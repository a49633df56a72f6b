//! The oracle: what a warehouse may contain and must contain. It stores each version of each record at the service, and
//! each key that was seen in a warehouse. It does not use the program.

use std::collections::{BTreeMap, BTreeSet};

use studysync::model::Window;
use studysync_sandbox::ListName;

use super::{
    contents::{Contents, store_texts},
    script::Script,
    service::ScriptedService,
};
use crate::harness::{
    Cell, Row, content_columns, contract,
    expected::{BASES, CHILDREN, Entity, Expected, Seen, settled_ms},
    key_text,
};

/// A time far in the future that also fits in microseconds.
const FOR_EVER_MS: i64 = i64::MAX / 1000;

/// The range around a session in which its snapshot is looked up. A longer session can have a second snapshot.
const SESSION_US_MAX: i64 = 7 * 86_400_000_000;

const LISTS: [ListName; 3] = [ListName::Responses, ListName::Themes, ListName::Surveys];

type Versions = BTreeMap<&'static str, BTreeMap<String, Vec<Entity>>>;

/// The oracle of one script.
pub struct Oracle<'a> {
    script: &'a Script,
    versions: Versions,
    loaded: BTreeMap<(&'static str, &'static str), BTreeSet<String>>,
    /// The responses that exist since the beginning and never vanished.
    settlers: Option<BTreeMap<String, Settler>>,
    /// The service's responses at the last update of the settlers.
    counted: Vec<String>,
}

/// A response that exists since the beginning.
#[derive(Clone, Debug)]
struct Settler {
    created_ms: i64,
    survey_id: i64,
    is_deleted: bool,
}

/// Returns the columns of a base table that a scan without flags does not change. They may be of another version than
/// the rest of the row.
fn flagged(base: &str) -> BTreeSet<&'static str> {
    let columns = contract(base).columns.iter().filter(|column| !column.flag.is_empty());
    columns.map(|column| column.name.as_str()).collect()
}

impl<'s> Oracle<'s> {
    pub fn new(script: &'s Script) -> Oracle<'s> {
        let (versions, loaded) = (Versions::default(), BTreeMap::new());
        Oracle { script, versions, loaded, settlers: None, counted: Vec::new() }
    }

    /// Returns the rows for these records, as a warehouse of the script stores them.
    fn rows_of(&self, lists: [impl IntoIterator<Item = String>; 3], seen: Seen) -> Expected {
        let [responses, themes, surveys] = lists;
        let mut expected = Expected::of_records(responses, themes, surveys, seen);
        for entity in expected.bases.values_mut().flat_map(BTreeMap::values_mut).flatten() {
            store_texts(self.script, &mut entity.row);
            entity.children.iter_mut().for_each(|(_, row)| store_texts(self.script, row));
        }
        expected
    }

    /// Records the service's new versions.
    pub fn learn(&mut self, service: &ScriptedService) {
        self.count_settlers(service);
        for (list, record) in service.new_records() {
            let of = |wanted: ListName| (list == wanted).then(|| record.clone());
            let seen = Seen { until_ms: FOR_EVER_MS, with_flags: true };
            let expected = self.rows_of(LISTS.map(of), seen);
            for (base, entities) in expected.bases {
                for (key, new) in entities {
                    let held = self.versions.entry(base).or_default().entry(key).or_default();
                    held.extend(new);
                }
            }
        }
    }

    /// Removes settlers that vanished, and marks settlers that were deleted.
    fn count_settlers(&mut self, service: &ScriptedService) {
        let records = service.truth(ListName::Responses);
        if self.settlers.is_some() && records == self.counted {
            return;
        }
        let mut present = BTreeMap::new();
        for record in &records {
            let value: serde_json::Value = serde_json::from_str(record).unwrap_or_default();
            let (Some(group), Some(question)) = (value["responseGroupUid"].as_str(), value["questionId"].as_i64())
            else {
                continue;
            };
            let at = value["createdAt"].as_str().and_then(|at| chrono::DateTime::parse_from_rfc3339(at).ok());
            let (Some(at), Some(survey_id)) = (at, value["surveyId"].as_i64()) else { continue };
            let is_deleted = !value["deletedAt"].is_null();
            present.insert(
                format!("{group} / {question}"),
                Settler { created_ms: at.timestamp_millis(), survey_id, is_deleted },
            );
        }
        self.counted = records;
        self.settlers = Some(match self.settlers.take() {
            None => present,
            Some(held) => present.into_iter().filter(|(key, _)| held.contains_key(key)).collect(),
        });
    }

    /// Asserts that a warehouse has each settler, not marked as vanished, once a backfill of its time is finished
    /// (promises P3, P6).
    pub fn is_whole(&self, contents: &Contents, window: Window, surveys: &[i64], with_deleted: bool) {
        let table = contract("responses");
        // A key can have rows with several creation times, one of which vanished.
        let mut rows: BTreeMap<String, bool> = BTreeMap::new();
        for row in &contents.tables["responses"] {
            *rows.entry(key_text(table, row)).or_default() |= row["_vanished_at"].is_none();
        }
        for (key, settler) in self.settlers.iter().flatten() {
            let is_asked_for = window.contains(settler.created_ms)
                && (surveys.is_empty() || surveys.contains(&settler.survey_id))
                && (with_deleted || !settler.is_deleted);
            let name = contents.name;
            assert!(
                !is_asked_for || rows.get(key) == Some(&true),
                "{name}: {key} was always there, and a finished backfill of {window} left it out (held: {:?}): {settler:?}",
                rows.get(key)
            );
        }
    }

    /// Returns the versions whose columns equal the row's, ignoring columns that depend on flags.
    fn versions_of<'a>(
        &'a self,
        base: &'static str,
        row: &'a Row,
        optional: &'a BTreeSet<&str>,
    ) -> impl Iterator<Item = &'a Entity> {
        let versions = self.versions.get(base).and_then(|keys| keys.get(&key_text(contract(base), row)));
        let columns = content_columns(base);
        let is_same = move |version: &&Entity| {
            columns.iter().filter(|column| !optional.contains(*column)).all(|name| version.row[*name] == row[*name])
        };
        versions.into_iter().flatten().filter(is_same)
    }

    /// Asserts that each row, with its children, is a version that the service once had, and records which keys are
    /// loaded. `is_torn`: a publish was interrupted, so some tables are newer than others.
    pub fn check(&mut self, contents: &Contents, is_torn: bool) {
        let when = contents.name;
        for (base, children) in CHILDREN {
            let rows = &contents.tables[base];
            let keys: BTreeSet<String> = rows.iter().map(|row| key_text(contract(base), row)).collect();
            one_row_a_key(when, base, rows);
            let children = if is_torn { &[] } else { children };
            let held = children_by_owner(contents, base, children);
            let optional = flagged(base);
            for row in rows {
                let key = key_text(contract(base), row);
                let versions: Vec<&Entity> = self.versions_of(base, row, &optional).collect();
                if versions.is_empty() {
                    let known = self.versions.get(base).and_then(|keys| keys.get(&key));
                    panic!("{when}: {base} {key} was never like this: {row:?}\n  known: {known:?}");
                }
                self.check_optional(when, base, row, &optional);
                let held = held.get(&(key.clone(), moment(base, row))).cloned().unwrap_or_default();
                let wanted = |version: &&Entity| {
                    let of_table = |(table, _): &&(&str, Row)| children.contains(table);
                    let version = with_optional(version, row, &optional);
                    let mut rows: Vec<_> =
                        version.children.iter().filter(of_table).map(|(table, row)| content(table, row)).collect();
                    rows.sort();
                    rows == held
                };
                let (is_whole, first) = (versions.iter().any(wanted), &versions[0].children);
                assert!(
                    is_whole || children.is_empty(),
                    "{when}: parts of {base} {key}: {held:?}\n  wanted: {first:?}"
                );
            }
            let loaded = self.loaded.entry((contents.name, base)).or_default();
            if let Some(lost) = loaded.iter().find(|key| !keys.contains(*key)) {
                panic!("{when}: {base} {lost} was loaded once and is no longer there");
            }
            *loaded = keys;
        }
    }

    /// Asserts that each column that depends on a flag is NULL, or has the value of some version.
    fn check_optional(&self, when: &str, base: &'static str, row: &Row, optional: &BTreeSet<&str>) {
        let versions = &self.versions[base][&key_text(contract(base), row)];
        for name in optional {
            let is_known = row[*name].is_none() || versions.iter().any(|version| version.row[*name] == row[*name]);
            assert!(is_known, "{when}: {base}.{name} was never like this: {row:?}");
        }
    }

    /// Returns the required content of a warehouse once the service has no faults and everything was scanned again: all
    /// records of the service, and loaded rows that are gone, marked as vanished.
    pub fn expected(&self, service: &ScriptedService, contents: &Contents) -> Expected {
        let seen = Seen { until_ms: settled_ms(service.control().now_ms()), with_flags: true };
        let mut expected = self.rows_of(LISTS.map(|list| service.truth(list)), seen);
        for base in BASES {
            let optional = flagged(base);
            for row in &contents.tables[base] {
                let key = key_text(contract(base), row);
                let now = expected.bases[base].get(&key).map_or(&[][..], Vec::as_slice);
                // The earliest snapshot of a session stays, even if its answer is gone; snapshots do not vanish.
                let is_snapshot = base == "visitor_snapshots";
                let is_now = |now: &Entity| match is_snapshot {
                    true => created_us(row) > created_us(&now.row),
                    false => created_us(row) == created_us(&now.row),
                };
                let is_long =
                    is_snapshot && now.iter().all(|now| created_us(row) - created_us(&now.row) > SESSION_US_MAX);
                if now.iter().any(is_now) && !is_long {
                    continue;
                }
                let Some(version) = self.versions_of(base, row, &optional).next() else {
                    panic!("{}: {base} {key} was never like this: {row:?}", contents.name);
                };
                let mut gone = with_optional(version, row, &optional);
                gone.has_vanished = !is_snapshot;
                let is_held = |later: &Entity| {
                    let is_it = |held: &Row| {
                        key_text(contract(base), held) == key && created_us(held) == created_us(&later.row)
                    };
                    contents.tables[base].iter().any(is_it)
                };
                let entities = expected.bases.get_mut(base).unwrap().entry(key.clone()).or_default();
                if is_snapshot && !is_long {
                    entities
                        .retain(|later| created_us(&later.row) - created_us(row) > SESSION_US_MAX && is_held(later));
                }
                entities.push(gone);
            }
        }
        expected
    }
}

/// Returns a version with the row's values of the columns that depend on flags.
fn with_optional(version: &Entity, row: &Row, optional: &BTreeSet<&str>) -> Entity {
    let mut version = version.clone();
    optional.iter().for_each(|name| drop(version.row.insert((*name).to_owned(), row[*name].clone())));
    if optional.contains("custom_metadata") {
        version.read_custom_metadata();
    }
    version
}

/// Asserts that a key of responses is there once. Themes are looked up by key and creation time, so themes of one key
/// in different windows each have a row.
fn one_row_a_key(when: &str, base: &'static str, rows: &[Row]) {
    let mut seen = BTreeMap::new();
    for row in rows {
        let moment = (base != "responses").then(|| created_us(row));
        let first = seen.insert((key_text(contract(base), row), moment), row);
        assert!(first.is_none(), "{when}: a key of {base} is there twice: {first:?}\n  and {row:?}");
    }
}

type Part = (String, Vec<Cell>);

/// The table and content of a child row.
fn content(table: &str, row: &Row) -> Part {
    (table.to_owned(), content_columns(table).iter().map(|name| row[*name].clone()).collect())
}

/// A row of a base table: its key, and its creation time if rows of one key can have several.
type Owner = (String, Option<String>);

fn moment(base: &'static str, row: &Row) -> Option<String> {
    contract(base).partition.as_deref().and_then(|at| row[at].clone())
}

/// Returns the child rows of a warehouse by their base row, sorted.
fn children_by_owner(contents: &Contents, base: &'static str, children: &[&str]) -> BTreeMap<Owner, Vec<Part>> {
    let key = contract(base).key.iter().map(|name| if base == "surveys" { "survey_id" } else { name.as_str() });
    let key: Vec<&str> = key.collect();
    let mut held: BTreeMap<Owner, Vec<Part>> = BTreeMap::new();
    for table in children {
        for row in &contents.tables[*table] {
            let owner: Vec<&str> = key.iter().map(|name| row[*name].as_deref().unwrap_or("NULL")).collect();
            held.entry((owner.join(" / "), moment(base, row))).or_default().push(content(table, row));
        }
    }
    held.values_mut().for_each(|parts| parts.sort());
    held
}

fn created_us(row: &Row) -> i64 {
    row["created_at"].as_deref().unwrap().parse().unwrap()
}
