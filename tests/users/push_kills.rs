//! Ten thousand users and five kills: all users arrive. Only the few that were in flight are sent twice, and the
//! results name them; no event is sent twice (P2).

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use studysync_sandbox::Faults;

use super::push::{arrived, results, sent, service, write};
use crate::{
    harness::Place,
    kills::killer::{Killer, Random},
};

const USERS: u64 = 10_000;
const KILLS: u64 = 5;
const AT_ONCE: usize = 8;

#[test]
fn p2_ten_thousand_users_arrive_once_despite_five_kills() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let rows = (0..USERS).map(|at| {
        let events = json!([{"event": "signup", "timestamp": at}]);
        json!({"userId": format!("user {at}"), "attributes": {"n": at}, "events": events}).to_string() + "\n"
    });
    let file = write(&place, "users.ndjson", &rows.collect::<String>());
    let command = ["users", "push", &file, "--concurrency", "8"].map(str::to_owned);
    let (mut killer, mut random) = (Killer::new(11), Random(11));
    for _ in 0..KILLS {
        let after_requests = random.below(USERS / KILLS - 100) + 1;
        let after = Duration::from_micros(random.below(40_000));
        assert!(killer.kill_after_requests(&service, &place, &command, after_requests, after), "it was too fast");
    }
    let before = sent(&service);
    assert!(before > 100 && before < USERS as usize, "{before} requests before the last push");
    // If a kill hit requests in flight, it is unknown whether their events arrived.
    let done = place.run(&["users", "push", &file, "--json"]);
    let report = done.json();
    assert_eq!(done.code, if report["rows"]["events_unknown"] == 0 { 0 } else { 3 }, "{report}");
    assert_eq!(report["rows"]["read"], USERS);

    let (there, results) = (arrived(&service), results(&format!("{file}.results.csv")));
    assert_eq!((there.len(), results.len()), (USERS as usize, USERS as usize));
    let named: BTreeSet<&str> =
        results.values().filter(|row| row["unknown_sends"] != "0").map(|row| row["userId"].as_str()).collect();
    assert!(named.len() <= KILLS as usize * AT_ONCE, "{} rows of unknown fate", named.len());
    assert!(results.values().all(|row| row["fate"] == "accepted"));
    for (user_id, user) in &there {
        let is_named = named.contains(user_id.as_str());
        assert!(user.upserts == 1 || is_named, "{user_id} was sent {} times and is not named", user.upserts);
        let events = user.events.get("signup").copied().unwrap_or(0);
        assert!(events == 1 || (events == 0 && is_named), "{user_id}: {events} events");
        assert_eq!(user_id, &format!("user {}", user.attributes["n"]));
    }
    let unknown = results.values().filter(|row| row["events"] == "unknown").count();
    assert_eq!(unknown, named.len(), "each named row had events");

    let resent = place.report(&["users", "push", &file, "--resend-events"], 0);
    assert_eq!(
        (&resent["rows"]["accepted"], &resent["rows"]["known"]),
        (&json!(unknown), &json!(USERS as usize - unknown))
    );
    let there = arrived(&service);
    assert!(there.values().all(|user| user.events.contains_key("signup")), "all events are there now");
    let once = there.iter().filter(|(user_id, _)| !named.contains(user_id.as_str()));
    assert!(once.into_iter().all(|(_, user)| user.events["signup"] == 1));
    let before = sent(&service);
    place.report(&["users", "push", &file], 0);
    assert_eq!(sent(&service), before, "all is known");
}
