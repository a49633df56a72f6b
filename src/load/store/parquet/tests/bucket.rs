//! A warehouse in a bucket: kills at each request, lost answers, two writers, and the number of requests.

use super::{
    kills::{commits, committed, run, shelf_after},
    rows::all_columns,
    *,
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    bucket::{
        Content, Expected,
        faulty::{Fault, Objects},
    },
    load::LockPatience,
};

/// The key of the lease, which outlives a killed writer.
const LEASE: &str = ".studysync/lease.json";

fn open_bucket(objects: &Objects, work: &TempDir) -> Result<ParquetStore, LoadError> {
    ParquetStore::open_bucket(&objects.bucket(), work.path(), &identity(), &options(), &LockPatience::default())
}

/// Ends the lease of a killed writer, as time does.
fn end_lease(objects: &Objects) {
    objects.bucket().remove(&[LEASE.to_owned()]).unwrap();
}

/// Asserts that a worker with this working copy finds the first commits, and ends with all of them.
fn recover(objects: &Objects, work: &TempDir, context: &str) {
    objects.fail(|_| Fault::None);
    end_lease(objects);
    let commits = commits();
    let mut store = open_bucket(objects, work).unwrap_or_else(|error| panic!("{context}: {error}"));
    let done = committed(&mut store).unwrap();
    assert_content(&mut store, done, context);
    run(&mut store, &commits).unwrap();
    assert_content(&mut store, commits.len(), context);
    drop(store);
    let left = objects.bucket().list("", None).unwrap();
    let is_left = |key: &str| key.ends_with(".part") || key.starts_with(".studysync/uploads") || key == LEASE;
    let left: Vec<_> = left.iter().map(|object| &object.key).filter(|key| is_left(key)).collect();
    assert!(left.is_empty(), "{context}: {left:?}");
}

/// Asserts that the store has the content of this number of commits.
fn assert_content(store: &mut ParquetStore, done: usize, context: &str) {
    let mut memory = MemoryStore::open(&shelf_after(&commits()[..done]));
    for name in ["responses", "response_choices", "surveys", "sync_windows"] {
        let columns = all_columns(name);
        let expected = contents(&mut memory, name, &columns, &Filter::all());
        assert_eq!(contents(store, name, &columns, &Filter::all()), expected, "{context}: {name}");
    }
}

/// Runs the commits in a new bucket whose `nth` request meets `fault`, and each later one `later`. Returns false if
/// there are fewer requests.
fn killed_at(nth: usize, fault: Fault, later: Fault) -> bool {
    let objects = Objects::default();
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    objects.fail(move |_| match counter.fetch_add(1, Ordering::Relaxed) {
        at if at == nth => fault,
        at if at > nth => later,
        _ => Fault::None,
    });
    let work = new_folder();
    let ended = open_bucket(&objects, &work).and_then(|mut store| run(&mut store, &commits()));
    if ended.is_ok() {
        assert!(later == Fault::None || taken.load(Ordering::Relaxed) <= nth + 3, "only the lease may fail unseen");
    }
    let context = format!("{fault:?} at request {nth}, then {later:?}");
    // A worker goes on with its own working copy, or another one begins with none.
    let work = if nth.is_multiple_of(2) { work } else { new_folder() };
    recover(&objects, &work, &context);
    taken.load(Ordering::Relaxed) > nth
}

#[test]
fn p2_a_kill_at_any_request_to_a_bucket_is_harmless() {
    for fault in [Fault::Refused, Fault::AnswerLost] {
        let requests = (0..).take_while(|nth| killed_at(*nth, fault, Fault::Refused)).count();
        assert!(requests > 35, "{requests} kills");
    }
}

#[test]
fn p2_a_lost_answer_of_a_bucket_is_harmless() {
    let requests = (0..).take_while(|nth| killed_at(*nth, Fault::AnswerLost, Fault::None)).count();
    assert!(requests > 35, "{requests} lost answers");
}

#[test]
fn a_second_writer_of_a_bucket_is_refused() {
    let objects = Objects::default();
    let works = [new_folder(), new_folder()];
    let _first = open_bucket(&objects, &works[0]).unwrap();
    let refused = open_bucket(&objects, &works[1]).err().unwrap();
    let is_named = |holder: &String| holder.contains(&format!("process {}", std::process::id()));
    assert!(matches!(&refused, LoadError::Locked { holder: Some(holder), .. } if is_named(holder)), "{refused}");
}

/// Lets two writers race, as if the clock of one were wrong: to it, the lease of the other is old.
fn race(objects: &Objects, key: i64) {
    let works = [new_folder(), new_folder()];
    let stores = works.each_ref().map(|work| {
        let store = open_bucket(objects, work).unwrap();
        end_lease(objects);
        store
    });
    let writers = stores.into_iter().zip([key, key + 1]).map(|(mut store, key)| {
        std::thread::spawn(move || {
            let row = Row { key, at_us: START_US, content: key };
            store.write(&[added("responses", &[row]), added("sync_windows", &[row])])?;
            store.commit("race")?;
            store.publish()
        })
    });
    let writers: Vec<_> = writers.collect();
    let ended: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let refused: Vec<_> = ended.iter().filter_map(|ended| ended.as_ref().err()).collect();
    let is_told = |holder: &str| holder.starts_with(&format!("process {} on ", std::process::id()));
    assert!(
        matches!(refused.as_slice(), [LoadError::Locked { holder: Some(holder), .. }] if is_told(holder)),
        "{ended:?}"
    );
    end_lease(objects);
}

#[test]
fn p2_two_writers_of_a_bucket_race_200_times() {
    let races = 200;
    let objects = Objects::default();
    drop(open_bucket(&objects, &new_folder()).unwrap());
    (0..races).for_each(|number| race(&objects, number * 2));
    let work = new_folder();
    let mut store = open_bucket(&objects, &work).unwrap();
    let rows = contents(&mut store, "responses", &all_columns("responses"), &Filter::all());
    assert_eq!((committed(&mut store).unwrap(), rows.len()), (races as usize, races as usize));
}

#[test]
fn p9_the_lease_of_a_dead_process_is_taken_at_once() {
    let objects = Objects::default();
    drop(open_bucket(&objects, &new_folder()).unwrap());
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let process = child.id();
    child.wait().unwrap();
    for (process, host, is_taken) in
        [(process, None, true), (process, Some("another-machine"), false), (std::process::id(), None, false)]
    {
        // The lease of this process, with another number or host.
        let held = open_bucket(&objects, &new_folder()).unwrap();
        let found = objects.bucket().read(LEASE).unwrap().unwrap();
        drop(held);
        let mut lease: serde_json::Value = serde_json::from_slice(&found.bytes).unwrap();
        lease["writer"]["process"] = process.into();
        host.iter().for_each(|host| lease["writer"]["host"] = (*host).into());
        let host = lease["writer"]["host"].as_str().unwrap();
        objects.bucket().put(LEASE, Content::Bytes(lease.to_string().as_bytes()), &Expected::Missing).unwrap();
        match open_bucket(&objects, &new_folder()) {
            Ok(_) => assert!(is_taken, "{lease}"),
            Err(LoadError::Locked { holder, .. }) => {
                assert!(!is_taken, "{lease}");
                assert_eq!(holder.unwrap(), format!("process {process} on {host}, studysync"));
                end_lease(&objects);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_bucket_is_compared_while_it_is_written() {
    let objects = Objects::default();
    let compare = || {
        let work = new_folder();
        let opened = ParquetStore::open_bucket_to_compare(objects.bucket(), work.path(), &identity(), &options());
        opened.map(|store| (store, work))
    };
    let missing = compare().err().unwrap();
    assert!(matches!(&missing, LoadError::Missing { path } if path.ends_with("test/w")), "{missing}");
    let work = new_folder();
    let mut writer = open_bucket(&objects, &work).unwrap();
    let commits = commits();
    run(&mut writer, &commits[..3]).unwrap();
    let (mut reader, _work) = compare().unwrap();
    assert_content(&mut reader, 3, "the third commit waits for publish");
    objects.take_requests();
    let removed = reader.purge_removed_bytes().unwrap_err();
    assert!(matches!(removed, LoadError::Bug(_)), "{removed}");
    assert!(objects.take_requests().is_empty());
    run(&mut writer, &commits).unwrap();
}

#[test]
fn a_commit_to_a_bucket_needs_few_requests() {
    let objects = Objects::default();
    let works = [new_folder(), new_folder()];
    run(&mut open_bucket(&objects, &works[0]).unwrap(), &commits()).unwrap();
    objects.take_requests();
    let mut store = open_bucket(&objects, &works[1]).unwrap();
    let row = Row { key: 50, at_us: START_US, content: 1 };
    store.write(&[added("responses", &[row]), added("sync_windows", &[row])]).unwrap();
    store.commit("night").unwrap();
    store.publish().unwrap();
    drop(store);
    let requests = objects.take_requests();
    let count = |begin: &str| requests.iter().filter(|request| request.starts_with(begin)).count();
    assert_eq!(count("list"), 1, "{requests:#?}");
    // The notes, the ledger and one partition.
    assert_eq!(count("get"), 4, "{requests:#?}");
    // The lease, the commit with its rows, the partition, the ledger and the list of files.
    assert_eq!(count("put"), 6, "{requests:#?}");
    assert_eq!(count("delete"), 2, "{requests:#?}");
}
