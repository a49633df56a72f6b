//! Publish writes the same file whatever way the rows came, and leaves unchanged files alone.

use std::{collections::BTreeMap, os::unix::fs::MetadataExt, time::SystemTime};

use super::{rows::change, *};

/// Rows of three months, unsorted, one batch for each table.
fn rows() -> Vec<Row> {
    (0..600)
        .map(|at| Row { key: at * 7 % 600, at_us: START_US + (at * 37 % 80) * DAY_US + at % 3, content: at })
        .collect()
}

fn published(ways: impl FnOnce(&mut ParquetStore)) -> TempDir {
    let root = new_folder();
    let mut store = open_with(root.path(), &ParquetOptions { threads: 2, ..options() });
    ways(&mut store);
    store.publish().unwrap();
    root
}

fn bytes(root: &TempDir) -> BTreeMap<PathBuf, Vec<u8>> {
    let files =
        ["responses", "response_choices", "surveys"].into_iter().flat_map(|table| data_files(&root.path().join(table)));
    files.map(|file| (file.strip_prefix(root.path()).unwrap().to_owned(), std::fs::read(&file).unwrap())).collect()
}

#[test]
fn p2_the_same_rows_give_the_same_bytes_in_any_order() {
    let all = rows();
    let of = |rows: &[Row]| ["responses", "response_choices", "surveys"].map(|table| added(table, rows));
    let expected = bytes(&published(|store| commit(store, &of(&all))));
    assert!(expected.len() >= 7, "{:?}", expected.keys());
    let others = [
        published(|store| {
            // Several writes, in another order.
            all.chunks(70).rev().for_each(|rows| store.write(&of(rows)).unwrap());
            store.commit("other").unwrap();
        }),
        published(|store| {
            // Two open runs at once.
            store.limits.open_runs_max = 2;
            all.chunks(50).for_each(|rows| store.write(&of(rows)).unwrap());
            store.commit("narrow").unwrap();
        }),
        published(|store| {
            // First with another content, then edited.
            let before: Vec<_> = all.iter().map(|row| Row { content: -1, ..*row }).collect();
            store.write(&of(&before)).unwrap();
            for rows in all.chunks(100) {
                let edit = ["responses", "response_choices", "surveys"].map(|table| change(table, rows, rows));
                store.write(&edit).unwrap();
            }
            store.commit("edited").unwrap();
        }),
    ];
    for (number, other) in others.iter().enumerate() {
        let found = bytes(other);
        assert!(found.keys().eq(expected.keys()), "way {number}");
        for (name, content) in &found {
            assert!(Some(content) == expected.get(name), "way {number}: {} differs", name.display());
        }
    }
}

#[test]
fn p2_a_large_file_has_the_same_bytes_sorted_or_merged() {
    // More than one row group and many chunks, with lists.
    let rows: Vec<_> =
        (0..130_000).map(|at| Row { key: at * 7919 % 130_000, at_us: START_US + at, content: at }).collect();
    let sorted = published(|store| commit(store, &[added("responses", &rows)]));
    let merged = published(|store| {
        rows.chunks(50_001).for_each(|rows| store.write(&[added("responses", rows)]).unwrap());
        store.commit("merged").unwrap();
    });
    assert!(bytes(&sorted) == bytes(&merged));
}

/// Inode and time of each file that readers see: a rewritten file has another inode.
fn stamps(root: &TempDir) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let files = crate::schema::tables().iter().flat_map(|table| data_files(&root.path().join(&table.name)));
    let stamp = |path: &Path| path.metadata().map(|found| (found.ino(), found.modified().unwrap())).unwrap();
    files.map(|path| (path.strip_prefix(root.path()).unwrap().to_owned(), stamp(&path))).collect()
}

fn changed(before: &BTreeMap<PathBuf, (u64, SystemTime)>, root: &TempDir) -> Vec<String> {
    let after = stamps(root).into_iter().filter(|(path, stamp)| before.get(path) != Some(stamp));
    after.map(|(path, _)| path.to_str().unwrap().to_owned()).collect()
}

#[test]
fn publish_with_nothing_waiting_touches_nothing() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &rows())]);
    store.publish().unwrap();
    let before = stamps(&root);
    store.publish().unwrap();
    drop(store);
    open(&root).publish().unwrap();
    assert_eq!(stamps(&root), before);
}

#[test]
fn publish_rewrites_only_changed_partitions_and_the_ledger() {
    let root = new_folder();
    let mut store = open(&root);
    let row = |key: i64, day: i64| Row { key, at_us: START_US + day * DAY_US, content: key };
    commit(&mut store, &[added("responses", &[row(1, 3), row(2, 40), row(3, 70)]), added("surveys", &[row(1, 0)])]);
    store.publish().unwrap();
    let before = stamps(&root);
    // February gains a row, March loses one; January and the surveys do not change.
    let removals = [row(9, 3), row(3, 70)];
    commit(&mut store, &[change("responses", &removals, &[row(4, 41)]), removed("surveys", &[row(9, 0)])]);
    store.publish().unwrap();
    let expected = ["responses/created_month=2026-02-01/data.parquet", "sync_windows/data.parquet"];
    assert_eq!(changed(&before, &root), expected);
    assert_eq!(data_files(&root.path().join("responses")).len(), 2, "March has no rows and no file");
    assert_eq!(contents(&mut store, "responses", &["_row_hash"], &Filter::all()), ["1", "2", "4"]);
    // The inventory agrees.
    drop(store);
    open(&root);
}

#[test]
fn a_single_run_is_put_in_place_as_it_is() {
    let root = new_folder();
    let mut store = open(&root);
    let row = Row { key: 1, at_us: START_US, content: 1 };
    // All rows of the run are in the partition, although another layer removes keys.
    store.write(&[change("responses", &[Row { key: 7, ..row }], &[row])]).unwrap();
    store.write(&[removed("responses", &[Row { key: 8, ..row }])]).unwrap();
    store.commit("test").unwrap();
    let run = root.path().join(".studysync/parts/000000000001-test/0000.responses.2026-01-01.parquet");
    let inode = run.metadata().unwrap().ino();
    store.publish().unwrap();
    let file = root.path().join("responses/created_month=2026-01-01/data.parquet");
    assert_eq!(file.metadata().unwrap().ino(), inode);
    assert_eq!(contents(&mut store, "responses", &["_row_hash"], &Filter::all()), ["1"]);
}

#[test]
fn p9_no_byte_of_removed_rows_is_left_in_any_file() {
    let root = new_folder();
    let mut store = open(&root);
    let row = |key: i64, day: i64| Row { key, at_us: START_US + day * DAY_US, content: 4_711_000 + key };
    let [gone, stays, waits] = [row(1, 3), row(2, 4), row(3, 40)];
    commit(&mut store, &[added("responses", &[gone, stays]), added("response_choices", &[gone, stays])]);
    store.publish().unwrap();
    commit(&mut store, &[added("responses", &[waits])]);
    // A leftover of a failed publish.
    std::fs::write(root.path().join(".studysync/scratch/left.parquet"), "response_group_uid-1").unwrap();
    commit(&mut store, &[removed("responses", &[gone, waits]), removed("response_choices", &[gone])]);
    store.purge_removed_bytes().unwrap();
    for file in all_files(root.path()) {
        // Statistics hold texts uncompressed; pages are decoded.
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        let rows = if file.extension().is_some_and(|name| name == "parquet") { file_rows(&file) } else { Vec::new() };
        let found = |key: i64| {
            let key = format!("response_group_uid-{key}");
            text.contains(&key) || rows.iter().any(|row| row.contains(&key))
        };
        assert!(!found(1) && !found(3), "{}", file.display());
    }
    assert_eq!(contents(&mut store, "responses", &["response_group_uid"], &Filter::all()), ["response_group_uid-2"]);
    assert!(store.waiting.is_empty());
}
