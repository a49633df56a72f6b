//! One row, as a JSON object, becomes an upsert: every rule of the service that can be checked here is.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{ATTRIBUTES_MAX, AttributeValue, Event, SetAside, Upsert};
use crate::model::{parse_date, steers_display};

const USER_ID: &str = "userId";
const EMAIL: &str = "email";
const ATTRIBUTES: &str = "attributes";
const EVENTS: &str = "events";
/// What stands before the name of an attribute that is a column of its own.
pub(super) const ATTRIBUTE_PREFIX: &str = "attributes.";
/// Letters of a value that a reason shows.
const SHOWN_LETTERS: usize = 40;

/// Says what is wrong with the names of columns, if anything.
pub fn check_columns<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let names: Vec<&str> = names.into_iter().collect();
    for (at, name) in names.iter().enumerate() {
        check_name(name)?;
        if names[..at].contains(name) {
            return Err(format!("the column '{name}' stands twice"));
        }
    }
    match names.contains(&USER_ID) {
        true => Ok(()),
        false => Err(format!("there is no column {USER_ID}, only: {}", names.join(", "))),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    match name {
        USER_ID | EMAIL | ATTRIBUTES | EVENTS => Ok(()),
        ATTRIBUTE_PREFIX => Err("an attribute without a name".to_owned()),
        name if name.starts_with(ATTRIBUTE_PREFIX) => Ok(()),
        name => Err(format!(
            "there is no column '{}'; there are {USER_ID}, {EMAIL}, {EVENTS}, {ATTRIBUTES} and {ATTRIBUTE_PREFIX}NAME",
            shown(name)
        )),
    }
}

/// Reads the JSON object of a row.
pub(super) fn read_json(text: &[u8]) -> Result<Upsert, SetAside> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(members)) => read_members(members),
        Ok(_) => Err(SetAside::of("the row is no JSON object")),
        Err(error) => Err(SetAside::of(format!("the row is no JSON: {error}"))),
    }
}

/// Reads the members of a row.
pub(super) fn read_members(mut members: Map<String, Value>) -> Result<Upsert, SetAside> {
    let user_id = match members.remove(USER_ID) {
        Some(Value::String(user_id)) if !user_id.is_empty() => user_id,
        None | Some(Value::Null | Value::String(_)) => return Err(SetAside::of("there is no userId")),
        Some(other) => return Err(SetAside::of(format!("userId is {}, and not a text", sort_of(&other)))),
    };
    let rest = read_rest(members);
    rest.map(|(email, attributes, events)| Upsert { user_id: user_id.clone(), email, attributes, events })
        .map_err(|reason| SetAside { user_id: Some(user_id), reason })
}

type Rest = (Option<String>, BTreeMap<String, AttributeValue>, Vec<Event>);

fn read_rest(members: Map<String, Value>) -> Result<Rest, String> {
    let (mut email, mut attributes, mut events) = (None, BTreeMap::new(), Vec::new());
    for (name, value) in members {
        check_name(&name)?;
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            (EMAIL, value) => email = Some(read_email(value)?),
            (EVENTS, value) => events = read_events(value)?,
            (ATTRIBUTES, value) => match opened(value) {
                Value::Object(members) => {
                    members.into_iter().try_for_each(|(name, value)| add(&mut attributes, name, value))?;
                }
                other => return Err(format!("attributes are {}, and not an object", sort_of(&other))),
            },
            (name, value) => add(&mut attributes, name[ATTRIBUTE_PREFIX.len()..].to_owned(), value)?,
        }
    }
    match attributes.len() {
        0..=ATTRIBUTES_MAX => Ok((email, attributes, events)),
        count => Err(format!("{count} attributes; the service takes at most {ATTRIBUTES_MAX}")),
    }
}

/// What a text holds, where a column carries JSON as text.
fn opened(value: Value) -> Value {
    match &value {
        Value::String(text) => serde_json::from_str(text).unwrap_or(value),
        _ => value,
    }
}

fn read_email(value: Value) -> Result<String, String> {
    match value {
        Value::String(email) => {
            let is_address = email.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
            if is_address { Ok(email) } else { Err(format!("'{}' is no e-mail address", shown(&email))) }
        }
        other => Err(format!("email is {}, and not a text", sort_of(&other))),
    }
}

fn add(attributes: &mut BTreeMap<String, AttributeValue>, name: String, value: Value) -> Result<(), String> {
    let value = match value {
        // Nothing is said of it, so it stays as it is at the service.
        Value::Null => return Ok(()),
        _ if name.is_empty() => return Err("an attribute without a name".to_owned()),
        Value::String(text) => AttributeValue::Text(text),
        Value::Bool(truth) => AttributeValue::Boolean(truth),
        Value::Number(number) => match number.as_i64() {
            Some(number) => AttributeValue::Integer(number),
            None if number.is_u64() => {
                return Err(format!("attribute '{}' is too large: integers end at {}", shown(&name), i64::MAX));
            }
            None => {
                return Err(format!(
                    "attribute '{}' is {number}; the service takes texts, integers and true or false",
                    shown(&name)
                ));
            }
        },
        other => {
            return Err(format!(
                "attribute '{}' is {}; the service takes texts, integers and true or false",
                shown(&name),
                sort_of(&other)
            ));
        }
    };
    match attributes.insert(name.clone(), value) {
        None => Ok(()),
        Some(_) => Err(format!("attribute '{}' stands twice", shown(&name))),
    }
}

fn read_events(value: Value) -> Result<Vec<Event>, String> {
    match opened(value) {
        Value::Array(items) => items.into_iter().enumerate().map(|(at, item)| read_event(at + 1, item)).collect(),
        // An empty cell.
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        other => Err(format!("events are {}, and not a list of {{event, timestamp}}", sort_of(&other))),
    }
}

fn read_event(place: usize, item: Value) -> Result<Event, String> {
    let Value::Object(mut members) = item else {
        return Err(format!("event {place} is {}, and not {{event, timestamp}}", sort_of(&item)));
    };
    let (name, timestamp) = (members.remove("event"), members.remove("timestamp"));
    if let Some((unknown, _)) = members.into_iter().find(|(_, value)| !value.is_null()) {
        return Err(format!("event {place} has '{}'; an event has event and timestamp", shown(&unknown)));
    }
    let event = match name {
        Some(Value::String(event)) if !event.is_empty() => event,
        _ => return Err(format!("event {place} has no name")),
    };
    let timestamp = match timestamp {
        Some(Value::Number(number)) => number.as_i64().ok_or(format!("{number} is no epoch milliseconds")),
        Some(Value::String(text)) => parse_date(&text),
        _ => Err("there is none".to_owned()),
    };
    let timestamp = timestamp.map_err(|problem| format!("event {place} has no timestamp: {problem}"))?;
    Ok(Event { event, timestamp })
}

fn sort_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The beginning of a foreign text, harmless on a screen.
pub(super) fn shown(text: &str) -> String {
    let letters = text.chars().map(|letter| if steers_display(letter) { '\u{fffd}' } else { letter });
    let mut short: String = letters.take(SHOWN_LETTERS).collect();
    if text.chars().nth(SHOWN_LETTERS).is_some() {
        short.push('…');
    }
    short
}
