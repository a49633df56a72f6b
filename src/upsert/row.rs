//! One row, as a JSON object, becomes an upsert: every rule of the service that can be checked here is.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    ATTRIBUTES_MAX, AttributeValue, Event, Row, RowSink, UnsendableRow, Upsert,
    excerpt::excerpt,
    json_members::{Member, compact, items_of, members_of, shape_name},
};
use crate::{
    json::{Shape, shape},
    model::{epoch_ms, parse_date},
};

const USER_ID: &str = "userId";
const EMAIL: &str = "email";
const ATTRIBUTES: &str = "attributes";
const EVENTS: &str = "events";
/// What stands before the name of an attribute that is a column of its own.
pub(super) const ATTRIBUTE_PREFIX: &str = "attributes.";
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
            excerpt(name)
        )),
    }
}

/// Where an id comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdSource {
    /// Text that people and spreadsheets write: what looks like a slip is set aside.
    Text,
    /// A table, which holds an id as it is.
    Table,
}

/// Hands over one row of a table that is a JSON object.
pub fn read_table_row(number: u64, text: &[u8], take: &mut RowSink<'_>) -> bool {
    take(Row { number, read: read_json(text, IdSource::Table) })
}

/// Reads the JSON object of a row.
pub(super) fn read_json(text: &[u8], ids: IdSource) -> Result<Upsert, UnsendableRow> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let at = error.valid_up_to() + 1;
        UnsendableRow::of(format!("its byte {at} is not UTF-8: save the file as UTF-8, or name its --encoding"))
    })?;
    match shape(text) {
        Shape::Object => {}
        _ if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
            return Err(UnsendableRow::of("the row is no JSON object"));
        }
        _ => {}
    }
    let members =
        members_of(text).map_err(|problem| UnsendableRow::of(format!("the row is no JSON of a user: {problem}")))?;
    read_members(members, ids)
}

/// Reads the members of a row.
pub(super) fn read_members(mut members: Vec<Member<'_>>, ids: IdSource) -> Result<Upsert, UnsendableRow> {
    let at = members.iter().position(|(name, _)| name == USER_ID);
    let user_id = at.map(|at| members.swap_remove(at).1).unwrap_or(Cow::Borrowed("null"));
    let user_id = match shape(&user_id) {
        Shape::Text => text_of(&user_id).map_err(UnsendableRow::of)?,
        Shape::Null => String::new(),
        other => return Err(UnsendableRow::of(format!("userId is {}, and not a text", shape_name(other)))),
    };
    if user_id.is_empty() {
        return Err(UnsendableRow::of("there is no userId"));
    }
    let slip = if ids == IdSource::Text { slip_in(&user_id) } else { None };
    let rest = slip.map_or_else(|| read_rest(members), Err);
    rest.map(|OtherFields { email, attributes, events }| Upsert { user_id: user_id.clone(), email, attributes, events })
        .map_err(|reason| UnsendableRow { user_id: Some(user_id), reason })
}

/// What an id looks like that a program or a spreadsheet has changed.
fn slip_in(user_id: &str) -> Option<String> {
    let shown = excerpt(user_id);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if user_id.trim_matches(is_blank) != user_id {
        return Some(format!("there are blanks around the userId '{shown}': take them away"));
    }
    if user_id.chars().any(char::is_control) {
        return Some(format!("the userId '{shown}' holds a line break or another control character"));
    }
    if let Some((whole, fraction)) = user_id.split_once('.')
        && digits(whole)
        && digits(fraction)
        && fraction.bytes().all(|byte| byte == b'0')
    {
        return Some(format!("a program has made a number of the userId '{shown}': write {whole}"));
    }
    if let Some((number, exponent)) = user_id.split_once("E+")
        && digits(exponent)
        && digits(&number.replacen('.', "", 1))
    {
        return Some(format!("a spreadsheet has cut the digits of the userId '{shown}': export that column as text"));
    }
    let is_error = ["#N/A", "#NAME?", "#REF!", "#VALUE!", "#DIV/0!", "#NUM!", "#NULL!"].contains(&user_id);
    is_error.then(|| format!("the userId is '{shown}', which is what a spreadsheet writes where it failed"))
}

/// Whether a letter cannot be seen at the edge of a cell.
pub(super) fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\u{feff}' | '\u{200b}')
}

struct OtherFields {
    email: Option<String>,
    attributes: BTreeMap<String, AttributeValue>,
    events: Vec<Event>,
}

fn read_rest(members: Vec<Member<'_>>) -> Result<OtherFields, String> {
    let mut rest = OtherFields { email: None, attributes: BTreeMap::new(), events: Vec::new() };
    for (name, value) in members {
        check_name(&name)?;
        if shape(&value) == Shape::Null {
            continue;
        }
        match name.as_str() {
            EMAIL => rest.email = Some(read_email(&value)?),
            EVENTS => rest.events = read_events(&value)?,
            ATTRIBUTES => {
                let opened = opened(&value)?;
                if shape(&opened) != Shape::Object {
                    return Err(format!("attributes are {}, and not an object", shape_name(shape(&value))));
                }
                let members = members_of(&opened).map_err(|problem| format!("attributes: {problem}"))?;
                members.into_iter().try_for_each(|(name, value)| add(&mut rest.attributes, name, &value))?;
            }
            name => {
                let name = name.strip_prefix(ATTRIBUTE_PREFIX).unwrap_or(name);
                add(&mut rest.attributes, name.to_owned(), &value)?;
            }
        }
    }
    match rest.attributes.len() {
        0..=ATTRIBUTES_MAX => Ok(rest),
        count => Err(format!("{count} attributes; the service takes at most {ATTRIBUTES_MAX}")),
    }
}

/// The text that a JSON text holds.
fn text_of(json: &str) -> Result<String, String> {
    serde_json::from_str(json).map_err(|error| format!("the row is no JSON of a user: {error}"))
}

/// What a text holds, where a column carries JSON as text.
fn opened(json: &str) -> Result<Cow<'_, str>, String> {
    match shape(json) {
        Shape::Text => Ok(Cow::Owned(text_of(json)?.trim_matches(is_blank).to_owned())),
        _ => Ok(Cow::Borrowed(json)),
    }
}

fn read_email(json: &str) -> Result<String, String> {
    match shape(json) {
        Shape::Text => {
            let email = text_of(json)?;
            let is_address = email.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
            if is_address { Ok(email) } else { Err(format!("'{}' is no e-mail address", excerpt(&email))) }
        }
        other => Err(format!("email is {}, and not a text", shape_name(other))),
    }
}

fn add(attributes: &mut BTreeMap<String, AttributeValue>, name: String, json: &str) -> Result<(), String> {
    let value = match shape(json) {
        // Nothing is said of it, so it stays as it is at the service.
        Shape::Null => return Ok(()),
        _ if name.is_empty() => return Err("an attribute without a name".to_owned()),
        Shape::Text => AttributeValue::Text(text_of(json)?),
        Shape::Boolean => AttributeValue::Boolean(json == "true"),
        // The contract is silent about fractions, large numbers, lists and objects: the service decides about them.
        Shape::Number | Shape::List | Shape::Object => match json.parse::<i64>() {
            Ok(number) if number.to_string() == json => AttributeValue::Integer(number),
            _ => AttributeValue::Json(compact(json)),
        },
    };
    match attributes.insert(name.clone(), value) {
        None => Ok(()),
        Some(_) => Err(format!("attribute '{}' stands twice", excerpt(&name))),
    }
}

fn read_events(json: &str) -> Result<Vec<Event>, String> {
    let opened = opened(json)?;
    match shape(&opened) {
        Shape::List => {
            let items = items_of(&opened).map_err(|problem| format!("events: {problem}"))?;
            items.into_iter().enumerate().map(|(at, item)| read_event(at + 1, item)).collect()
        }
        // An empty cell.
        _ if opened.is_empty() => Ok(Vec::new()),
        _ => {
            let sort = shape_name(shape(json));
            Err(format!("events are {sort}, and not a list of {{event, timestamp}}"))
        }
    }
}

fn read_event(place: usize, json: &str) -> Result<Event, String> {
    if shape(json) != Shape::Object {
        return Err(format!("event {place} is {}, and not {{event, timestamp}}", shape_name(shape(json))));
    }
    let (mut event, mut timestamp) = (None, None);
    for (name, value) in members_of(json).map_err(|problem| format!("event {place}: {problem}"))? {
        match (name.as_str(), shape(&value)) {
            (_, Shape::Null) => {}
            ("event", Shape::Text) => event = Some(text_of(&value)?),
            ("event", _) => {}
            ("timestamp", _) => timestamp = Some(value),
            (unknown, _) => {
                return Err(format!("event {place} has '{}'; an event has event and timestamp", excerpt(unknown)));
            }
        }
    }
    let event = event.filter(|event| !event.is_empty()).ok_or_else(|| format!("event {place} has no name"))?;
    let timestamp = timestamp.ok_or_else(|| "there is none".to_owned()).and_then(|value| match shape(&value) {
        Shape::Text => {
            let text = text_of(&value)?;
            let text = text.trim();
            if text.bytes().all(|byte| byte.is_ascii_digit()) { epoch_ms(text) } else { parse_date(text) }
        }
        Shape::Number => epoch_ms(&value),
        _ => Err("there is none".to_owned()),
    });
    let timestamp = timestamp.map_err(|problem| format!("event {place} has no timestamp: {problem}"))?;
    Ok(Event { event, timestamp })
}
