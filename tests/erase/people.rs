//! The people of these tests: who is planted, who is erased, and the rows of everybody else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use studysync_sandbox::ListName;

use super::grep::Needle;
use crate::harness::{DAY_MS, NOW_MS, Place, Row, Service};

/// A user id with non-ASCII letters and a mail address with a plus sign.
pub const ZOE: &str = "zoë/日本 4711";
pub const ZOE_MAIL: &str = "Zoë.Müller+News@example.com";
/// A person without a user id.
pub const VISITOR: &str = "2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162";

/// A record of a response by this person, created this many days ago.
pub fn record(session: &str, question: u32, who: &serde_json::Value, answer: &str, days_ago: i64) -> String {
    let at_ms = NOW_MS - days_ago * DAY_MS + i64::from(question) * 1000 + session.len() as i64;
    let at =
        chrono::DateTime::from_timestamp_millis(at_ms).unwrap().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let mut record = json!({
        "createdAt": at, "updatedAt": at, "deletedAt": null, "questionId": question, "questionText": "How?",
        "questionType": "OPEN", "response": answer, "responseGroupUid": session, "surveyId": 990, "url": "https://x.example/",
        "meta": { "href": "https://x.example/", "browser": "Firefox" },
    });
    record.as_object_mut().unwrap().extend(who.as_object().unwrap().clone());
    record.to_string()
}

/// The members that identify a person in the service's records.
pub fn identity(user: Option<&str>, visitor: u32, uuid: &str, session: &str, mail: Option<&str>) -> serde_json::Value {
    let mut attributes = json!({ "plan": "free" });
    if let Some(mail) = mail {
        attributes["emailAddress"] = json!(mail);
    }
    json!({
        "externalUserId": user, "visitorId": visitor, "visitorUuid": uuid,
        "visitorSnapshot": {
            "visitorId": uuid.to_uppercase(), "externalUserId": user, "attributes": attributes, "responseGroupUid": session,
            "triggeringEvent": "page_loaded", "eventProperties": {}, "events": {},
        },
    })
}

pub const SESSIONS: [&str; 4] = [
    "aaaaaaaa-0000-4000-8000-000000000001",
    "aaaaaaaa-0000-4000-8000-000000000002",
    "aaaaaaaa-0000-4000-8000-000000000003",
    "aaaaaaaa-0000-4000-8000-000000000004",
];
pub const ZOE_UUID: &str = "7c1c9d6e-0b7a-4c55-9a40-1d2e3f405163";

/// Two people whom the generator does not make: one with an unusual user id and mail address, one with only a visitor
/// UUID.
pub fn plant(service: &Service) {
    plant_with(service, "as it was");
}

/// Edits their answers.
pub fn edit(service: &Service) {
    plant_with(service, "and as it is now");
}

fn plant_with(service: &Service, answer: &str) {
    let plant = |record: String| service.control().plant(ListName::Responses, &record, None).unwrap();
    for (at, session) in SESSIONS[..2].iter().enumerate() {
        let who = identity(Some(ZOE), 880_001, ZOE_UUID, session, Some(ZOE_MAIL));
        plant(record(session, 9001, &who, answer, 3 + at as i64));
        let answer = format!("{answer}, {ZOE} wrote");
        plant(record(session, 9002, &who, &answer, 3 + at as i64));
    }
    // A session from before she had an account.
    let who = identity(Some(""), 880_001, ZOE_UUID, SESSIONS[2], None);
    plant(record(SESSIONS[2], 9001, &who, answer, 8));
    let who = identity(None, 880_002, VISITOR, SESSIONS[3], None);
    plant(record(SESSIONS[3], 9001, &who, answer, 5));
    let theme = json!({
        "id": 77, "createdAt": "2026-01-27T08:00:00.123Z", "updatedAt": "2026-01-27T08:00:00.123Z", "questionId": 9001,
        "questionText": "How?", "questionType": "OPEN", "response": answer, "responseGroupUid": SESSIONS[3],
        "surveyId": 990, "theme": "planted", "themeDescription": "planted", "visitorId": 880_002,
    });
    service.control().plant(ListName::Themes, &theme.to_string(), None).unwrap();
}

/// A person who will be erased.
#[derive(Clone, Debug)]
pub struct Person {
    arguments: [String; 2],
    names: Vec<String>,
    pub sessions: BTreeSet<String>,
}

impl Person {
    /// A person of whom only one name is known.
    pub fn named(flag: &str, name: &str) -> Person {
        Person {
            arguments: [flag.to_owned(), name.to_owned()],
            names: vec![name.to_owned()],
            sessions: BTreeSet::new(),
        }
    }

    /// The arguments on the command line.
    pub fn arguments(&self) -> [&str; 2] {
        [&self.arguments[0], &self.arguments[1]]
    }

    /// All texts that must be gone.
    pub fn needles(&self) -> Vec<Needle> {
        self.names.iter().chain(&self.sessions).map(|text| Needle::new(text)).collect()
    }
}

/// Every row of every warehouse.
pub struct Everybody {
    rows: BTreeMap<(&'static str, String), Vec<Row>>,
}

fn cell<'a>(row: &'a Row, name: &str) -> Option<&'a str> {
    row.get(name).and_then(Option::as_deref)
}

impl Everybody {
    pub fn read(place: &Place) -> Everybody {
        let mut rows = BTreeMap::new();
        for (name, tables) in place.warehouses() {
            for table in crate::harness::all_contracts().keys() {
                rows.insert((name, table.clone()), tables.rows(table));
            }
        }
        Everybody { rows }
    }

    fn of(&self, table: &str) -> &[Row] {
        &self.rows[&("DuckDB", table.to_owned())]
    }

    /// A generated person with an edited answer, whose user id satisfies the condition.
    fn generated(&self, is_it: impl Fn(&str) -> bool) -> Person {
        let edited = self.of("response_history").iter().filter_map(|row| cell(row, "external_user_id"));
        let user = edited.filter(|user| is_it(user)).max().expect("such a person was edited").to_owned();
        let rows: Vec<&Row> =
            self.of("responses").iter().filter(|row| cell(row, "external_user_id") == Some(&user)).collect();
        let of = |name: &str| rows.iter().filter_map(|row| cell(row, name)).map(str::to_owned).collect::<BTreeSet<_>>();
        let sessions = of("response_group_uid");
        let is_theirs = |row: &&Row| cell(row, "response_group_uid").is_some_and(|session| sessions.contains(session));
        let attributes = self.of("visitor_snapshot_attributes").iter().filter(is_theirs);
        let mails =
            attributes.filter(|row| cell(row, "name") == Some("email")).filter_map(|row| cell(row, "value_text"));
        let mut names: BTreeSet<String> = mails.map(str::to_owned).collect();
        assert_eq!(names.len(), 1, "{user} has one address");
        names.extend(of("visitor_uuid"));
        names.insert(user.clone());
        Person { arguments: ["--user-id".into(), user], names: names.into_iter().collect(), sessions }
    }

    /// Four people: one with a plain user id, one with non-ASCII letters, one named by the mail address, one by a UUID
    /// in the other case.
    pub fn to_erase(&self) -> Vec<Person> {
        let planted = |flag: &str, value: String, names: &[&str], sessions: &[&str]| Person {
            arguments: [flag.to_owned(), value],
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            sessions: sessions.iter().map(|session| (*session).to_owned()).collect(),
        };
        vec![
            self.generated(|user| user.starts_with("user-")),
            self.generated(|user| user.starts_with("usér")),
            planted("--email", ZOE_MAIL.to_uppercase(), &[ZOE, ZOE_MAIL, ZOE_UUID], &SESSIONS[..3]),
            planted("--visitor-id", VISITOR.to_uppercase(), &[VISITOR], &SESSIONS[3..]),
        ]
    }

    /// Asserts that the rows of everybody else are unchanged, and that there are no other rows.
    pub fn assert_others_are_left(&self, place: &Place, gone: &[Person], when: &str) {
        let sessions: BTreeSet<&String> = gone.iter().flat_map(|person| &person.sessions).collect();
        let is_others = |row: &&Row| {
            let session = row.get("response_group_uid").and_then(Option::as_ref);
            session.is_none_or(|session| !sessions.contains(session))
        };
        let now = Everybody::read(place);
        for ((name, table), before) in &self.rows {
            if ["sync_runs", "sync_windows", "erasures"].contains(&table.as_str()) {
                continue;
            }
            let sorted = |rows: &[Row]| {
                let mut texts: Vec<String> = rows.iter().filter(is_others).map(|row| format!("{row:?}")).collect();
                texts.sort();
                texts
            };
            let after = &now.rows[&(*name, table.clone())];
            assert!(sorted(before) == sorted(after), "{when}: {name} {table}: others' rows changed");
            assert_eq!(after.len(), sorted(after).len(), "{when}: {name} {table} holds rows of the erased");
        }
    }
}
