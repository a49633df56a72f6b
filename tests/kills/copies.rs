//! A run that is killed at any durable step of its copies leaves the old copy or the new one, and the next run makes
//! the copies as a run does that was not killed. A kill is a copy of the folder before the step.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use studysync::{
    model::DurableStep,
    pipeline::{PeopleSelection, Progress, Request, Run, System},
};
use studysync_sandbox::ChangeRequest;
use tokio_util::sync::CancellationToken;

use crate::harness::{ALL_FLAGS, Place, Service, Tables, all_contracts, copy_folder, days_ago, small};

const FILE: &str = "analysts.duckdb";
const FOLDER: &str = "analysts-parquet";
/// The steps of copies. No other durable step of a run without new records is of these kinds.
const COPY_STEPS: [DurableStep; 6] = [
    DurableStep::DuckDbCopied,
    DurableStep::ParquetFolderMade,
    DurableStep::ParquetWritten,
    DurableStep::ParquetSynced,
    DurableStep::ParquetRenamed,
    DurableStep::ParquetRemoved,
];

/// The content of both copies: the rows of the file by table, and the bytes of the folder's files by path.
#[derive(Clone, Debug, PartialEq)]
struct Copies {
    file: BTreeMap<String, BTreeSet<String>>,
    folder: BTreeMap<PathBuf, Vec<u8>>,
}

impl Copies {
    fn read(place: &Place) -> Copies {
        let file = Tables::duckdb(&place.path(FILE));
        let rows = |name: &String| file.rows(name).iter().map(|row| format!("{row:?}")).collect();
        let is_table = |path: &PathBuf| {
            let is_private = path.components().any(|part| part.as_os_str() == ".studysync");
            !is_private && path.extension().is_some_and(|name| name == "parquet")
        };
        let files = place.files(FOLDER).into_iter().filter(is_table);
        let relative = |path: &Path| path.strip_prefix(place.root()).unwrap().to_owned();
        Copies {
            file: all_contracts().keys().map(|name| (name.clone(), rows(name))).collect(),
            folder: files.map(|path| (relative(&path), fs::read(&path).unwrap())).collect(),
        }
    }

    /// Asserts that each copied file is the old one or the new one, and returns how many are new.
    fn assert_each_old_or_new(&self, old: &Copies, new: &Copies, when: &str) -> usize {
        assert!(self.file == old.file || self.file == new.file, "{when}: the file is neither old nor new");
        for (path, bytes) in &self.folder {
            let known = [old.folder.get(path), new.folder.get(path)];
            assert!(known.contains(&Some(bytes)), "{when}: {} is neither old nor new", path.display());
        }
        let is_new = |(path, bytes): &(&PathBuf, &Vec<u8>)| new.folder.get(*path) == Some(bytes);
        self.folder.iter().filter(is_new).count() + usize::from(self.file == new.file)
    }
}

/// Syncs in this process. Before the step with this number, copies the folder to `killed` and stops the run.
fn sync_and_kill(place: &Place, service: &Service, killed: &Path, stop_at: Option<usize>) -> Vec<DurableStep> {
    let (failpoints, taken) = place.killed_before(killed, move |number, _| stop_at == Some(number));
    let settings = place.settings(&service.base_url());
    let request =
        Request { command: "sync", backfill: None, accept_vanished: false, people: PeopleSelection::AfterLists };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // One thread, so that the steps come in the same order each time.
        let system = System { failpoints, engine_threads: Some(1), ..System::default() };
        let progress = Arc::new(Progress::default());
        if let Ok(run) = Run::open_in(settings, request, CancellationToken::new(), progress, system).await {
            // A stopped run returns an error.
            let (_, outcome) = run.execute().await;
            assert_eq!(outcome.is_ok(), stop_at.is_none(), "{:?}", outcome.err());
        }
    });
    let taken = taken.lock().unwrap();
    taken.clone()
}

/// Returns a place whose copies are a night older than its warehouses.
fn place_with_old_copies(service: &Service) -> Place {
    let place = Place::new(service);
    fs::write(place.path("publish-key"), "a key of pseudonyms for tests").unwrap();
    let key = place.path("publish-key").display().to_string();
    let publish = format!(
        "{ALL_FLAGS}[warehouse]\npublish = {{ path = \"{FILE}\", parquet = \"{FOLDER}\" }}\npublish_key_file = \"{key}\"\n"
    );
    let place = place.with_config(&publish);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    let place = place.with_config(ALL_FLAGS);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 5, new_answers: 30, edits: 40, ..ChangeRequest::default() });
    place.run(&["sync"]).expect(0);
    place.with_config(&publish)
}

#[test]
fn p2_a_kill_at_the_copies_leaves_old_or_new_copies() {
    killed_before(|nth, count| nth == 0 || nth + 1 == count);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_kill_at_any_step_of_the_copies_is_harmless() {
    killed_before(|_, _| true);
}

/// Kills before the wanted ones of the steps of each kind. `is_wanted` gets the number of the step among those of its
/// kind, and the count of these.
fn killed_before(is_wanted: impl Fn(usize, usize) -> bool) {
    let service = Service::start(small(150, 12));
    let place = place_with_old_copies(&service);
    let old = Copies::read(&place);
    let scratch = tempfile::tempdir().unwrap();
    let (evening, killed) = (scratch.path().join("evening"), scratch.path().join("killed"));
    copy_folder(place.root(), &evening);
    let steps = sync_and_kill(&place, &service, &killed, None);
    let new = Copies::read(&place);
    assert!(old.file != new.file && old.folder != new.folder, "the undisturbed run changed no copy");
    let mut stops = Vec::new();
    for kind in COPY_STEPS {
        let of_kind: Vec<usize> = (0..steps.len()).filter(|at| steps[*at] == kind).collect();
        stops
            .extend(of_kind.iter().enumerate().filter(|(nth, _)| is_wanted(*nth, of_kind.len())).map(|(_, at)| at + 1));
    }
    let kinds: Vec<_> = stops.iter().map(|at| steps[at - 1]).collect();
    for kind in [DurableStep::DuckDbCopied, DurableStep::ParquetWritten, DurableStep::ParquetRenamed] {
        assert!(kinds.contains(&kind), "{kind:?} was never reached: {steps:?}");
    }
    let mut partly = 0;
    for stop_at in stops {
        place.restore(&evening);
        let _ = fs::remove_dir_all(&killed);
        let taken = sync_and_kill(&place, &service, &killed, Some(stop_at));
        let when = format!("killed before step {stop_at}, {:?}", taken[stop_at - 1]);
        assert_eq!(taken[stop_at - 1], steps[stop_at - 1], "{when}");
        place.restore(&killed);
        let count = Copies::read(&place).assert_each_old_or_new(&old, &new, &when);
        partly += usize::from(count > 0 && count <= new.folder.len());
        place.run(&["sync"]).expect(0);
        assert!(Copies::read(&place) == new, "{when}: the next run made other copies");
        let left = place.files("").into_iter().filter(|path| path.to_string_lossy().contains(".unfinished"));
        let left: Vec<_> = left.chain(place.files(&format!("{FOLDER}/.studysync/scratch"))).collect();
        assert!(left.is_empty(), "{when}: {left:?}");
    }
    assert!(partly > 0, "no kill came between two files");
}
