//! A small set of hostile records with known numbers: survey 900 and its neighbours.

use serde_json::{Value, json};
use studysync_sandbox::ListName;

use crate::harness::Service;

/// The survey with the planted questions.
pub const SURVEY: i64 = 900;

/// The last millisecond of a week, and the first of the next. 2026-01-19 is a Monday.
const SUNDAY: &str = "2026-01-18T23:59:59.999Z";
const MONDAY: &str = "2026-01-19T00:00:00.000Z";

/// Plants the survey and its answers.
pub fn plant(service: &Service) {
    let control = service.control();
    control.plant(ListName::Surveys, &survey().to_string(), None).unwrap();
    for record in nps().into_iter().chain(likert()).chain(parts()).chain(odd()) {
        control.plant(ListName::Responses, &record.to_string(), None).unwrap();
    }
    for record in themes() {
        control.plant(ListName::Themes, &record.to_string(), None).unwrap();
    }
}

/// Themes that were found long after the answer: two on one answer, one on a deleted answer, and one on an answer that
/// does not exist.
fn themes() -> Vec<Value> {
    let theme = |id: i64, session: &str, question: i64, name: &str| {
        json!({
            "id": id, "createdAt": "2026-01-27T10:00:00.000Z", "updatedAt": "2026-01-27T10:00:00.000Z",
            "questionId": question, "questionText": "?", "questionType": "OPEN", "response": "fine",
            "responseGroupUid": format!("planted-{session}"), "surveyId": SURVEY, "theme": name,
            "themeDescription": "", "visitorId": 1,
        })
    };
    vec![
        theme(1, "o1", 12, "Größe"),
        theme(2, "o1", 12, "Größe"),
        theme(3, "o1", 12, "Speed"),
        theme(4, "deleted", 1, "Speed"),
        theme(5, "unknown", 12, "Speed"),
        with(theme(6, "u4", 5, "Speed"), "surveyId", json!("none")),
    ]
}

/// One answer: session, question, type and answer. Every session is a separate visitor.
fn answer(session: &str, question: i64, kind: &str, created_at: &str, response: Value) -> Value {
    json!({
        "createdAt": created_at, "updatedAt": created_at, "deletedAt": null, "externalUserId": "", "questionId": question,
        "questionText": format!("Planted {question} é 😀"), "questionType": kind, "response": response,
        "responseGroupUid": format!("planted-{session}"), "surveyId": SURVEY, "visitorId": session.len() * 1000 + visitor(session),
        "visitorUuid": format!("visitor-{session}"),
    })
}

/// Returns a number for each session name.
fn visitor(session: &str) -> usize {
    session.bytes().map(usize::from).sum()
}

fn with(mut record: Value, member: &str, value: Value) -> Value {
    record[member] = value;
    record
}

fn survey() -> Value {
    let question = |id: i64, kind: &str, options: Value, properties: Value| {
        json!({"id": id, "type": kind, "questionText": format!("Question {id}"), "options": options,
               "optionsProperties": properties, "routingOptions": null})
    };
    let labels = |left: &str, right: &str| json!({"introText": "", "labels": {"left": left, "right": right}});
    json!({
        "id": SURVEY, "name": "Größe & \"more\"", "platform": "web", "type": "CONTINUOUS", "status": "IN_PROGRESS",
        "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z", "launchedAt": null,
        "completedAt": null, "totalResponseLimit": null, "constraints": [],
        "questions": [
            question(1, "NPS", json!([]), json!(null)),
            // The options define seven values, though nobody chose the highest.
            question(2, "LIKERT", json!(["never", "2", "3", "4", "5", "6", "always"]), json!({"range": "3"})),
            question(3, "LIKERT", json!([]), json!({"labels": {"left": "no", "right": "yes"}, "range": "5"})),
            question(4, "LIKERT", json!([{"label": "-2 bad"}, {"label": "-1"}, {"label": "0"}, {"label": "1"}, {"label": "2 good"}]), json!(null)),
            question(6, "MAXDIFF", json!([]), labels("Most useful", "Least useful")),
            question(7, "MAXDIFF", json!([]), labels("Like", "Dislike")),
            question(8, "MAXDIFF", json!([]), labels("Most unimportant", "Least important")),
            question(1, "NPS", json!([]), json!(null)),
            question(20, "MULTIPLESELECT", json!(["Red", "Green, dark", "Blue"]), json!(null)),
            question(21, "MULTIPLESELECT", json!(["One", "Two", "Three"]), json!(null)),
            question(22, "MULTIPLESELECT", json!(["Left", "Right", "Middle"]), json!(null)),
        ],
    })
}

fn nps() -> Vec<Value> {
    let nps = |session: &str, at: &str, response: Value| answer(session, 1, "NPS", at, response);
    let on_sunday = |(at, response): (usize, Value)| nps(&format!("n{at:02}"), SUNDAY, response);
    // Counted: 10, 9, 8, 7, 6, 0. The others are not scores.
    let scores = [
        json!(10),
        json!("9"),
        json!(8),
        json!(7),
        json!(6),
        json!(0),
        json!(11),
        json!(-1),
        json!(8.5),
        json!(null),
        json!(""),
    ];
    let mut records: Vec<Value> = scores.into_iter().enumerate().map(on_sunday).collect();
    records.push(with(nps("deleted", SUNDAY, json!(10)), "deletedAt", json!("2026-01-20T00:00:00.000Z")));
    // One visitor three times: twice at the same time, where the greatest session decides, and once before.
    for (session, at, score) in [("again-1", MONDAY, 10), ("again-2", MONDAY, 0), ("again-0", SUNDAY, 3)] {
        records.push(with(nps(session, at, json!(score)), "visitorId", json!(77)));
    }
    // Without a visitor number, visitors are distinguished by UUID, or else by session.
    records.push(with(with(nps("uuid-1", MONDAY, json!(9)), "visitorId", json!(null)), "visitorUuid", json!("same")));
    records.push(with(with(nps("uuid-2", MONDAY, json!(1)), "visitorId", json!(null)), "visitorUuid", json!("same")));
    records.push(with(with(nps("nobody-1", MONDAY, json!(8)), "visitorId", json!(null)), "visitorUuid", json!(null)));
    records.push(with(with(nps("nobody-2", MONDAY, json!(8)), "visitorId", json!(null)), "visitorUuid", json!(null)));
    records
}

fn likert() -> Vec<Value> {
    let given: [(i64, &[f64]); 4] = [
        // Nobody chose 7; 8 and 0 are outside the scale of 1 to 7.
        (2, &[1.0, 2.0, 2.0, 6.0, 6.0, 6.0, 5.0, 8.0, 0.0, 3.5]),
        (3, &[5.0, 4.0, 1.0, 9.0]),
        (4, &[-2.0, -1.0, 0.0, 2.0, 2.0, 7.0]),
        // No definition: the observed scale is 2 to 4, because 1e18 and -3 cannot be on a scale.
        (5, &[2.0, 3.0, 4.0, 4.0, 1e18, -3.0]),
    ];
    let record = |question: i64, at: usize, value: f64| {
        let number = if value.fract() == 0.0 { json!(value as i64) } else { json!(value) };
        answer(&format!("l{question}-{at}"), question, "LIKERT", MONDAY, number)
    };
    let of = |(question, values): (i64, &'static [f64])| {
        values.iter().enumerate().map(move |(at, value)| record(question, at, *value))
    };
    given.into_iter().flat_map(of).collect()
}

fn parts() -> Vec<Value> {
    let item = |id: i64, option: &str, selected: Value| json!({"id": id, "option": option, "selected": selected});
    let round = |left: &str, right: &str| -> Value {
        let selected = |option: &str| match option {
            _ if option == left => json!("left"),
            _ if option == right => json!("right"),
            _ => json!(null),
        };
        ["A", "B", "C"].iter().zip(1..).map(|(option, id)| item(id, option, selected(option))).collect()
    };
    let mut records = Vec::new();
    for question in [6, 7, 8] {
        // A is the left choice twice, C the right choice twice, B each once; the last round was skipped.
        let rounds = json!([round("A", "C"), round("A", "B"), round("B", "C"), round("", "")]);
        records.push(answer(&format!("m{question}"), question, "MAXDIFF", MONDAY, rounds));
    }
    let choose = |session: &str, question: i64, response: Value, indexes: Value| {
        with(answer(session, question, "MULTIPLESELECT", MONDAY, response), "selectedIndexes", indexes)
    };
    let choice = |session: &str, response: Value, indexes: Value| choose(session, 9, response, indexes);
    records.extend([
        // Indexes from 0, as the option in the second answer proves. A text that is not a list stands for several
        // options.
        choose("d1", 20, json!("Red, Blue"), json!([0, 2])),
        choose("d2", 20, json!("Blue"), json!([2])),
        choose("d3", 20, json!("Green, dark, Blue"), json!([1, 2])),
        // Indexes from 1, because no index is 0 and the highest one equals the number of options.
        choose("d1", 21, json!("One, Three"), json!([1, 3])),
        // Not proven: another answer gives one index a name, and the other index has none.
        choose("d1", 22, json!("Left, Up"), json!([1, 2])),
        choose("d2", 22, json!("Up"), json!([2])),
    ]);
    records.extend([
        choice("c1", json!(["Größe", "日本語", "Größe"]), json!([2, 0, 2])),
        choice("c2", json!("[\"Größe\"]"), json!([2])),
        choice("c3", json!([]), json!([])),
        choice("c4", json!({"unexpected": true}), json!([1])),
        // Indexes that match no label.
        choice("c5", json!("x"), json!([4, 5])),
    ]);
    let rank = |session: &str, response: Value| answer(session, 10, "RANKORDER", MONDAY, response);
    records.extend([
        rank("r1", json!({"A": 1, "B": 2, "C": 3})),
        rank("r2", json!({"B": 1, "A": 2, "C": null})),
        rank("r3", json!({"A": 1, "B": 9, "C": 0})),
        rank("r4", json!({"only": 1})),
        rank("r5", json!({"A": null})),
    ]);
    let matrix = |session: &str, response: Value| answer(session, 11, "MATRIX", MONDAY, response);
    records.extend([
        matrix("x1", json!({"Speed": "5 - good", "": "1"})),
        matrix("x2", json!({"Speed": null, "": "1"})),
        matrix("x3", json!({"Speed": "bad"})),
    ]);
    records
}

fn odd() -> Vec<Value> {
    let open = |session: &str, response: Value| answer(session, 12, "OPEN", MONDAY, response);
    let unnamed_round =
        json!([[{"id": 1, "option": "A", "selected": "left"}, {"id": 2, "option": "B", "selected": "right"}]]);
    let mut missing = open("o4", json!(null));
    missing.as_object_mut().unwrap().remove("response");
    vec![
        open("o1", json!("fine")),
        open("o2", json!(null)),
        open("o3", json!("")),
        missing,
        answer("o1", 13, "TEXTURLPROMPT", MONDAY, json!(null)),
        answer("o1", 14, "hologram", MONDAY, json!({"deep": [1, {"a": null}]})),
        answer("o2", 14, "hologram", MONDAY, json!(9)),
        // A survey that does not exist, and a survey id that is not a number.
        with(answer("u1", 1, "NPS", MONDAY, json!(9)), "surveyId", json!(999_999)),
        with(answer("u2", 1, "NPS", MONDAY, json!(2)), "surveyId", json!("none")),
        with(answer("u3", 9, "MULTIPLECHOICE", MONDAY, json!("Größe")), "surveyId", json!("none")),
        with(answer("u4", 5, "LIKERT", MONDAY, json!(4)), "surveyId", json!("none")),
        with(answer("u4", 10, "RANKORDER", MONDAY, json!({"A": 1, "B": 2})), "surveyId", json!("none")),
        with(answer("u4", 11, "MATRIX", MONDAY, json!({"Speed": "5 - good"})), "surveyId", json!("none")),
        with(answer("u4", 6, "MAXDIFF", MONDAY, unnamed_round), "surveyId", json!("none")),
    ]
}
