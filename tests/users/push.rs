//! Users are sent once, exactly as written. The outcome of each row is known, or reported as unknown.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use studysync_sandbox::{
    Auth, Faults, RateLimit, Refusal, RetryAfter, RetryAfterForm, ServerError, Settings, UpsertedUser, When,
};

use crate::{
    gate::assert_obeyed,
    harness::{Done, Place, Service, connect, days_ago, small},
    kills::killer::Killer,
};

pub fn service(faults: Faults) -> Service {
    Service::start(Settings { frozen_clock: false, faults, ..small(20, 5) })
}

/// Returns the users that arrived at the service.
pub fn arrived(service: &Service) -> BTreeMap<String, UpsertedUser> {
    service.control().upserted_users().into_iter().map(|user| (user.user_id.clone(), user)).collect()
}

/// Returns the number of upsert requests.
pub fn sent(service: &Service) -> usize {
    service.log().iter().filter(|entry| entry.method == "POST" && entry.path == "/v2/users").count()
}

pub fn write(place: &Place, name: &str, text: &str) -> String {
    let path = place.path(name);
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

/// Returns the rows of a results file, as column to cell, by row number.
pub fn results(path: &str) -> BTreeMap<u64, BTreeMap<String, String>> {
    let path = path.replace('\'', "''");
    let connection = connect();
    let sql = format!(
        "SELECT to_json(r)::VARCHAR FROM read_csv('{path}', header = true, all_varchar = true, null_padding = false) r"
    );
    let mut statement = connection.prepare(&sql).unwrap();
    let lines = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let read = |line: Result<String, _>| {
        let cells: BTreeMap<String, Option<String>> = serde_json::from_str(&line.unwrap()).unwrap();
        let cells: BTreeMap<String, String> =
            cells.into_iter().map(|(name, cell)| (name, cell.unwrap_or_default())).collect();
        (cells["row"].parse().unwrap(), cells)
    };
    lines.map(read).collect()
}

fn fed(mut command: Command, input: &str) -> Done {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Done::from(child.wait_with_output().unwrap())
}

#[test]
fn every_input_format_sends_each_user_once() {
    let service = service(Faults { auth: Auth::Strict, ..Faults::default() });
    let place = Place::new(&service);
    let csv = write(
        &place,
        "users.csv",
        "userId,email,attributes.plan,attributes.seats:integer,attributes.vip:boolean,events\n\
         a/ü,a@example.com,pro,7,true,\"[{\"\"event\"\":\"\"login\"\",\"\"timestamp\"\":1769846400000}]\"\nb,,007,,,\n",
    );
    let first = place.report(&["users", "push", &csv], 0);
    assert_eq!(first["rows"]["accepted"], 2, "{first}");
    let there = arrived(&service);
    let expected = json!({"plan": "pro", "seats": 7, "vip": true});
    assert_eq!((json!(there["a/ü"].attributes), there["a/ü"].email.as_deref()), (expected, Some("a@example.com")));
    assert_eq!((json!(there["b"].attributes), &there["b"].email), (json!({"plan": "007"}), &None));
    assert_eq!(json!(there["a/ü"].events), json!({"login": 1}));

    // The same rows in other forms: the ledger knows all of them.
    let lines = concat!(
        r#"{"userId":"a/ü","attributes":{"vip":true,"plan":"pro"},"attributes.seats":7,"email":"a@example.com","#,
        r#""events":[{"event":"login","timestamp":"2026-01-31T08:00:00Z"}]}"#,
        "\n",
        r#"{"userId":"b","attributes":{"plan":"007","none":null}}"#
    );
    let ndjson = write(&place, "users.ndjson", lines);
    let parquet = place.path("users.parquet").to_string_lossy().into_owned();
    let table =
        "SELECT 'a/ü' AS \"userId\", 'a@example.com' AS email, {'plan': 'pro', 'seats': 7, 'vip': true} AS attributes,
            [{'event': 'login', 'timestamp': TIMESTAMP '2026-01-31 08:00:00'}] AS events
        UNION ALL SELECT 'b', NULL, {'plan': '007', 'seats': NULL, 'vip': NULL}, NULL";
    connect().execute_batch(&format!("COPY ({table}) TO '{parquet}' (FORMAT parquet)")).unwrap();
    place.report(&["backfill", "--from", &days_ago(6)], 0);
    service.clear_log();
    for arguments in [vec![csv.as_str()], vec![&ndjson], vec![&parquet], vec!["--query", table]] {
        let again = place.report(&[&["users", "push"], arguments.as_slice()].concat(), 0);
        assert_eq!((&again["rows"]["known"], &again["rows"]["read"]), (&json!(2), &json!(2)), "{arguments:?}: {again}");
    }
    let done = fed(place.command(&["users", "push", "-", "--format", "ndjson", "--json"]), lines).expect(0);
    assert_eq!(done.json()["rows"]["known"], 2);
    assert_eq!(sent(&service), 0, "nothing was sent again");
    let results = results(&format!("{csv}.results.csv"));
    assert_eq!((results[&1]["fate"].as_str(), results[&1]["this_push"].as_str()), ("accepted", "nothing"));
    assert_eq!(results[&2]["userId"], "b");
    for name in ["checkpoints.sqlite", "checkpoints.sqlite-wal"] {
        let bytes = std::fs::read(place.state().with_file_name(name)).unwrap_or_default();
        assert!(!bytes.windows(13).any(|found| found == b"a@example.com"), "{name} names nobody");
    }
}

#[test]
fn invalid_rows_are_set_aside_and_the_others_are_sent() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let many: serde_json::Map<String, Value> = (0..101).map(|at| (format!("a{at}"), json!(1))).collect();
    let rows = [
        json!({"userId": "good", "attributes": {"a": 1}}),
        json!({"userId": "many", "attributes": many}),
        json!({"userId": "fraction", "attributes": {"a": 1.5}}),
        json!({"email": "nobody@example.com"}),
        json!({"userId": "unknown", "plan": "pro"}),
        json!({"userId": "also good"}),
    ];
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect::<String>() + "{\"userId\":\n";
    let file = write(&place, "rows.jsonl", &text);
    let report = place.report(&["users", "push", &file], 3);
    assert_eq!((&report["rows"]["accepted"], &report["rows"]["set_aside"]), (&json!(2), &json!(4)), "{report}");
    assert_eq!(arrived(&service).into_keys().collect::<Vec<_>>(), ["also good", "good"]);
    let results = results(&format!("{file}.results.csv"));
    assert_eq!(results.len(), 7);
    for (row, reason) in [(2, "at most 100"), (4, "line 4: there is no userId"), (5, "'plan'"), (7, "not valid JSON")] {
        assert_eq!(results[&row]["fate"], "set_aside");
        assert!(results[&row]["reason"].contains(reason), "{:?}", results[&row]);
    }
    assert_eq!(results[&3]["fate"], "refused", "the service decides about a fraction");
    assert!(results[&3]["reason"].contains("must be a string, an integer or a boolean"), "{:?}", results[&3]);
    let wrong = write(&place, "wrong.csv", "user,plan\nu,p\n");
    let refused = place.run(&["users", "push", &wrong]).expect(2);
    assert!(refused.stderr.contains("no column 'user'"), "{}", refused.stderr);
    let missing = place.run(&["users", "push", "missing.csv"]).expect(2);
    assert!(missing.stderr.contains("missing.csv"), "{}", missing.stderr);
    let formless = place.run(&["users", "push", &write(&place, "users.txt", "")]).expect(2);
    assert!(formless.stderr.contains("--format"), "{}", formless.stderr);
}

#[test]
fn an_open_quote_in_csv_costs_only_its_own_row() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let file = write(
        &place,
        "u.csv",
        "userId;attributes.plan\r\nu1;\"pro\r\nu2;basic\r\nu3;\"free\"\r\n1002.0;x\r\n;;\r\n u4 ;\"two\r\nlines\"\r\n",
    );
    let report = place.report(&["users", "push", &file], 3);
    assert_eq!((&report["rows"]["accepted"], &report["rows"]["set_aside"]), (&json!(3), &json!(2)), "{report}");
    let there = arrived(&service);
    assert_eq!(there.keys().collect::<Vec<_>>(), ["u2", "u3", "u4"]);
    assert_eq!(there["u4"].attributes["plan"], "two\r\nlines");
    let results = results(&format!("{file}.results.csv"));
    assert!(results[&1]["reason"].starts_with("line 2: the quote that begins cell 2 is not closed"), "{results:?}");
    assert!(
        results[&4]["reason"].starts_with("line 5: ") && results[&4]["reason"].ends_with("write 1002"),
        "{results:?}"
    );
}

#[test]
fn text_in_any_encoding_is_sent_as_utf8() {
    let service = service(Faults { any_attribute_values: true, ..Faults::default() });
    let place = Place::new(&service);
    let utf16: Vec<u8> =
        "\u{feff}userId\tattributes.n:number\r\nü1\t1.50\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(place.path("u16.tsv"), utf16).unwrap();
    std::fs::write(place.path("1252.csv"), b"userId,attributes.t:json\n\xfc2,\"[1,2]\"\n").unwrap();
    std::fs::write(place.path("bom.ndjson"), "\u{feff}{\"userId\":\"ü3\"}\n".as_bytes()).unwrap();
    place.report(&["users", "push", "u16.tsv"], 0);
    place.report(&["users", "push", "bom.ndjson"], 0);
    let refused = place.report(&["users", "push", "1252.csv"], 3);
    assert_eq!(refused["rows"]["set_aside"], 1, "{refused}");
    assert!(results(place.path("1252.csv.results.csv").to_str().unwrap())[&1]["reason"].contains("--encoding"));
    place.report(&["users", "push", "1252.csv", "--encoding", "windows-1252"], 0);
    let there = arrived(&service);
    assert_eq!(there.keys().collect::<Vec<_>>(), ["ü1", "ü2", "ü3"]);
    assert_eq!((&there["ü1"].attributes["n"], &there["ü2"].attributes["t"]), (&json!(1.5), &json!([1, 2])));
    place.run(&["users", "push", "1252.csv", "--encoding", "latin-99"]).expect(2);
}

#[test]
fn a_refused_user_is_reported_and_not_sent_again() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let file = write(&place, "u.ndjson", "{\"userId\":\"u1\"}\n{\"userId\":\"u2\"}\n{\"userId\":\"u3\"}\n");
    let refusing = ServerError { when: When { count: 1, ..When::default() }, status: 422 };
    service.set_faults(Faults { server_error: refusing, ..Faults::default() });
    let report = place.report(&["users", "push", &file, "--concurrency", "1"], 3);
    assert_eq!((&report["rows"]["refused"], &report["rows"]["accepted"]), (&json!(1), &json!(2)));
    let first = results(&format!("{file}.results.csv"));
    assert_eq!((first[&1]["status"].as_str(), first[&1]["reason"].as_str()), ("422", "internal error"));
    service.clear_log();
    let again = place.report(&["users", "push", &file], 3);
    assert_eq!((&again["rows"]["refused"], sent(&service)), (&json!(1), 0));
    let sent_again = place.report(&["users", "push", &file, "--again"], 0);
    assert_eq!((&sent_again["rows"]["accepted"], sent(&service)), (&json!(3), 3));
}

#[test]
fn p2_a_lost_answer_neither_loses_nor_repeats_an_event() {
    let lost = ServerError { when: When { every: 5, ..When::default() }, status: 504 };
    let service = service(Faults { lost_answer: lost, ..Faults::default() });
    let place = Place::new(&service);
    let rows = (0..40).map(|at| {
        let events = if at % 2 == 0 { json!([{"event": "signup", "timestamp": at}]) } else { json!([]) };
        json!({"userId": format!("u{at}"), "attributes": {"n": at}, "events": events}).to_string() + "\n"
    });
    let file = write(&place, "u.ndjson", &rows.collect::<String>());
    let report = place.report(&["users", "push", &file], 3);
    let unknown = report["rows"]["events_unknown"].as_u64().unwrap();
    assert_eq!(report["rows"]["accepted"], 40, "{report}");
    assert!(unknown > 0, "{report}");
    let there = arrived(&service);
    let results = results(&format!("{file}.results.csv"));
    for row in results.values() {
        let user = &there[&row["userId"]];
        let is_named = row["unknown_sends"] != "0";
        assert_eq!(user.upserts > 1, is_named, "{row:?}: {} times", user.upserts);
        let has_events = row["userId"][1..].parse::<u64>().unwrap().is_multiple_of(2);
        assert_eq!(user.events.get("signup").copied(), has_events.then_some(1), "{row:?}");
        assert_eq!(
            row["events"],
            if !has_events {
                ""
            } else if is_named {
                "unknown"
            } else {
                "accepted"
            },
            "{row:?}"
        );
    }
    service.set_faults(Faults::default());
    let resent = place.report(&["users", "push", &file, "--resend-events"], 0);
    assert_eq!((&resent["rows"]["accepted"], &resent["rows"]["known"]), (&json!(unknown), &json!(40 - unknown)));
    let twice = arrived(&service).values().filter(|user| user.events.get("signup") == Some(&2)).count();
    assert_eq!(twice as u64, unknown, "as the user asked for");
}

#[test]
fn p2_an_error_after_a_lost_answer_leaves_the_outcome_unknown() {
    let user = r#"{"userId":"u1","attributes":{"n":1},"events":[{"event":"signup","timestamp":1}]}"#;
    for (status, flags, code, outcome) in [
        // The first request is accepted and its answer is lost; the second request gets this status.
        (404, &[][..], 1, "unknown"),
        (404, &["--resend-events"][..], 1, "unknown"),
        (422, &[][..], 3, "refused"),
        (422, &["--resend-events"][..], 3, "refused"),
    ] {
        let upserts = |skip| When { skip, count: 1, path: "/v2/users".to_owned(), ..When::default() };
        let service = service(Faults {
            lost_answer: ServerError { when: upserts(0), status: 504 },
            server_error: ServerError { when: upserts(1), status },
            ..Faults::default()
        });
        let place = Place::new(&service);
        let file = write(&place, "u.ndjson", user);
        let push = [&["users", "push", &file, "--concurrency", "1"], flags].concat();
        place.run(&push).expect(code);
        let row = &results(&format!("{file}.results.csv"))[&1];
        let told = ["fate", "this_push", "unknown_sends", "events"].map(|column| row[column].as_str());
        let this_push = if flags.is_empty() && status == 422 { "sent_again" } else { "sent" };
        assert_eq!(told, [outcome, this_push, "1", "unknown"], "{status} {flags:?}: {row:?}");
        // The ledger knows the row too: a later push does not send the events again without `--again`.
        let again = [&["users", "push", &file][..], if status == 422 { &["--again"] } else { &[] }].concat();
        let report = place.report(&again, 3);
        assert_eq!(
            (&report["rows"]["accepted"], &report["rows"]["events_unknown"]),
            (&json!(1), &json!(1)),
            "{report}"
        );
        assert_eq!(arrived(&service)["u1"].events.get("signup"), Some(&1), "{status} {flags:?}");
    }
}

#[test]
fn p2_a_lost_answer_stays_unknown_in_later_pushes() {
    let user = |id: &str| format!("{{\"userId\":\"{id}\",\"events\":[{{\"event\":\"signup\",\"timestamp\":1}}]}}\n");
    let upserts = |when: When| When { path: "/v2/users".to_owned(), ..when };
    let each = |status| ServerError { when: upserts(When { every: 1, ..When::default() }), status };
    let once = |skip, status| ServerError { when: upserts(When { skip, count: 1, ..When::default() }), status };
    let told = |file: &str, row| {
        let row = results(&format!("{file}.results.csv"))[&row].clone();
        ["fate", "this_push", "unknown_sends", "events"].map(|column| row[column].clone())
    };
    let service = service(Faults { server_error: once(0, 422), ..Faults::default() });
    let place = Place::new(&service);
    let again = |file: &str, flags: &[&str], code| {
        place.run(&[&["users", "push", file, "--concurrency", "1"], flags].concat()).expect(code)
    };

    // A refused row is sent again. The first answer is lost, and the service refuses the next requests.
    let refused = write(&place, "refused.ndjson", &user("u1"));
    again(&refused, &[], 3);
    service.set_faults(Faults {
        lost_answer: once(0, 504),
        server_error: ServerError { when: upserts(When { skip: 1, every: 1, ..When::default() }), status: 503 },
        ..Faults::default()
    });
    again(&refused, &["--again"], 3);
    assert_eq!(told(&refused, 1), ["unknown", "sent", "1", "unknown"]);
    service.set_faults(Faults::default());
    again(&refused, &[], 3);
    assert_eq!(told(&refused, 1), ["accepted", "sent_again", "1", "unknown"]);
    assert_eq!(arrived(&service)["u1"].events.get("signup"), Some(&1));

    // Every answer about a row is lost: one request with its event, and as many without the event as an upsert has
    // attempts.
    let lost = write(&place, "lost.ndjson", &user("u4"));
    service.set_faults(Faults { lost_answer: each(504), ..Faults::default() });
    service.clear_log();
    again(&lost, &[], 3);
    let requests = sent(&service).to_string();
    assert_eq!(told(&lost, 1), ["unknown", "sent_again", requests.as_str(), "unknown"]);
    // Two later pushes know the row: one ends before it, and the service refuses the other one.
    service.set_faults(Faults { server_error: once(1, 404), ..Faults::default() });
    let three = write(&place, "three.ndjson", &(user("u2") + &user("u3") + &user("u4")));
    again(&three, &[], 1);
    assert_eq!(told(&three, 3), ["unknown", "nothing", requests.as_str(), "unknown"]);
    service.set_faults(Faults { server_error: each(503), ..Faults::default() });
    again(&lost, &[], 1);
    assert_eq!(told(&lost, 1), ["unknown", "nothing", requests.as_str(), "unknown"]);
    // Rows with a known outcome are reported with it, also if the push ended before them.
    let known = write(&place, "known.ndjson", &(user("u5") + &user("u3") + &user("u1")));
    service.set_faults(Faults { server_error: once(0, 404), ..Faults::default() });
    again(&known, &[], 1);
    assert_eq!(told(&known, 3), ["accepted", "nothing", "1", "unknown"]);
}

#[test]
fn p5_a_push_obeys_limits_and_knows_each_outcome() {
    let limit = RateLimit { per_second: 25.0, burst: 10, form: RetryAfterForm::Fraction, ..RateLimit::default() };
    let service = service(Faults { rate_limit: limit, ..Faults::default() });
    let place = Place::new(&service);
    let rows: String = (0..200)
        .map(|at| json!({"userId": format!("u{at}"), "events": [{"event": "e", "timestamp": 1}]}).to_string() + "\n")
        .collect();
    let file = write(&place, "u.ndjson", &rows);
    let report = place.report(&["users", "push", &file, "--concurrency", "8"], 0);
    assert_eq!(report["rows"]["sent_unknown"], 0, "{report}");
    let log = service.log();
    assert_obeyed(&log, "push");
    assert!(log.iter().any(|entry| entry.status == 429), "the limit was never met");
    let there = arrived(&service);
    assert_eq!((there.len(), there.values().all(|user| user.upserts == 1 && user.events["e"] == 1)), (200, true));
    let secs = (log.last().unwrap().arrived_us - log[0].arrived_us) as f64 / 1e6;
    assert!(secs < 190.0 / 25.0 * 1.8, "{secs} s");
}

#[test]
fn p2_a_kill_while_rate_limited_leaves_no_unknown_outcome() {
    let told = RetryAfter { form: RetryAfterForm::Seconds, wait_ms: 9_000 };
    let too_many_requests = Refusal { when: When { every: 1, ..When::default() }, retry_after: told };
    let service = service(Faults { too_many_requests, ..Faults::default() });
    let place = Place::new(&service);
    let rows: String = (0..50)
        .map(|at| json!({"userId": format!("u{at}"), "events": [{"event": "e", "timestamp": 1}]}).to_string() + "\n")
        .collect();
    let file = write(&place, "u.ndjson", &rows);
    let command = ["users", "push", &file, "--concurrency", "8"].map(str::to_owned);
    assert!(Killer::new(1).kill_after_requests(&service, &place, &command, 1, Duration::from_millis(1500)));
    service.set_faults(Faults::default());
    let report = place.report(&["users", "push", &file], 0);
    assert_eq!((&report["rows"]["accepted"], &report["rows"]["sent_unknown"]), (&json!(50), &json!(0)), "{report}");
}

#[test]
fn p5_a_budget_ends_a_push_and_the_next_one_resumes() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let rows: String = (0..30).map(|at| format!("{{\"userId\":\"u{at}\"}}\n")).collect();
    let file = write(&place, "u.ndjson", &rows);
    let stopped = place.report(&["users", "push", &file, "--max-requests", "10"], 6);
    assert_eq!(stopped["rows"]["accepted"], 10, "{stopped}");
    assert_eq!(stopped["rows"]["sent_unknown"], 0, "{stopped}");
    let rest = place.report(&["users", "push", &file], 0);
    assert_eq!((&rest["rows"]["known"], &rest["rows"]["accepted"]), (&json!(10), &json!(20)));
    assert_eq!(sent(&service), 30);
    let status = place.run(&["status"]).expect(0);
    assert!(status.stdout.contains("users push"), "{}", status.stdout);
}

#[test]
fn rows_of_one_user_keep_their_order_across_pushes() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let rows: String = (0..60)
        .map(|at| json!({"userId": format!("u{}", at % 3), "attributes": {"n": at}}).to_string() + "\n")
        .collect();
    let file = write(&place, "u.ndjson", &rows);
    place.report(&["users", "push", &file, "--concurrency", "8"], 0);
    let there = arrived(&service);
    for (user_id, last) in [("u0", 57), ("u1", 58), ("u2", 59)] {
        assert_eq!(there[user_id].attributes["n"], last, "{user_id}");
        assert_eq!(there[user_id].upserts, 20);
    }
    let old = write(&place, "old.ndjson", &json!({"userId": "u0", "attributes": {"n": 0}}).to_string());
    let known = place.report(&["users", "push", &old], 0);
    assert_eq!((&known["rows"]["known"], &known["rows"]["known_and_overtaken"]), (&json!(1), &json!(1)));
    assert!(results(&format!("{old}.results.csv"))[&1]["reason"].contains("--again"));
    place.report(&["users", "push", &old, "--again"], 0);
    assert_eq!(arrived(&service)["u0"].attributes["n"], 0);
}

#[test]
fn a_dry_run_lists_what_would_be_sent_and_sends_nothing() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let file = write(&place, "u.csv", "userId,attributes.a\nu1,x\nu2,y\n,z\n");
    let dry = place.report(&["users", "push", &file, "--dry-run"], 3);
    assert_eq!((&dry["rows"]["would_send"], &dry["rows"]["set_aside"]), (&json!(2), &json!(1)), "{dry}");
    assert!(service.log().is_empty() && !place.state().exists());
    let one = write(&place, "one.csv", "userId,attributes.a\nu1,x\n");
    place.report(&["users", "push", &one], 0);
    let dry = place.report(&["users", "push", &file, "--dry-run", "--results", &format!("{file}.x")], 3);
    assert_eq!((&dry["rows"]["would_send"], &dry["rows"]["known"]), (&json!(1), &json!(1)), "{dry}");
    assert_eq!(results(&format!("{file}.x"))[&2]["fate"], "would_send");
    assert_eq!(sent(&service), 1);
}

#[test]
fn an_unusable_service_ends_a_push_with_its_exit_code() {
    let service = service(Faults { auth: Auth::Strict, ..Faults::default() });
    let rows: String = (0..200).map(|at| format!("{{\"userId\":\"u{at}\"}}\n")).collect();
    let bearer = Place::new(&service).with_config("[service]\nauth = \"bearer\"\n");
    let file = write(&bearer, "u.ndjson", &rows);
    let refused = bearer.report(&["users", "push", &file], 4);
    assert_eq!(refused["rows"]["accepted"], 0);
    assert!(sent(&service) <= 8, "{} requests with a key that is refused", sent(&service));
    service.set_faults(Faults::default());
    let elsewhere = Place::at(format!("{}/elsewhere", service.base_url()));
    let file = write(&elsewhere, "u.ndjson", &rows);
    elsewhere.report(&["users", "push", &file], 1);
    let left = results(&format!("{file}.results.csv"));
    assert!(left.values().all(|row| row["fate"] == "not_sent" && row["unknown_sends"] == "0"), "{left:?}");
}
