//! Kills at every durable step: afterwards the warehouse opens with the committed rows, and recovery gives the same
//! result.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    rows::{all_columns, assert_published, change},
    *,
};

/// Lets the first `steps` steps pass and fails all others, as after a kill. An interrupted write leaves a torn file.
pub(super) fn killed_after(steps: usize) -> (Disk, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let before_step = move |step: &str| {
        let at = counter.fetch_add(1, Ordering::Relaxed);
        if at == steps
            && let Some(path) = step.strip_prefix("write ")
        {
            std::fs::write(path, b"PAR1 torn")?;
        }
        if at >= steps { Err(io::Error::other("killed")) } else { Ok(()) }
    };
    (Disk { before_step: Some(Arc::new(before_step)), ..Disk::default() }, taken)
}

/// A ledger row for each commit, which tells the commits in a warehouse.
pub(super) fn ledger(number: i64) -> TableChange {
    added("sync_windows", &[Row { key: number, at_us: 0, content: number }])
}

/// The writes of four commits: rows are added, edited, and removed with a whole month.
pub(super) fn commits() -> Vec<Vec<Vec<TableChange>>> {
    let row = |key: i64, day: i64, content: i64| Row { key, at_us: START_US + day * DAY_US, content };
    let first: Vec<_> = (0..8).map(|key| row(key, key * 7, key)).collect();
    let edited: Vec<_> = first.iter().map(|row| Row { content: row.content + 100, ..*row }).collect();
    let february: Vec<_> = edited.iter().filter(|row| row.at_us >= START_US + 31 * DAY_US).copied().collect();
    let more = [row(20, 3, 1), row(21, 70, 2)];
    vec![
        vec![vec![added("responses", &first), added("surveys", &first[..2])], vec![ledger(0)]],
        vec![vec![change("responses", &first, &edited), change("surveys", &first[..1], &edited[..1]), ledger(1)]],
        vec![
            vec![added("responses", &more)],
            vec![change("responses", &february, &[]), added("response_choices", &more[1..]), ledger(2)],
        ],
        vec![vec![removed("responses", &more), ledger(3)]],
    ]
}

/// Publishes after the second and the last commit.
pub(super) fn run(store: &mut dyn Store, commits: &[Vec<Vec<TableChange>>]) -> Result<(), LoadError> {
    let done = committed(store)?;
    for (number, writes) in commits.iter().enumerate() {
        if number >= done {
            writes.iter().try_for_each(|changes| store.write(changes))?;
            store.commit("test")?;
        }
        if number % 2 == 1 {
            store.publish()?;
        }
    }
    Ok(())
}

/// The number of commits in the ledger, which must be the first ones.
pub(super) fn committed(store: &mut dyn Store) -> Result<usize, LoadError> {
    let mut rows = 0;
    let ledger = crate::schema::table("sync_windows").unwrap();
    store.read(ledger, &["scan_id"], &Filter::all(), &mut |batch| {
        rows += batch.num_rows();
        Ok(())
    })?;
    Ok(rows)
}

/// The content of the tables after this number of commits.
pub(super) fn shelf_after(commits: &[Vec<Vec<TableChange>>]) -> Shelf {
    let shelf = Shelf::default();
    let mut memory = MemoryStore::open(&shelf);
    run(&mut memory, commits).unwrap();
    shelf
}

fn assert_is_before_or_after(store: &mut ParquetStore, commits: &[Vec<Vec<TableChange>>], context: &str) {
    let done = committed(store).unwrap();
    let mut memory = MemoryStore::open(&shelf_after(&commits[..done]));
    for name in ["responses", "response_choices", "surveys", "sync_windows"] {
        let columns = all_columns(name);
        let expected = contents(&mut memory, name, &columns, &Filter::all());
        assert_eq!(contents(store, name, &columns, &Filter::all()), expected, "{context}: {name}");
    }
}

/// Kills the run after every `stride` steps, and lets `recover` finish the warehouse.
fn at_every_step(stride: usize, threads: u32, recover: impl Fn(&TempDir, ParquetStore, &[Vec<Vec<TableChange>>])) {
    let commits = commits();
    let shelf = shelf_after(&commits);
    let options = ParquetOptions { threads, ..options() };
    // Created once and copied: creation takes most of the time of a small warehouse.
    let empty = new_folder();
    drop(open(&empty));
    let mut kills = 0;
    loop {
        let root = new_folder();
        copy_folder(empty.path(), root.path());
        let mut store = open_with(root.path(), &options);
        let (disk, taken) = killed_after(kills);
        store.disk = disk;
        let result = run(&mut store, &commits);
        if result.is_ok() {
            assert!(taken.load(Ordering::Relaxed) + stride > kills, "every step had its turn");
            assert!(kills > 80, "only {kills} steps");
            return;
        }
        recover(&root, store, &commits);
        assert_published(root.path(), PartitionBy::Month, &shelf, &format!("killed after {kills} steps"));
        assert!(std::fs::read_dir(root.path().join(".studysync/parts")).unwrap().next().is_none());
        assert!(std::fs::read_dir(root.path().join(".studysync/scratch")).unwrap().next().is_none());
        kills += stride;
    }
}

/// Opens again after every `stride` steps, and kills recovery too.
fn opened_again_after_every(stride: usize, threads: u32) {
    at_every_step(stride, threads, |root, store, commits| {
        drop(store);
        // Opening to compare may be refused as unfinished, but never as damaged.
        match ParquetStore::open_to_compare(root.path(), &identity(), &options()) {
            Ok(mut compared) => assert_is_before_or_after(&mut compared, commits, "compared"),
            Err(error) => assert!(matches!(error, LoadError::Unfinished { .. }), "{error}"),
        }
        let mut store = open_with(root.path(), &ParquetOptions { threads, ..options() });
        assert_is_before_or_after(&mut store, commits, "opened again");
        run(&mut store, commits).unwrap();
        assert_is_before_or_after(&mut store, commits, "at the end");
    });
}

#[test]
fn p2_kills_in_commit_or_publish_are_harmless() {
    opened_again_after_every(7, 1);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_kill_at_any_step_is_harmless() {
    opened_again_after_every(1, 1);
}

#[test]
fn p2_kills_in_parallel_writes_are_harmless() {
    opened_again_after_every(11, 2);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_more_kills_in_parallel_writes_are_harmless() {
    opened_again_after_every(2, 2);
}

#[test]
fn p2_a_failed_step_can_be_retried_without_reopening() {
    tried_again_after_every(9);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_any_failed_step_can_be_retried_without_reopening() {
    tried_again_after_every(1);
}

fn tried_again_after_every(stride: usize) {
    at_every_step(stride, 1, |_, mut store, commits| {
        store.disk = Disk::default();
        store.rollback();
        assert_is_before_or_after(&mut store, commits, "tried again");
        run(&mut store, commits).unwrap();
    });
}

#[test]
fn p2_one_failed_step_of_a_commit_leaves_nothing_of_it() {
    let row = Row { key: 1, at_us: START_US, content: 1 };
    for failing in 0.. {
        let root = new_folder();
        let mut store = open(&root);
        let taken = AtomicUsize::new(0);
        // One step fails and later ones work: the leftovers of an error can be removed.
        let before_step = move |_: &str| match taken.fetch_add(1, Ordering::Relaxed) {
            at if at == failing => Err(io::Error::other("full for a moment")),
            _ => Ok(()),
        };
        store.disk = Disk { before_step: Some(Arc::new(before_step)), ..Disk::default() };
        let committed = store.write(&[added("responses", &[row])]).and_then(|()| store.commit("test"));
        store.rollback();
        let rows = contents(&mut store, "responses", &["_row_hash"], &Filter::all());
        assert_eq!(rows.len(), usize::from(committed.is_ok()), "step {failing} failed");
        if committed.is_ok() {
            assert!(failing > 5, "only {failing} steps");
            return;
        }
        assert!(std::fs::read_dir(root.path().join(".studysync/parts")).unwrap().next().is_none(), "{failing}");
    }
}

#[test]
fn p2_a_kill_while_the_folder_is_created_leaves_one_that_opens() {
    laid_out_after_every(7);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_any_kill_at_creation_leaves_a_folder_that_opens() {
    laid_out_after_every(1);
}

fn laid_out_after_every(stride: usize) {
    let mut kills = 0;
    loop {
        let root = new_folder();
        let (disk, _) = killed_after(kills);
        if ParquetStore::open_on(disk, root.path(), &identity(), &options()).is_ok() {
            assert!(kills > 50, "only {kills} steps");
            return;
        }
        drop(open(&root));
        assert_published(root.path(), PartitionBy::Month, &Shelf::default(), &format!("killed after {kills} steps"));
        kills += stride;
    }
}
