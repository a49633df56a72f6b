//! Drift through the real program: fields that no contract has. Tests what each mode does in each stream, that no data
//! is lost for good, and what the report says.

mod modes;
mod nights;
mod told;

use studysync_sandbox::ListName;

use crate::harness::{ALL_FLAGS, Place, Service, small};

/// Text that a person typed, or a person's name. No output of the program may contain it.
const PERSON: &str = "Zacharias Quux";

/// A stream with two records with drift: the first has a field that no contract names, the second has a value that does
/// not fit its column.
struct Drifting {
    list: ListName,
    /// The name of the stream and of its base table.
    name: &'static str,
    /// The SQL condition that selects each record.
    unknown: &'static str,
    clash: &'static str,
    /// The path of each drifting field.
    unknown_place: &'static str,
    clash_place: &'static str,
}

const STREAMS: [Drifting; 3] = [
    Drifting {
        list: ListName::Responses,
        name: "responses",
        unknown: "response_group_uid = 'drift' AND question_id = 1",
        clash: "response_group_uid = 'drift' AND question_id = 2",
        unknown_place: "battery",
        clash_place: "visitorId",
    },
    Drifting {
        list: ListName::Surveys,
        name: "surveys",
        unknown: "id = 990001",
        clash: "id = 990002",
        unknown_place: "owner",
        clash_place: "totalResponseLimit",
    },
    Drifting {
        list: ListName::Themes,
        name: "themes",
        unknown: "id = 990001",
        clash: "id = 990002",
        unknown_place: "score",
        clash_place: "surveyId",
    },
];

/// A response of yesterday with additional members.
fn response(question: u32, members: &str) -> String {
    format!(
        r#"{{"createdAt":"2026-01-30T08:00:00.000Z","updatedAt":"2026-01-30T08:00:00.000Z","responseGroupUid":"drift","questionId":{question},"surveyId":7,"questionText":"q",{members}}}"#
    )
}

fn theme(id: u32, members: &str) -> String {
    format!(
        r#"{{"id":{id},"createdAt":"2026-01-30T08:00:00.000Z","updatedAt":"2026-01-30T08:00:00.000Z","responseGroupUid":"drift","questionId":1,"theme":"t",{members}}}"#
    )
}

fn survey(id: u32, members: &str) -> String {
    format!(
        r#"{{"id":{id},"createdAt":"2026-01-30T08:00:00.000Z","updatedAt":"2026-01-30T08:00:00.000Z","name":"n",{members}}}"#
    )
}

/// Plants the two records of each stream. `value` is the value of the unknown fields.
fn plant(service: &Service, value: &str) {
    let records = [
        (ListName::Responses, response(1, &format!(r#""questionType":"NPS","response":9,"battery":{value}"#))),
        (ListName::Responses, response(2, &format!(r#""questionType":"OPEN","response":"ok","visitorId":"{PERSON}""#))),
        (ListName::Surveys, survey(990001, &format!(r#""status":"NEW","owner":{value}"#))),
        (ListName::Surveys, survey(990002, &format!(r#""status":"NEW","totalResponseLimit":"{PERSON}""#))),
        (ListName::Themes, theme(990001, &format!(r#""surveyId":7,"score":{value}"#))),
        (ListName::Themes, theme(990002, &format!(r#""surveyId":"{PERSON}""#))),
    ];
    for (list, record) in records {
        service.control().plant(list, &record, None).unwrap();
    }
}

/// A small service with drift in every stream.
fn drifting() -> Service {
    let service = Service::start(small(80, 3));
    plant(&service, &format!("{{\"of\":\"{PERSON}\"}}"));
    service
}

/// A configuration that sets one mode for both kinds of drift in these streams.
fn config(streams: &[&str], mode: &str) -> String {
    let tables = streams
        .iter()
        .map(|stream| format!("[streams.{stream}.drift]\nunknown_fields = \"{mode}\"\ntype_clashes = \"{mode}\"\n"));
    format!("{ALL_FLAGS}{}", tables.collect::<String>())
}

/// The same place with another mode for these streams, and `evolve` for all others.
fn with_mode(place: Place, streams: &[&str], mode: &str) -> Place {
    place.with_config(&config(streams, mode))
}
