//! Parses the JSON object of one row into an upsert, and checks the rules of the service. Reads NDJSON: one JSON object
//! per line. Blank lines are skipped and not counted.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    io::{BufRead, BufReader, Read},
};

use super::{
    ATTRIBUTES_MAX, AttributeValue, Event, InputError, ROW_BYTES_MAX, Row, RowSink, UnsendableRow, Upsert,
    json_members::{Member, compact, excerpt, is_json, items_of, members_of, shape_name},
};
use crate::{
    json::{Shape, shape},
    model::{epoch_ms, parse_date},
    text::{bytes_without_mark, decoding},
};

pub(super) const USER_ID: &str = "userId";
const EMAIL: &str = "email";
const ATTRIBUTES: &str = "attributes";
const EVENTS: &str = "events";
/// Prefix of a column that contains a single attribute.
pub(super) const ATTRIBUTE_PREFIX: &str = "attributes.";

/// Checks the names of the input's columns.
///
/// # Errors
/// If a name is unknown or occurs twice, or `userId` is missing.
pub fn check_columns<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let names: Vec<&str> = names.into_iter().collect();
    for (at, name) in names.iter().enumerate() {
        check_name(name)?;
        if names[..at].contains(name) {
            return Err(format!("the column '{name}' occurs twice"));
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
        ATTRIBUTE_PREFIX => Err("an attribute has no name".to_owned()),
        name if name.starts_with(ATTRIBUTE_PREFIX) => Ok(()),
        name => Err(format!(
            "there is no column '{}'; there are {USER_ID}, {EMAIL}, {EVENTS}, {ATTRIBUTES} and {ATTRIBUTE_PREFIX}NAME",
            excerpt(name)
        )),
    }
}

/// Where user ids come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdSource {
    /// A text file. A row is set aside if a spreadsheet seems to have changed its id.
    Text,
    /// A database table, whose ids are exact.
    Table,
}

/// Parses one row of a database table, given as a JSON object, and passes the row to `take`. Returns the result of
/// `take`. `number` is the number of the row.
pub fn read_table_row(number: u64, text: &[u8], take: &mut RowSink<'_>) -> bool {
    take(Row { number, read: read_json(text, IdSource::Table) })
}

/// Passes each row to `take` until `take` returns false. A row that cannot be sent is passed with the reason.
///
/// # Errors
/// If reading fails.
pub fn read_ndjson(input: impl Read, take: &mut RowSink<'_>) -> Result<(), InputError> {
    let mut input = BufReader::new(decoding(input, None).map_err(InputError::Read)?);
    let (mut line, mut number) = (Vec::new(), 0);
    for line_number in 1.. {
        line.clear();
        let limit = ROW_BYTES_MAX as u64 + 1;
        let read = input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(InputError::Read)?;
        if read == 0 {
            return Ok(());
        }
        let is_cut = line.len() > ROW_BYTES_MAX && line.last() != Some(&b'\n');
        if is_cut {
            skip_line(&mut input)?;
        }
        // Files that were concatenated have byte order marks at the start of later lines.
        let text = bytes_without_mark(line.trim_ascii()).trim_ascii();
        if text.is_empty() {
            continue;
        }
        number += 1;
        let read = match is_cut {
            true => Err(UnsendableRow::of(format!("the row is longer than {ROW_BYTES_MAX} bytes"))),
            false => read_json(text, IdSource::Text),
        };
        if !take(Row { number, read: read.map_err(|aside| aside.on_line(line_number)) }) {
            return Ok(());
        }
    }
    Ok(())
}

fn skip_line(input: &mut impl BufRead) -> Result<(), InputError> {
    loop {
        let buffer = input.fill_buf().map_err(InputError::Read)?;
        let (count, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(count);
        if is_end {
            return Ok(());
        }
    }
}

/// Parses the JSON object of a row. Fails with the reason if the text is not UTF-8, not a JSON object, or breaks a
/// rule. `ids` says where the user ids come from.
fn read_json(text: &[u8], ids: IdSource) -> Result<Upsert, UnsendableRow> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let at = error.valid_up_to() + 1;
        UnsendableRow::of(format!("its byte {at} is not UTF-8: save the file as UTF-8, or name its --encoding"))
    })?;
    match shape(text) {
        Shape::Object => {}
        _ if is_json(text) => {
            return Err(UnsendableRow::of("the row is not a JSON object"));
        }
        // The text is not JSON: the error of `members_of` says where.
        _ => {}
    }
    let members = members_of(text).map_err(|problem| UnsendableRow::of(not_json(problem)))?;
    read_members(members, ids)
}

/// Parses the members of a row, and checks the rules. Fails with the reason, and with the user id if there is one.
pub(super) fn read_members(mut members: Vec<Member<'_>>, ids: IdSource) -> Result<Upsert, UnsendableRow> {
    let at = members.iter().position(|(name, _)| name == USER_ID);
    let user_id = at.map(|at| members.swap_remove(at).1).unwrap_or(Cow::Borrowed("null"));
    let user_id = match shape(&user_id) {
        Shape::Text => text_of(&user_id).map_err(UnsendableRow::of)?,
        Shape::Null => String::new(),
        other => return Err(UnsendableRow::of(format!("userId is {}, not a text", shape_name(other)))),
    };
    if user_id.is_empty() {
        return Err(UnsendableRow::of("there is no userId"));
    }
    let suspicion = if ids == IdSource::Text { suspicion_of(&user_id) } else { None };
    let upsert = suspicion.map_or_else(|| read_fields(user_id.clone(), members), Err);
    upsert.map_err(|reason| UnsendableRow { user_id: Some(user_id), reason })
}

fn suspicion_of(user_id: &str) -> Option<String> {
    let shown = excerpt(user_id);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if user_id.trim_matches(is_blank) != user_id {
        return Some(format!("there are blanks around the userId '{shown}': remove them"));
    }
    if user_id.chars().any(char::is_control) {
        return Some(format!("the userId '{shown}' contains a line break or another control character"));
    }
    if let Some((whole, fraction)) = user_id.split_once('.')
        && digits(whole)
        && digits(fraction)
        && fraction.bytes().all(|byte| byte == b'0')
    {
        return Some(format!("a program has changed the userId to the number '{shown}': write {whole}"));
    }
    if let Some((number, exponent)) = user_id.split_once("E+")
        && digits(exponent)
        && digits(&number.replacen('.', "", 1))
    {
        return Some(format!("a spreadsheet has rounded the userId '{shown}': export the column as text"));
    }
    let is_error = ["#N/A", "#NAME?", "#REF!", "#VALUE!", "#DIV/0!", "#NUM!", "#NULL!"].contains(&user_id);
    is_error.then(|| format!("the userId is '{shown}', an error value of a spreadsheet"))
}

/// Returns true if a character is blank space, which is invisible at the edge of a cell.
pub(super) fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\u{feff}' | '\u{200b}')
}

fn read_fields(user_id: String, members: Vec<Member<'_>>) -> Result<Upsert, String> {
    let mut upsert = Upsert { user_id, email: None, attributes: BTreeMap::new(), events: Vec::new() };
    for (name, value) in members {
        check_name(&name)?;
        if shape(&value) == Shape::Null {
            continue;
        }
        match name.as_str() {
            EMAIL => upsert.email = Some(read_email(&value)?),
            EVENTS => upsert.events = read_events(&value)?,
            ATTRIBUTES => {
                let opened = embedded_json(&value)?;
                if shape(&opened) != Shape::Object {
                    return Err(format!("attributes are {}, not an object", shape_name(shape(&value))));
                }
                let members = members_of(&opened).map_err(|problem| format!("attributes: {problem}"))?;
                members.into_iter().try_for_each(|(name, value)| add(&mut upsert.attributes, name, &value))?;
            }
            name => {
                let name = name.strip_prefix(ATTRIBUTE_PREFIX).unwrap_or(name);
                add(&mut upsert.attributes, name.to_owned(), &value)?;
            }
        }
    }
    match upsert.attributes.len() {
        0..=ATTRIBUTES_MAX => Ok(upsert),
        count => Err(format!("{count} attributes; the service accepts at most {ATTRIBUTES_MAX}")),
    }
}

fn text_of(json: &str) -> Result<String, String> {
    serde_json::from_str(json).map_err(not_json)
}

fn not_json(problem: impl fmt::Display) -> String {
    format!("the row is not valid JSON: {problem}")
}

/// Returns the JSON of a list or object. Unwraps a JSON string, because a column may contain the JSON as text.
fn embedded_json(json: &str) -> Result<Cow<'_, str>, String> {
    match shape(json) {
        Shape::Text => Ok(Cow::Owned(text_of(json)?.trim_matches(is_blank).to_owned())),
        _ => Ok(Cow::Borrowed(json)),
    }
}

/// Parses a mail address: a text with an `@` between other characters. The service checks the rest.
fn read_email(json: &str) -> Result<String, String> {
    match shape(json) {
        Shape::Text => {
            let email = text_of(json)?;
            let is_address = email.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
            if is_address { Ok(email) } else { Err(format!("'{}' is not an e-mail address", excerpt(&email))) }
        }
        other => Err(format!("email is {}, not a text", shape_name(other))),
    }
}

/// Parses the value of an attribute and adds the attribute. Ignores null, for which the service keeps the value that it
/// has. Fails if the attribute has no name or occurs twice.
fn add(attributes: &mut BTreeMap<String, AttributeValue>, name: String, json: &str) -> Result<(), String> {
    let value = match shape(json) {
        Shape::Null => return Ok(()),
        _ if name.is_empty() => return Err("an attribute has no name".to_owned()),
        Shape::Text => AttributeValue::Text(text_of(json)?),
        Shape::Boolean => AttributeValue::Boolean(json == "true"),
        // The contract does not mention fractions, large numbers, lists and objects. The service decides whether it
        // accepts them.
        Shape::Number | Shape::List | Shape::Object => match json.parse::<i64>() {
            Ok(number) if number.to_string() == json => AttributeValue::Integer(number),
            _ => AttributeValue::Json(compact(json)),
        },
    };
    match attributes.insert(name.clone(), value) {
        None => Ok(()),
        Some(_) => Err(format!("the attribute '{}' occurs twice", excerpt(&name))),
    }
}

/// Parses the list of events. An empty text is an empty list.
fn read_events(json: &str) -> Result<Vec<Event>, String> {
    let opened = embedded_json(json)?;
    match shape(&opened) {
        Shape::List => {
            let items = items_of(&opened).map_err(|problem| format!("events: {problem}"))?;
            items.into_iter().enumerate().map(|(at, item)| read_event(at + 1, item)).collect()
        }
        // An empty cell.
        _ if opened.is_empty() => Ok(Vec::new()),
        _ => Err(format!("events are {}, not a list of {{event, timestamp}}", shape_name(shape(json)))),
    }
}

/// Parses one event. `number` is its position in the list, from 1. Fails if the name or the time is missing, or a
/// member is unknown. The time is epoch milliseconds, or a text as in [`parse_date`].
fn read_event(number: usize, json: &str) -> Result<Event, String> {
    if shape(json) != Shape::Object {
        return Err(format!("event {number} is {}, not {{event, timestamp}}", shape_name(shape(json))));
    }
    let (mut event, mut timestamp) = (None, None);
    for (name, value) in members_of(json).map_err(|problem| format!("event {number}: {problem}"))? {
        match (name.as_str(), shape(&value)) {
            (_, Shape::Null) => {}
            ("event", Shape::Text) => event = Some(text_of(&value)?),
            ("event", _) => {}
            ("timestamp", _) => timestamp = Some(value),
            (unknown, _) => {
                return Err(format!(
                    "event {number} has an unknown member '{}'; an event has event and timestamp",
                    excerpt(unknown)
                ));
            }
        }
    }
    let event = event.filter(|event| !event.is_empty()).ok_or_else(|| format!("event {number} has no name"))?;
    let timestamp = match timestamp.as_deref().map(|json| (json, shape(json))) {
        None => Err("it is missing".to_owned()),
        Some((json, Shape::Text)) => {
            let text = text_of(json)?;
            let text = text.trim();
            if text.bytes().all(|byte| byte.is_ascii_digit()) { epoch_ms(text) } else { parse_date(text) }
        }
        Some((json, Shape::Number)) => epoch_ms(json),
        Some((_, other)) => Err(format!("it is {}", shape_name(other))),
    };
    let timestamp = timestamp.map_err(|problem| format!("event {number} has no valid timestamp: {problem}"))?;
    Ok(Event { event, timestamp })
}
