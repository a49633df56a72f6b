//! What a warehouse may contain and must contain: each version of each record at the service, and each key seen in a
//! warehouse. Asks the product nothing.

use std::collections::{BTreeMap, BTreeSet};

use studysync::model::Window;
use studysync_sandbox::ListName;

use super::service::ScriptedService;
use crate::harness::{
    Cell, Row, content_columns, contract,
    expected::{BASES, CHILDREN, Entity, Expected, Seen, settled_ms},
    key_text,
};

/// Far in the future, also in microseconds.
const FOR_EVER_MS: i64 = i64::MAX / 1000;

/// A session that goes on for longer can have a second snapshot: its row is looked up this far around.
const SESSION_US_MAX: i64 = 7 * 86_400_000_000;

type Versions = BTreeMap<&'static str, BTreeMap<String, Vec<Entity>>>;

/// The oracle of one script.
#[derive(Default)]
pub struct Oracle {
    versions: Versions,
    loaded: BTreeMap<(&'static str, &'static str), BTreeSet<String>>,
    /// The responses that were there from the beginning and never went.
    settlers: Option<BTreeMap<String, Settler>>,
    /// The responses of the service when the settlers were last counted.
    counted: Vec<String>,
}

/// A response that was always there.
#[derive(Clone, Debug)]
struct Settler {
    created_ms: i64,
    survey_id: i64,
    is_deleted: bool,
}

/// The rows of one warehouse, read at one time.
pub struct Contents {
    pub name: &'static str,
    pub tables: BTreeMap<String, Vec<Row>>,
}

/// The columns of a base table that a scan without flags does not blank: they may be of another version than the rest.
fn flagged(base: &str) -> BTreeSet<&'static str> {
    let columns = contract(base).columns.iter().filter(|column| !column.flag.is_empty());
    columns.map(|column| column.name.as_str()).collect()
}

impl Oracle {
    /// Learns what is new at the service.
    pub fn learn(&mut self, service: &ScriptedService) {
        self.count_settlers(service);
        for (list, record) in service.new_records() {
            let of = |wanted: ListName| (list == wanted).then(|| record.clone());
            let seen = Seen { until_ms: FOR_EVER_MS, with_flags: true };
            let [responses, themes, surveys] = [ListName::Responses, ListName::Themes, ListName::Surveys].map(of);
            let expected = Expected::of_records(responses, themes, surveys, seen);
            for (base, entities) in expected.bases {
                for (key, new) in entities {
                    let held = self.versions.entry(base).or_default().entry(key).or_default();
                    held.extend(new);
                }
            }
        }
    }

    /// Strikes out who is gone, and learns who is deleted.
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

    /// What was always there is in a warehouse, and not as vanished,
    /// once a backfill of its time is finished (promises P3, P6).
    pub fn is_whole(&self, contents: &Contents, window: Window, surveys: &[i64], with_deleted: bool) {
        let table = contract("responses");
        // A key can have rows of several moments, one of which went.
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

    /// The versions whose columns, but those that flags brought, are those of the row.
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

    /// Checks that each row was once true at the service, children included, and remembers what is loaded. `is_torn`: a
    /// publish was cut short and not yet finished, so some tables are ahead of others.
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

    /// What a flag brought is nothing, or what some version had.
    fn check_optional(&self, when: &str, base: &'static str, row: &Row, optional: &BTreeSet<&str>) {
        let versions = &self.versions[base][&key_text(contract(base), row)];
        for name in optional {
            let is_known = row[*name].is_none() || versions.iter().any(|version| version.row[*name] == row[*name]);
            assert!(is_known, "{when}: {base}.{name} was never like this: {row:?}");
        }
    }

    /// What a warehouse must hold once the service is calm and everything was looked at: all that the service holds,
    /// and what was loaded once and is gone, marked as vanished.
    pub fn expected(&self, service: &ScriptedService, contents: &Contents) -> Expected {
        let seen = Seen { until_ms: settled_ms(service.control().now_ms()), with_flags: true };
        let [responses, themes, surveys] =
            [ListName::Responses, ListName::Themes, ListName::Surveys].map(|list| service.truth(list));
        let mut expected = Expected::of_records(responses, themes, surveys, seen);
        for base in BASES {
            let optional = flagged(base);
            for row in &contents.tables[base] {
                let key = key_text(contract(base), row);
                let now = expected.bases[base].get(&key).map_or(&[][..], Vec::as_slice);
                // The earliest snapshot of a session stays, though its answer be gone; snapshots do not vanish.
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

/// A version with what flags brought of a row.
fn with_optional(version: &Entity, row: &Row, optional: &BTreeSet<&str>) -> Entity {
    let mut version = version.clone();
    optional.iter().for_each(|name| drop(version.row.insert((*name).to_owned(), row[*name].clone())));
    if optional.contains("custom_metadata") {
        version.read_custom_metadata();
    }
    version
}

/// A key of responses is there once. Themes that share a key are looked up where their creation time says that they
/// are, so of several at different times, which fall into different windows, each has its row.
fn one_row_a_key(when: &str, base: &'static str, rows: &[Row]) {
    let mut seen = BTreeMap::new();
    for row in rows {
        let moment = (base != "responses").then(|| created_us(row));
        let first = seen.insert((key_text(contract(base), row), moment), row);
        assert!(first.is_none(), "{when}: a key of {base} is there twice: {first:?}\n  and {row:?}");
    }
}

type Part = (String, Vec<Cell>);

/// A child's table and content.
fn content(table: &str, row: &Row) -> Part {
    (table.to_owned(), content_columns(table).iter().map(|name| row[*name].clone()).collect())
}

/// A row of a base table: its key, and when it was created where rows of one key can lie at several moments.
type Owner = (String, Option<String>);

fn moment(base: &'static str, row: &Row) -> Option<String> {
    contract(base).partition.as_deref().and_then(|at| row[at].clone())
}

/// The children in a warehouse by the row that they belong to, sorted.
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
