//! Measures the unit of times in users, which the contract leaves open. Requests a few users; the evidence names none.

use arrow::array::AsArray as _;
use serde_json::Value;

use crate::{
    model::{EpochUnit, FlatPage, IdentifierKind, Stream, WrittenIdentifier, behaviour_names, can_request_user},
    person::Suppression,
    pipeline::error::PipelineError,
    source::{SourceError, UserAnswer},
};

use super::report::{MeasureContext, Measured};

/// The maximum number of users that are requested.
const USERS_MAX: usize = 3;
/// The stored value if times are texts.
const TEXT: &str = "text";

/// Returns the ids of users on a page of responses, each once.
pub(super) fn user_ids_of(flat: &FlatPage) -> Vec<String> {
    let column = flat.table(Stream::Responses.name()).and_then(|rows| rows.column_by_name("external_user_id"));
    let ids = column.and_then(|column| column.as_string_opt::<i32>());
    let mut found: Vec<String> = Vec::new();
    for id in ids.into_iter().flatten().flatten().filter(|id| !id.is_empty() && can_request_user(id)) {
        if found.iter().all(|known| known != id) {
            found.push(id.to_owned());
        }
    }
    found
}

/// Requests users until the service knows one, and adds the unit of the times in that user. The unit stays unknown if
/// no user can be requested or the service returns none. Erased users are not requested.
pub(super) async fn measure(context: &mut MeasureContext, suppression: &Suppression) -> Result<(), PipelineError> {
    let name = behaviour_names::USER_TIME_UNIT;
    let is_suppressed =
        |id: &String| suppression.matches_identifiers(&WrittenIdentifier::read(IdentifierKind::UserId, id));
    let ids: Vec<String> = context.user_ids.iter().filter(|id| !is_suppressed(id)).take(USERS_MAX).cloned().collect();
    if ids.is_empty() {
        context.add(Measured::unknown(name, "no answer names a user who can be requested"));
        return Ok(());
    }
    for id in &ids {
        match context.requester.source.user(id).await {
            Ok(UserAnswer::Found { body }) => {
                context.add(time_unit(&body));
                return Ok(());
            }
            Ok(UserAnswer::Absent | UserAnswer::Refused { .. }) => {}
            Err(error @ SourceError::Stopped(_)) => return Err(error.into()),
            // The key may have no permission for users; the behaviours of lists can still be measured.
            Err(_) => {
                context.add(Measured::unknown(name, "the service returned no user"));
                return Ok(());
            }
        }
    }
    context.add(Measured::unknown(name, format!("the service knows none of {} users", ids.len())));
    Ok(())
}

/// Returns the unit of the times in the body of a user and its events. The unit is unknown if the body has no time, or
/// times of several units.
fn time_unit(body: &[u8]) -> Measured {
    let name = behaviour_names::USER_TIME_UNIT;
    let Ok(user) = serde_json::from_slice::<Value>(body) else {
        return Measured::unknown(name, "the body of a user is no JSON");
    };
    let events = user["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let times = events.iter().flat_map(|event| [&event["createdAt"], &event["updatedAt"]]);
    let units: Vec<&str> = [&user["createdAt"]].into_iter().chain(times).filter_map(unit_of).collect();
    match units.first() {
        None => Measured::unknown(name, "a user without a time"),
        Some(unit) if units.iter().all(|other| other == unit) => {
            let how = match units.len() {
                1 => "a time of one user".to_owned(),
                times => format!("{times} times of one user, all with this unit"),
            };
            Measured::known(name, unit, how)
        }
        Some(_) => Measured::unknown(name, format!("{} times of one user are of several units", units.len())),
    }
}

/// Returns the name of the unit of a time. Returns `None` for a number before 1979, or a value that is no number or
/// text.
fn unit_of(time: &Value) -> Option<&'static str> {
    match time {
        Value::Number(number) => {
            let number = number.as_f64()?;
            let unit = EpochUnit::of(number);
            let year_1979 = 3e8 * unit.per_second() as f64;
            (number >= year_1979).then(|| unit.name())
        }
        Value::String(_) => Some(TEXT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(user: &str) -> Option<Value> {
        time_unit(user.as_bytes()).value
    }

    #[test]
    fn the_magnitude_of_all_times_shows_the_unit() {
        assert_eq!(unit(r#"{"createdAt":1700000000}"#), Some("seconds".into()));
        assert_eq!(
            unit(r#"{"createdAt":1700000000000,"events":[{"createdAt":1700000000001}]}"#),
            Some("milliseconds".into())
        );
        assert_eq!(unit(r#"{"createdAt":"2026-01-01T00:00:00Z"}"#), Some("text".into()));
        for open in [
            r#"{"createdAt":1700000000,"events":[{"updatedAt":1700000000000}]}"#,
            r#"{"createdAt":0}"#,
            "{}",
            "[",
            "null",
        ] {
            assert_eq!(unit(open), None, "{open}");
        }
    }
}
