//! Answers requests about users. An upserted user can be read after a delay. Generated visitors can be read too.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    super::{faults::Faults, json_text::Time, random::uuid_of, world::Visitor},
    reply::Reply,
    state::{EventCount, Service, StoredUser, lock},
};

/// Maximum attributes of an upsert, by the contract.
const ATTRIBUTES_MAX: usize = 100;
/// Maximum upserted users; the sandbox refuses more.
const USERS_MAX: usize = 1_000_000;
const USER_PURPOSE: u64 = 0x0005_E4ED;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Upsert {
    user_id: String,
    // The contract says `email`; some of its samples say `emailAddress`.
    #[serde(alias = "emailAddress")]
    email: Option<String>,
    #[serde(default)]
    attributes: Map<String, Value>,
    #[serde(default)]
    events: Vec<UpsertEvent>,
}

#[derive(Deserialize)]
struct UpsertEvent {
    event: String,
    timestamp: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UserRecord<'a> {
    id: String,
    external_user_id: &'a str,
    created_at: Value,
    attributes: Map<String, Value>,
    events: Vec<EventRecord<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventRecord<'a> {
    event: &'a str,
    count: u64,
    created_at: Value,
    updated_at: Value,
}

impl Service {
    /// Answers an upsert. Stores the user and merges the upsert with earlier ones; refuses an invalid upsert. The fault
    /// `lost_answer` stores the user but answers with an error.
    pub(crate) fn upsert_user(&self, body: &[u8], faults: &Faults) -> Reply {
        let upsert: Upsert = match serde_json::from_slice(body) {
            Ok(upsert) => upsert,
            Err(error) => return Reply::bad_request(&error.to_string()),
        };
        if let Err(message) = check(&upsert, faults) {
            return Reply::bad_request(&message);
        }
        let mut table = lock(&self.users);
        if table.users.len() >= USERS_MAX && !table.contains(&upsert.user_id) {
            return Reply::error(StatusCode::INSUFFICIENT_STORAGE, "the sandbox holds no more users");
        }
        let visible_us = self.clock.elapsed_us().saturating_add(faults.user_delay_ms.saturating_mul(1000));
        let created_ms = self.clock.now_ms();
        let number = table.next_number;
        table.next_number += u64::from(!table.users.contains_key(&upsert.user_id));
        let new = StoredUser { number, created_ms, visible_us, ..StoredUser::default() };
        let user = table.users.entry(upsert.user_id).or_insert(new);
        user.upserts += 1;
        user.email = upsert.email.or(user.email.take());
        user.attributes.extend(upsert.attributes);
        for UpsertEvent { event, timestamp } in upsert.events {
            let counted =
                user.events.entry(event).or_insert(EventCount { count: 0, first_ms: timestamp, last_ms: timestamp });
            counted.count += 1;
            counted.first_ms = counted.first_ms.min(timestamp);
            counted.last_ms = counted.last_ms.max(timestamp);
        }
        drop(table);
        if self.strikes("lost_answer", "/v2/users") {
            return Reply::fault("lost_answer", faults.lost_answer.status, "internal error");
        }
        Reply::json(StatusCode::ACCEPTED, "{}")
    }

    /// Answers a read of one user: the generated visitor with this user id, merged with the upserted user. If both have
    /// an attribute, the upserted one is sent. An upserted user is ignored until its delay has passed. 404 if there is
    /// neither.
    pub(super) fn read_user(&self, encoded_id: &str, faults: &Faults) -> Reply {
        let id = percent_decoded(encoded_id);
        let now_us = self.clock.elapsed_us();
        let stored = lock(&self.users).users.get(&id).filter(|user| user.visible_us <= now_us).cloned();
        let world = self.world();
        let visitor = world.visitor_named(&id, Visitor::external_user_id);
        if stored.is_none() && visitor.is_none() {
            return Reply::error(StatusCode::NOT_FOUND, "user not found");
        }
        let stored = stored.unwrap_or_default();
        let generated = visitor.and_then(|visitor| serde_json::to_value(visitor.attributes()).ok());
        let mut attributes = generated.and_then(|value| value.as_object().cloned()).unwrap_or_default();
        attributes.extend(stored.attributes);
        attributes.extend(stored.email.map(|email| ("email".to_owned(), Value::from(email))));
        let uuid = visitor.map_or_else(|| uuid_of(world.seed ^ USER_PURPOSE, stored.number), |visitor| visitor.uuid);
        let time = |at_ms: i64| {
            if faults.iso_user_times {
                serde_json::json!(Time::from(at_ms))
            } else if faults.user_times_in_seconds {
                Value::from(at_ms.div_euclid(1000))
            } else {
                Value::from(at_ms)
            }
        };
        let record = UserRecord {
            id: uuid::Uuid::from_u128(uuid).to_string(),
            external_user_id: &id,
            created_at: time(visitor.map_or(stored.created_ms, |visitor| visitor.created_ms(world.start_ms))),
            attributes,
            events: (stored.events.iter())
                .map(|(event, counted)| EventRecord {
                    event,
                    count: counted.count,
                    created_at: time(counted.first_ms),
                    updated_at: time(counted.last_ms),
                })
                .collect(),
        };
        Reply::json(StatusCode::OK, serde_json::to_vec(&record).unwrap_or_default())
    }
}

/// Checks an upsert by the contract. The error is the message for a response with status 400.
fn check(upsert: &Upsert, faults: &Faults) -> Result<(), String> {
    if upsert.user_id.is_empty() {
        return Err("'userId' must not be empty".into());
    }
    if upsert.email.as_ref().is_some_and(|email| !email.contains('@')) {
        return Err("'email' must be an e-mail address".into());
    }
    if upsert.attributes.len() > ATTRIBUTES_MAX {
        return Err(format!("at most {ATTRIBUTES_MAX} attributes"));
    }
    let is_plain = |value: &Value| value.is_string() || value.is_i64() || value.is_u64() || value.is_boolean();
    match upsert.attributes.iter().find(|(_, value)| !is_plain(value) && !faults.any_attribute_values) {
        Some((name, _)) => Err(format!("attribute '{name}' must be a string, an integer or a boolean")),
        None => Ok(()),
    }
}

/// Decodes the percent escapes of a path segment. Invalid escapes are kept as they are.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escape = tail.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_decoded() {
        assert_eq!(percent_decoded("us%C3%A9r%2F%E6%97%A5%20001"), "usér/日 001");
        assert_eq!(percent_decoded("100%"), "100%");
        assert_eq!(percent_decoded("%zz"), "%zz");
    }
}
