//! An erasure that is killed at any durable step and run again ends like one that was not killed: the person's data is
//! gone, and no other data is lost. A kill is a copy of the folder before the step, so later writes of the process do
//! not count.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use studysync::{
    erase::{Erase, EraseRequest},
    model::{DurableStep, IdentifierKind},
    pipeline::System,
};
use studysync_sandbox::ListName;
use tokio_util::sync::CancellationToken;

use super::{
    filled,
    grep::{Needle, found},
    people::{Everybody, Person, SESSIONS, ZOE_UUID, identity, record},
};
use crate::harness::{Place, Service, copy_folder, days_ago, small};

/// Runs the erasure in this process. Before the step that `stops` selects, copies the folder and stops the erasure.
pub fn run(
    place: &Place,
    service: &str,
    person: &Person,
    killed: &Path,
    stops: impl Fn(usize, DurableStep) -> bool + Send + Sync + 'static,
) -> Vec<DurableStep> {
    let mut request = EraseRequest::default();
    let [_, user] = person.arguments();
    request.add_person(IdentifierKind::UserId, user).unwrap();
    run_request(place, service, request, killed, stops)
}

fn run_request(
    place: &Place,
    service: &str,
    request: EraseRequest,
    killed: &Path,
    stops: impl Fn(usize, DurableStep) -> bool + Send + Sync + 'static,
) -> Vec<DurableStep> {
    let (failpoints, taken) = place.killed_before(killed, stops);
    let settings = place.settings(service);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let system = System { failpoints, ..System::default() };
    let opened = Erase::open_in(settings, request, CancellationToken::new(), system);
    if let Ok((erase, Ok(plan))) = opened.map(|mut erase| {
        let plan = erase.plan();
        (erase, plan)
    }) {
        // `apply` returns an error if it was stopped.
        drop(runtime.block_on(erase.apply(plan)));
    }
    let failpoints = taken.lock().unwrap();
    failpoints.clone()
}

#[test]
fn p9_an_erasure_killed_between_steps_resumes() {
    killed_before(|kind| ["JournalWritten", "DuckDbRewritten", "ReceiptWritten"].contains(&kind));
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_an_erasure_killed_at_any_step_resumes() {
    killed_before(|_| true);
}

/// Kills before the first step of each wanted kind, and before the last step of kinds that occur several times.
fn killed_before(is_wanted: impl Fn(&str) -> bool) {
    let (service, place) = filled(500);
    let everybody = Everybody::read(&place);
    let person = everybody.to_erase().remove(0);
    let needles: Vec<Needle> = person.needles();
    let scratch = tempfile::tempdir().unwrap();
    let (evening, killed) = (scratch.path().join("evening"), scratch.path().join("killed"));
    copy_folder(place.root(), &evening);
    let failpoints = run(&place, &service.base_url(), &person, &killed, |_, _| false);
    assert_eq!(found(&place, &needles), [""; 0], "undisturbed");
    let counts = || {
        let sql = "SELECT removed, redacted FROM erasures";
        place.warehouses().into_iter().flat_map(|(_, tables)| tables.rows_of(sql)).collect::<Vec<_>>()
    };
    let undisturbed = counts();

    let mut ends: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (at, step) in failpoints.iter().enumerate() {
        let ends = ends.entry(format!("{step:?}")).or_insert((at + 1, at + 1));
        ends.1 = at + 1;
    }
    for kind in [
        "PagesRewritten",
        "SuppressionWritten",
        "JournalWritten",
        "PurgeAsked",
        "DuckDbRewritten",
        "StateRewritten",
        "ReceiptWritten",
        "ParquetRenamed",
    ] {
        assert!(ends.contains_key(kind), "{kind} was never reached: {ends:?}");
    }
    ends.retain(|kind, _| is_wanted(kind));
    let last = ["PagesRewritten", "JournalWritten", "ParquetRenamed", "ParquetRemoved"];
    let last: Vec<usize> = last.iter().filter_map(|kind| Some(ends.get(*kind)?.1)).collect();
    let mut places: Vec<usize> = ends.values().map(|(first, _)| *first).chain(last).collect();
    places.sort_unstable();
    places.dedup();
    for stop_at in places {
        place.restore(&evening);
        let _ = fs::remove_dir_all(&killed);
        let taken = run(&place, &service.base_url(), &person, &killed, move |at, _| at == stop_at);
        let step = taken[stop_at - 1];
        place.restore(&killed);
        let [flag, user] = person.arguments();
        let done = place.run(&["erase", "--yes", flag, user, "--quiet"]);
        assert_eq!(done.code, 0, "killed before step {stop_at}, {step:?}: {}", done.stderr);
        assert_eq!(found(&place, &needles), [""; 0], "killed before step {stop_at}, {step:?}");
        everybody.assert_others_are_left(
            &place,
            std::slice::from_ref(&person),
            &format!("killed before step {stop_at}, {step:?}"),
        );
        assert_eq!(counts(), undisturbed, "killed before step {stop_at}, {step:?}");
    }
}

#[test]
fn p9_a_redaction_that_is_killed_during_its_rewrite_is_counted() {
    let service = Service::start(small(40, 3));
    let who = identity(Some("bert"), 880_009, ZOE_UUID, SESSIONS[0], None);
    let told = record(SESSIONS[0], 9001, &who, "as anna-4711 wrote", 1);
    service.control().plant(ListName::Responses, &told, None).unwrap();
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(2)]).expect(0);
    let mut request = EraseRequest { redact_mentions: true, ..EraseRequest::default() };
    request.add_person(IdentifierKind::UserId, "anna-4711").unwrap();
    let killed = tempfile::tempdir().unwrap();
    let rewrites = AtomicUsize::new(0);
    let steps = run_request(&place, &service.base_url(), request, killed.path(), move |_, step| {
        // The first rewrite removes the person's rows; the second one redacts mentions.
        step == DurableStep::DuckDbRewritten && rewrites.fetch_add(1, Ordering::Relaxed) == 1
    });
    assert_eq!(steps.last(), Some(&DurableStep::DuckDbRewritten), "{steps:?}");
    place.restore(killed.path());
    let done = place.run(&["erase", "--yes", "--user-id", "anna-4711", "--redact-mentions", "--json"]).expect(0);
    // The same answer in DuckDB, in Parquet and in the archive.
    assert_eq!(done.json()["redacted"], 3, "{}", done.stdout);
    assert_eq!(found(&place, &[Needle::new("anna-4711")]), [""; 0]);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_linked_identifiers_survive_a_kill() {
    let (service, place) = filled(500);
    let person = Everybody::read(&place).to_erase().remove(2);
    let killed = tempfile::tempdir().unwrap();
    let request = |name: &str| Person::named("--user-id", name);
    run(&place, &service.base_url(), &request(super::people::ZOE), killed.path(), |_, step| {
        step == DurableStep::ReceiptWritten
    });
    place.restore(killed.path());
    // Her rows are gone, and with them the link from her user id to the visitor number. The journal of the erasure
    // keeps that link.
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM responses WHERE visitor_id = 880001"), 0);
    place.run(&["erase", "--yes", "--user-id", super::people::ZOE]).expect(0);
    // The service still sends a session from before she had an account. Only the visitor number identifies it.
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    assert_eq!(found(&place, &person.needles()), [""; 0]);
    let left = service.truth(studysync_sandbox::ListName::Responses);
    assert!(left.iter().any(|record| person.needles().iter().any(|needle| needle.is_in(record.as_bytes()))));
}
