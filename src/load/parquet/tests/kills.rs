//! Kills at every durable step: after each of them the warehouse opens again and ends as if nothing had happened.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::*;

/// Lets so many steps pass; from then on every step fails, as for a process that is gone. A write that is cut off leaves a torn
/// file behind.
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

fn commits() -> Vec<Commit> {
    let mut scenario = Scenario::new(3, 40);
    (0..3).map(|_| scenario.next()).collect()
}

/// Two commits, publish, a commit, publish; commits that are held already are not made again.
fn run(warehouse: &mut ParquetDestination, commits: &[Commit]) -> Result<(), LoadError> {
    for pair in commits.chunks(2) {
        for commit in pair {
            commit.apply(warehouse)?;
        }
        warehouse.publish()?;
    }
    Ok(())
}

fn model(commits: &[Commit]) -> Model {
    let model = Model::new();
    commits.iter().for_each(|commit| model.apply(commit));
    model
}

/// Runs with a kill after every so many steps, and lets `recover` bring the warehouse to its end.
fn at_every_step(stride: usize, threads: u32, recover: impl Fn(&TempDir, ParquetDestination, &[Commit])) {
    let commits = commits();
    let model = model(&commits);
    let expected = model.digest();
    // Laid out once and copied: that is what takes longest in a small warehouse.
    let empty = new_folder();
    drop(open(&empty));
    let mut kills = 0;
    loop {
        let root = new_folder();
        copy_folder(empty.path(), root.path());
        let mut warehouse = open_with(&root, threads);
        let (disk, taken) = killed_after(kills);
        warehouse.disk = disk;
        let result = run(&mut warehouse, &commits);
        if result.is_ok() {
            assert!(taken.load(Ordering::Relaxed) + stride > kills, "every step had its turn");
            assert!(kills > 100, "only {kills} steps");
            return;
        }
        recover(&root, warehouse, &commits);
        assert_eq!(model.digest_of_tree(root.path()), expected, "killed after {kills} steps");
        assert!(std::fs::read_dir(root.path().join(".studysync/parts")).unwrap().next().is_none());
        kills += stride;
    }
}

#[test]
fn p2_a_kill_within_commit_or_publish_changes_nothing_in_the_end() {
    opened_again_after_every(13, 1);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_kill_at_any_step_of_commit_or_publish_changes_nothing_in_the_end() {
    opened_again_after_every(1, 1);
}

/// Runs with a kill after every so many steps, and once more on what is left.
fn opened_again_after_every(stride: usize, threads: u32) {
    at_every_step(stride, threads, |root, warehouse, commits| {
        drop(warehouse);
        let mut warehouse = open_with(root, threads);
        run(&mut warehouse, commits).unwrap();
    });
}

#[test]
fn p2_a_failed_step_can_be_tried_again_without_opening_anew() {
    tried_again_after_every(17);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_more_failed_steps_can_be_tried_again_without_opening_anew() {
    tried_again_after_every(7);
}

fn tried_again_after_every(stride: usize) {
    // What is on the disk is the same as above: only what is in memory matters, so fewer steps will do.
    at_every_step(stride, 1, |_, mut warehouse, commits| {
        warehouse.disk = Disk::default();
        run(&mut warehouse, commits).unwrap();
    });
}

#[test]
fn p2_a_kill_while_partitions_are_merged_side_by_side_changes_nothing_in_the_end() {
    opened_again_after_every(19, 2);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_more_kills_while_partitions_are_merged_side_by_side_change_nothing_in_the_end() {
    opened_again_after_every(5, 2);
}

#[test]
fn p2_a_kill_while_the_folder_is_first_laid_out_leaves_one_that_opens() {
    laid_out_after_every(7);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_kill_at_any_step_of_the_first_layout_leaves_a_folder_that_opens() {
    laid_out_after_every(1);
}

fn laid_out_after_every(stride: usize) {
    let model = Model::new();
    let mut kills = 0;
    loop {
        let root = new_folder();
        let (disk, _) = killed_after(kills);
        if ParquetDestination::open_on(disk, root.path(), &identity(), &options()).is_ok() {
            assert!(kills > 50, "only {kills} steps");
            return;
        }
        drop(open(&root));
        assert_eq!(model.digest_of_tree(root.path()), model.digest(), "killed after {kills} steps");
        kills += stride;
    }
}

#[test]
fn p2_a_kill_while_the_last_row_of_a_partition_goes_leaves_a_warehouse_that_opens() {
    let row = answer(1, START_US, 1);
    let (mut first, mut second) = (Commit::new(0), Commit::new(1));
    first.change("responses").upserts.push(row.clone());
    second.change("responses").deletes.push(row);
    let mut kills = 0;
    loop {
        let root = new_folder();
        let mut warehouse = open(&root);
        first.apply(&mut warehouse).unwrap();
        warehouse.publish().unwrap();
        let (disk, _) = killed_after(kills);
        warehouse.disk = disk;
        let result = second.apply(&mut warehouse).and_then(|_| warehouse.publish());
        drop(warehouse);
        // To compare, it may be refused as unfinished, but is not damaged.
        let compared =
            ParquetDestination::open_to_compare(root.path(), &identity(), &options(), &root.path().join("spill"));
        assert!(!matches!(compared, Err(LoadError::Damaged { .. })), "killed after {kills} steps");
        drop(compared);
        let mut warehouse = open(&root);
        second.apply(&mut warehouse).unwrap();
        warehouse.publish().unwrap();
        assert_eq!(data_files(&root.path().join("responses")).len(), 0, "killed after {kills} steps");
        if result.is_ok() {
            assert!(kills > 10, "only {kills} steps");
            return;
        }
        kills += 1;
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir(&copy).unwrap();
            copy_folder(&path, &copy);
        } else {
            std::fs::copy(&path, &copy).unwrap();
        }
    }
}
