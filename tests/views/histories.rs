//! Thirteen nights of random changes: answers, themes and surveys that are edited, vanish and return, and webhooks that
//! are lost, repeated and late. A plain model records what each night returned. In both warehouses, every `*_as_of`,
//! `row_changes` and the status changes equal the model, and a replay equals the original in every column.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use studysync::{
    flatten::{body_hash, summarize_body},
    state::{Inbox, NewDelivery},
};
use studysync_sandbox::{ListName, RowKey};

use super::warehouse::Warehouse;
use crate::{
    harness::{ALL_FLAGS, DAY_MS, NOW_MS, Place, Service, days_ago, small},
    replay::{Before, replay},
};

const NIGHTS: i64 = 13;
const HOUR_MS: i64 = 3_600_000;
const SURVEYS: [i64; 4] = [900_001, 900_002, 900_003, 900_004];
const STATUSES: [&str; 4] = ["DRAFT", "IN_PROGRESS", "PAUSED", "COMPLETED"];
/// The survey whose webhooks all arrive, at once.
const TOLD: i64 = SURVEYS[0];

/// An answer or a theme in the service's list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    survey: i64,
    text: String,
    is_deleted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Survey {
    status: &'static str,
    launched_ms: Option<i64>,
    completed_ms: Option<i64>,
    question: String,
}

/// A status change at the service.
#[derive(Clone, Debug)]
struct Change {
    at_ms: i64,
    survey: i64,
    old: &'static str,
    new: &'static str,
}

/// The service's data on a night.
#[derive(Clone, Default)]
struct Night {
    answers: BTreeMap<u64, Content>,
    themes: BTreeMap<u64, Content>,
    surveys: BTreeMap<i64, Survey>,
}

impl Night {
    /// Changes rows between the night `night` and the one before.
    fn change_rows(&mut self, random: &mut StdRng, night: i64) {
        for (rows, can_be_deleted) in [(&mut self.answers, true), (&mut self.themes, false)] {
            for _ in 0..if night == 0 { 14 } else { 5 } {
                let id = random.random_range(1..12);
                let text = if random.random_bool(0.4) { "again".to_owned() } else { format!("of night {night}") };
                let survey = SURVEYS[if random.random_bool(0.2) { 3 } else { id as usize % 3 }];
                let is_deleted = can_be_deleted && random.random_bool(0.2);
                match random.random_range(0..3) {
                    0 => drop(rows.remove(&id)),
                    _ => drop(rows.insert(id, Content { survey, text, is_deleted })),
                }
            }
        }
    }

    /// Changes the statuses of surveys since the night before, and returns the changes in order of time.
    fn change_statuses(&mut self, random: &mut StdRng, night: i64) -> Vec<Change> {
        let mut changes = Vec::new();
        for (id, survey) in &mut self.surveys {
            let mut times: Vec<i64> =
                (0..random.random_range(0..4)).map(|_| random.random_range(HOUR_MS..DAY_MS)).collect();
            times.sort_unstable();
            for after_ms in times {
                let at_ms = night_ms(night - 1) + after_ms;
                let new = STATUSES[random.random_range(0..STATUSES.len())];
                if new == survey.status {
                    continue;
                }
                changes.push(Change { at_ms, survey: *id, old: survey.status, new });
                survey.status = new;
                match new {
                    "IN_PROGRESS" if survey.launched_ms.is_none() => survey.launched_ms = Some(at_ms),
                    "COMPLETED" => survey.completed_ms = Some(at_ms),
                    _ => {}
                }
            }
            if random.random_bool(0.2) {
                survey.question = format!("of night {night}");
            }
        }
        changes.sort_by_key(|change| change.at_ms);
        changes
    }

    /// Makes the service list these rows, and removes rows that only `before` had.
    fn put(&self, service: &Service, before: &Night) {
        let control = service.control();
        for id in before.answers.keys().filter(|id| !self.answers.contains_key(id)) {
            assert_eq!(control.remove_row(&key("a", *id)), 1);
        }
        for id in before.themes.keys().filter(|id| !self.themes.contains_key(id)) {
            assert_eq!(control.remove_row(&key("b", *id)), 1);
        }
        for (id, Content { survey, text, is_deleted }) in &self.answers {
            let mut record = row("a", *id, *survey);
            let deleted_at = is_deleted.then(|| time(NOW_MS - DAY_MS / 2));
            record["response"] = json!(text);
            record["deletedAt"] = json!(deleted_at);
            control.plant(ListName::Responses, &record.to_string(), None).unwrap();
        }
        for (id, Content { survey, text, .. }) in &self.themes {
            let mut record = row("b", *id, *survey);
            record["id"] = json!(id);
            (record["theme"], record["themeDescription"]) = (json!(text), json!("d"));
            control.plant(ListName::Themes, &record.to_string(), None).unwrap();
        }
        for (id, survey) in &self.surveys {
            let question = json!({"id": 1, "type": "OPEN", "questionText": survey.question, "options": []});
            let record = json!({"id": id, "name": "s", "platform": "web", "type": "CONTINUOUS", "status": survey.status,
                "createdAt": time(NOW_MS - 60 * DAY_MS), "updatedAt": time(NOW_MS - 60 * DAY_MS),
                "launchedAt": survey.launched_ms.map(time), "completedAt": survey.completed_ms.map(time),
                "totalResponseLimit": null, "constraints": [], "questions": [question]});
            control.plant(ListName::Surveys, &record.to_string(), None).unwrap();
        }
    }

    /// The rows of [`as_of`] that belong to a test, sorted.
    fn lines(&self) -> BTreeMap<&'static str, Vec<String>> {
        let rows = |rows: &BTreeMap<u64, Content>| {
            let there = rows.iter().filter(|(_, content)| !content.is_deleted);
            there.map(|(id, content)| format!("{id} | {} | {}", content.survey, content.text)).collect()
        };
        let surveys = self.surveys.iter();
        BTreeMap::from([
            ("responses", rows(&self.answers)),
            ("themes", rows(&self.themes)),
            ("surveys", surveys.clone().map(|(id, survey)| format!("{id} | {}", survey.status)).collect()),
            ("questions", surveys.map(|(id, survey)| format!("{id} | {}", survey.question)).collect()),
        ])
    }
}

fn night_ms(night: i64) -> i64 {
    NOW_MS + night * DAY_MS
}

fn time(at_ms: i64) -> String {
    studysync::model::format_ms(at_ms)
}

fn key(kind: &str, id: u64) -> RowKey {
    RowKey { group: format!("00000000-0000-4000-800{kind}-{id:012}"), question: id.to_string() }
}

/// A record without its answer. Its creation time is in the days before the first night.
fn row(kind: &str, id: u64, survey: i64) -> serde_json::Value {
    let created = time(NOW_MS - (id as i64 % 5 + 1) * DAY_MS);
    json!({"createdAt": created, "updatedAt": created, "questionId": id, "questionText": "q", "questionType": "OPEN",
        "response": "r", "responseGroupUid": key(kind, id).group, "surveyId": survey, "visitorId": id})
}

/// Returns the planted rows of an `*_as_of` at a time.
fn as_of(table: &str, at_ms: i64) -> String {
    let (columns, is_planted) = match table {
        "responses" => ("question_id, survey_id, answer_text", "response_group_uid LIKE '%-800a-%'"),
        "themes" => ("id, survey_id, theme", "response_group_uid LIKE '%-800b-%'"),
        "surveys" => ("id, status", "id > 900000"),
        _ => ("survey_id, question_text", "survey_id > 900000"),
    };
    format!("SELECT {columns} FROM {table}_as_of(make_timestamp({at_ms}000)) WHERE {is_planted} ORDER BY 1")
}

fn lines(warehouse: &Warehouse, sql: &str) -> Vec<String> {
    let rows = warehouse.query(sql).into_iter();
    rows.map(|row| row.into_iter().map(|cell| cell.unwrap_or("NULL".into())).collect::<Vec<_>>().join(" | ")).collect()
}

/// The counts of `row_changes` for one survey, of answers or of themes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    before: i64,
    new: i64,
    edited: i64,
    returned: i64,
    deleted: i64,
    vanished: i64,
    after: i64,
}

/// Counts the changes from the night `earlier` to the night `later`, row by row and night by night.
fn counted(nights: &[BTreeMap<u64, Content>], earlier: usize, later: usize) -> BTreeMap<i64, Counts> {
    let mut counts: BTreeMap<i64, Counts> = BTreeMap::new();
    let is_there = |content: &&Content| !content.is_deleted;
    for content in nights[earlier].values().filter(is_there) {
        counts.entry(content.survey).or_default().before += 1;
    }
    for content in nights[later].values().filter(is_there) {
        counts.entry(content.survey).or_default().after += 1;
    }
    for night in earlier + 1..=later {
        let ids: BTreeSet<&u64> = nights[night - 1].keys().chain(nights[night].keys()).collect();
        for id in ids {
            let (was, is) = (nights[night - 1].get(id), nights[night].get(id));
            let was_ever = nights[..night].iter().any(|night| night.contains_key(id));
            let mut add = |content: &Content, count: fn(&mut Counts) -> &mut i64| {
                *count(counts.entry(content.survey).or_default()) += 1;
            };
            match (was.filter(is_there), is.filter(is_there)) {
                (None, Some(is)) if was_ever => add(is, |counts| &mut counts.returned),
                (None, Some(is)) => add(is, |counts| &mut counts.new),
                (Some(was), None) if is.is_some() => add(was, |counts| &mut counts.deleted),
                (Some(was), None) => add(was, |counts| &mut counts.vanished),
                (Some(was), Some(is)) if was.survey != is.survey => {
                    add(was, |counts| &mut counts.vanished);
                    add(is, |counts| &mut counts.new);
                }
                (Some(was), Some(is)) if was != is => add(is, |counts| &mut counts.edited),
                (Some(_), Some(_)) => {}
                // An edit of a deleted answer: the number of answers does not change.
                (None, None) => {
                    if let (Some(was), Some(is)) = (was, is)
                        && was != is
                        && was.survey == is.survey
                    {
                        add(is, |counts| &mut counts.edited);
                    }
                }
            }
        }
    }
    counts.retain(|_, counts| Counts { before: 0, after: 0, ..*counts } != Counts::default());
    counts
}

/// The counts of `row_changes`, by survey: of answers, and of themes.
fn changes(warehouse: &Warehouse, earlier: i64, later: i64) -> [BTreeMap<i64, Counts>; 2] {
    let sql = format!(
        "SELECT survey_id, answers_before, new_answers, edited, returned, deleted, vanished, answers_after,
             themes_before, new_themes, changed_themes, returned_themes, 0 AS deleted_themes, vanished_themes, themes_after
         FROM row_changes(make_timestamp({}000), make_timestamp({}000)) WHERE survey_id > 900000",
        night_ms(earlier) + HOUR_MS,
        night_ms(later) + HOUR_MS
    );
    let mut counts = [BTreeMap::new(), BTreeMap::new()];
    for row in warehouse.query(&sql) {
        let row: Vec<i64> = row.iter().map(|cell| cell.as_deref().unwrap().parse().unwrap()).collect();
        for (counts, numbers) in counts.iter_mut().zip(row[1..].chunks(7)) {
            let [before, new, edited, returned, deleted, vanished, after] = numbers[..] else { panic!("{row:?}") };
            assert_eq!(before + new + returned - deleted - vanished, after, "{row:?}: {sql}");
            let found = Counts { before, new, edited, returned, deleted, vanished, after };
            if (Counts { before: 0, after: 0, ..found }) != Counts::default() {
                counts.insert(row[0], found);
            }
        }
    }
    counts
}

/// The webhook deliveries of these changes: some are lost, some arrive twice, some arrive after the next night.
fn deliveries(random: &mut StdRng, changes: &[Change]) -> Vec<(i64, String)> {
    let mut deliveries = Vec::new();
    for Change { at_ms, survey, old, new } in changes {
        let body = json!({"surveyId": survey, "surveyName": "s", "oldStatus": old, "status": new, "environmentId": "e",
            "eventName": "surveyStatusChange", "eventType": "product_message"})
        .to_string();
        let late_ms = if random.random_bool(0.25) { DAY_MS } else { 0 };
        match random.random_range(0..4) {
            _ if *survey == TOLD => deliveries.push((*at_ms, body)),
            0 => {}
            1 => deliveries.extend([(*at_ms, body.clone()), (at_ms + late_ms, body)]),
            _ => deliveries.push((at_ms + late_ms, body)),
        }
    }
    deliveries
}

/// Stores deliveries as `serve` does.
fn receive(service: &Service, place: &Place, deliveries: &[(i64, String)]) {
    let mut inbox = Inbox::open(&place.state(), &service.base_url(), "default").unwrap();
    let stored: Vec<NewDelivery> = (deliveries.iter())
        .map(|(received_ms, body)| NewDelivery {
            received_ms: *received_ms,
            body_hash: body_hash(body.as_bytes()),
            undated_subject: summarize_body(body.as_bytes()).timeless_subject,
            body: body.as_bytes().to_vec(),
        })
        .collect();
    inbox.store(&stored).unwrap();
}

/// A place after all nights, the results of each night, and the status changes.
fn after_all_nights(service: &Service, seed: u64) -> (Place, Vec<Night>, Vec<Change>) {
    let rescan = "rescan = [\"all every run\"]\n";
    let place = Place::new(service).with_config(&format!("{ALL_FLAGS}{rescan}[streams.themes]\n{rescan}"));
    let mut random = StdRng::seed_from_u64(seed);
    let (mut nights, mut all_changes, mut posted) = (Vec::new(), Vec::new(), Vec::new());
    let mut tonight = Night::default();
    for (id, launched_ms) in SURVEYS.into_iter().zip([None, None, None, Some(NOW_MS - 40 * DAY_MS - 7)]) {
        let status = if launched_ms.is_some() { "IN_PROGRESS" } else { "DRAFT" };
        tonight.surveys.insert(id, Survey { status, launched_ms, completed_ms: None, question: "first".into() });
    }
    for night in 0..NIGHTS {
        let before = nights.last().cloned().unwrap_or_default();
        tonight.change_rows(&mut random, night);
        if night == 0 {
            tonight.put(service, &before);
            place.report(&["backfill", "--from", &days_ago(12)], 0);
        } else {
            service.advance_days(1);
            let changes = tonight.change_statuses(&mut random, night);
            posted.extend(deliveries(&mut random, &changes));
            posted.sort();
            let arrived = posted.partition_point(|(received_ms, _)| *received_ms < night_ms(night));
            receive(service, &place, &posted.drain(..arrived).collect::<Vec<_>>());
            all_changes.extend(changes);
            tonight.put(service, &before);
            place.report(&["sync"], 0);
        }
        nights.push(tonight.clone());
    }
    (place, nights, all_changes)
}

fn assert_as_of(warehouse: &Warehouse, nights: &[Night]) {
    for (night, model) in (0..).zip(nights) {
        for at_ms in [night_ms(night) + HOUR_MS, night_ms(night + 1) - 1] {
            for (table, wanted) in model.lines() {
                assert_eq!(lines(warehouse, &as_of(table, at_ms)), wanted, "{}: {table} at {at_ms}", warehouse.name);
            }
        }
    }
    for table in ["responses", "themes", "surveys", "questions"] {
        assert_eq!(lines(warehouse, &as_of(table, night_ms(0) - 1)), Vec::<String>::new(), "{}", warehouse.name);
    }
}

fn assert_changes_add_up(warehouse: &Warehouse, nights: &[Night]) {
    let answers: Vec<_> = nights.iter().map(|night| night.answers.clone()).collect();
    let themes: Vec<_> = nights.iter().map(|night| night.themes.clone()).collect();
    let mut sum = Counts::default();
    for earlier in 0..NIGHTS {
        for later in earlier + 1..NIGHTS {
            let found = changes(warehouse, earlier, later);
            for ((rows, model), found) in [("answers", &answers), ("themes", &themes)].into_iter().zip(found) {
                let wanted = counted(model, earlier as usize, later as usize);
                assert_eq!(found, wanted, "{}: {rows} from {earlier} to {later}", warehouse.name);
                for counts in found.values() {
                    sum.edited += counts.edited;
                    sum.returned += counts.returned;
                    sum.deleted += counts.deleted;
                    sum.vanished += counts.vanished;
                }
            }
        }
    }
    assert!(sum.edited.min(sum.returned).min(sum.deleted).min(sum.vanished) > 20, "the histories are poor: {sum:?}");
}

fn assert_statuses(warehouse: &Warehouse, nights: &[Night], changes: &[Change]) {
    let mut statuses = String::from("SELECT * FROM (VALUES ");
    for (night, model) in (0..).zip(nights) {
        for (id, survey) in &model.surveys {
            write!(statuses, "({id}, make_timestamp({}000), '{}'),", night_ms(night) + HOUR_MS, survey.status).unwrap();
        }
    }
    let statuses = format!("{}) AS truth(id, seen_at, status)", statuses.trim_end_matches(','));
    // The status that a scan saw is right, whatever webhooks said, and the three tables agree with it.
    let wrong = format!(
        "WITH truth AS ({statuses})
         SELECT truth.id, truth.seen_at, truth.status, change.new_status FROM truth
         ASOF LEFT JOIN survey_status_changes AS change ON change.survey_id = truth.id AND change.changed_at <= truth.seen_at
         WHERE change.new_status IS DISTINCT FROM truth.status"
    );
    assert_eq!(lines(warehouse, &wrong), Vec::<String>::new(), "{}", warehouse.name);
    let wrong = "SELECT id, surveys.status, timeline.status FROM surveys
         JOIN survey_status_timeline AS timeline ON timeline.survey_id = id AND until IS NULL
         WHERE surveys.status IS DISTINCT FROM timeline.status";
    assert_eq!(lines(warehouse, wrong), Vec::<String>::new(), "{}", warehouse.name);
    for later in 1..NIGHTS {
        let sql = format!(
            "WITH truth AS ({statuses})
             SELECT survey_id, status_before, status_after FROM row_changes(make_timestamp({0}000), make_timestamp({1}000))
             JOIN truth AS earlier ON earlier.id = survey_id AND earlier.seen_at = make_timestamp({0}000)
             JOIN truth AS later ON later.id = survey_id AND later.seen_at = make_timestamp({1}000)
             WHERE status_before IS DISTINCT FROM earlier.status OR status_after IS DISTINCT FROM later.status",
            night_ms(later - 1) + HOUR_MS,
            night_ms(later) + HOUR_MS
        );
        assert_eq!(lines(warehouse, &sql), Vec::<String>::new(), "{}: night {later}", warehouse.name);
    }
    let changes_of = |survey: i64| {
        let sql = "SELECT epoch_ms(changed_at), old_status, new_status FROM survey_status_changes";
        lines(warehouse, &format!("{sql} WHERE survey_id = {survey} ORDER BY changed_at"))
    };
    // All webhooks of this survey arrived at once, so its changes equal the service's.
    let told = changes.iter().filter(|change| change.survey == TOLD);
    let told = told.map(|Change { at_ms, old, new, .. }| format!("{at_ms} | {old} | {new}"));
    assert_eq!(changes_of(TOLD)[1..], told.collect::<Vec<_>>(), "{}", warehouse.name);
    // This survey was live before the first scan.
    let launched = format!("{} | NULL | IN_PROGRESS", NOW_MS - 40 * DAY_MS - 7);
    assert_eq!(changes_of(SURVEYS[3])[0], launched, "{}", warehouse.name);
    let count = |seen_by: &str| {
        let sql = format!("SELECT count(*) FROM survey_status_changes WHERE seen_by = '{seen_by}'");
        warehouse.text(&sql).unwrap().parse::<i64>().unwrap()
    };
    let [by_webhook, by_both] = ["webhook", "both"].map(count);
    let name = &warehouse.name;
    assert!(by_webhook.min(by_both) > 5, "{name}: the histories are poor: {by_webhook} by webhook, {by_both} by both");
}

#[test]
fn p4_random_nights_equal_a_model_and_their_replay() {
    let service = Service::start(small(60, 10));
    let (place, nights, changes) = after_all_nights(&service, 42);
    for warehouse in &Warehouse::in_utc(&place) {
        assert_as_of(warehouse, &nights);
        assert_changes_add_up(warehouse, &nights);
        assert_statuses(warehouse, &nights, &changes);
    }
    let before = Before::of(&place, "before");
    replay(&service, &place, &[]).expect(0);
    before.assert_is(&place, "after a replay");
}
