//! Folders of the version before this store are opened, read and published, with waiting parts in its format.
//!
//! That version (commit a805264) made `earlier_version.tar.zst`: seventy-five days of answers with choices and
//! snapshots. In `waiting`, edits, removals and a whole month wait for a publish. `published` is the same after its
//! publish. `cut-027` and others are publishes interrupted after that number of durable steps.

use std::{
    collections::BTreeMap,
    fs::File,
    io::copy,
    process::{Command, Stdio},
};

use arrow::array::{RecordBatch, new_null_array};

use super::{
    rows::{all_columns, file_batches, texts},
    *,
};
use crate::{
    load::conformance::pages,
    schema::{Table, tables},
};

/// Two months and some days.
const DAYS: i64 = 75;

/// The folders.
fn unpacked() -> TempDir {
    let folder = new_folder();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/load/store/parquet/tests/earlier_version.tar.zst");
    let mut archive = zstd::Decoder::new(File::open(archive).unwrap()).unwrap();
    archive.window_log_max(24).unwrap();
    let mut tar = Command::new("tar").arg("-x").arg("-C").arg(folder.path()).stdin(Stdio::piped()).spawn().unwrap();
    copy(&mut archive, &mut tar.stdin.take().unwrap()).unwrap();
    assert!(tar.wait().unwrap().success());
    folder
}

fn folder_of(all: &TempDir, name: &str) -> TempDir {
    let folder = new_folder();
    copy_folder(&all.path().join(name), folder.path());
    folder
}

/// Suffixes of the files in an old part.
fn waiting_files(root: &TempDir) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for file in all_files(&root.path().join(".studysync/parts")) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let kind = ["ledger.json", ".upsert.parquet", ".delete.parquet"].into_iter().find(|end| name.ends_with(end));
        *kinds.entry(kind.unwrap_or("whole")).or_default() += 1;
    }
    kinds
}

fn all_contents(store: &mut ParquetStore) -> BTreeMap<&'static str, Vec<String>> {
    let of_table = |table: &'static crate::schema::Table| {
        let name = table.name.as_str();
        (name, contents(store, name, &all_columns(name), &Filter::all()))
    };
    tables().iter().map(of_table).collect()
}

/// The rows of a file with all columns of the table: the old version did not know every column.
fn rows_of(table: &Table, file: &Path) -> Vec<String> {
    let with_all_columns = |batch: &RecordBatch| {
        let columns = table.columns.iter().map(|column| {
            let none = || new_null_array(&column.column_type.arrow(), batch.num_rows());
            (column.name.as_str(), batch.column_by_name(&column.name).cloned().unwrap_or_else(none))
        });
        texts(&RecordBatch::try_from_iter(columns).unwrap())
    };
    file_batches(file).iter().flat_map(with_all_columns).collect()
}

/// The rows of each file that readers see, in their order, without empty files: the old version did not know every
/// table.
fn published_rows(root: &TempDir) -> BTreeMap<PathBuf, Vec<String>> {
    let folders = tables().iter().map(|table| (table, root.path().join(&table.name)));
    let folders = folders.filter(|(_, folder)| folder.exists());
    let files = folders.flat_map(|(table, folder)| data_files(&folder).into_iter().map(move |file| (table, file)));
    let rows = files.map(|(table, file)| (file.strip_prefix(root.path()).unwrap().to_owned(), rows_of(table, &file)));
    rows.filter(|(_, rows)| !rows.is_empty()).collect()
}

#[test]
fn p2_parts_of_an_earlier_version_are_read_and_published() {
    let all = unpacked();
    let root = folder_of(&all, "waiting");
    let kinds = waiting_files(&root);
    assert!(kinds["ledger.json"] >= 8 && kinds["whole"] >= 2, "{kinds:?}");
    assert!(kinds[".upsert.parquet"] > 10 && kinds[".delete.parquet"] > 5, "{kinds:?}");
    let published_by_it = folder_of(&all, "published");
    let expected = published_rows(&published_by_it);
    let contents_by_it = all_contents(&mut open(&published_by_it));
    let rows = ["responses", "response_choices", "response_history", "visitor_snapshots"];
    let rows = rows.map(|table| contents_by_it[table].len());
    assert!(rows.iter().all(|rows| *rows > 20), "{rows:?}");

    let compared = folder_of(&all, "waiting");
    let before = all_files(compared.path());
    let mut store = ParquetStore::open_to_compare(compared.path(), &identity(), &options()).unwrap();
    assert_eq!(all_contents(&mut store), contents_by_it);
    drop(store);
    assert_eq!(all_files(compared.path()), before);

    let mut store = open(&root);
    assert_eq!(all_contents(&mut store), contents_by_it);
    store.limits.sort_bytes_max = 1;
    store.publish().unwrap();
    assert_eq!(published_rows(&root), expected);
    assert_eq!(waiting_files(&root), BTreeMap::new());
    // The warehouse continues to work.
    let row = Row { key: 1, at_us: START_US, content: 1 };
    commit(&mut store, &[added("responses", &[row])]);
    store.publish().unwrap();
    drop(store);
    assert!(all_contents(&mut open(&root))["responses"].iter().any(|row| row.contains("response_group_uid-1 ")));
}

#[test]
fn parts_of_both_versions_can_wait_together() {
    let root = folder_of(&unpacked(), "waiting");
    let mut store = open(&root);
    let row = Row { key: 1, at_us: START_US, content: 1 };
    // A new part removes rows of an old one.
    let responses = crate::schema::table("responses").unwrap();
    let mut removed = TableChange::new(responses);
    let day_60 = TimeRange { start_us: (DAYS - 15) * DAY_US, end_us: (DAYS - 14) * DAY_US };
    let offset = pages::day(0) * 1000;
    let range = TimeRange { start_us: day_60.start_us + offset, end_us: day_60.end_us + offset };
    let mut rows = Vec::new();
    store
        .read(responses, &all_columns("responses"), &Filter::within(Some(range)), &mut |batch| {
            rows.push(Filter::within(Some(range)).select(responses, batch)?);
            Ok(())
        })
        .unwrap();
    rows.iter().for_each(|rows| removed.remove(rows).unwrap());
    assert!(!removed.is_empty());
    removed.add(batch(responses, &[row]));
    commit(&mut store, &[removed]);
    let expected = all_contents(&mut store);
    drop(store);
    let mut store = open(&root);
    assert_eq!(all_contents(&mut store), expected);
    assert_eq!(contents(&mut store, "responses", &["_row_hash"], &Filter::within(Some(range))), [""; 0]);
    store.publish().unwrap();
    assert_eq!(all_contents(&mut store), expected);
}

#[test]
fn p2_an_interrupted_publish_of_an_earlier_version_is_finished() {
    let all = unpacked();
    let expected = published_rows(&folder_of(&all, "published"));
    let names = std::fs::read_dir(all.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let cut_short: Vec<String> = names.filter(|name| name.starts_with("cut-")).collect();
    assert!(cut_short.len() > 10, "{cut_short:?}");
    for name in cut_short {
        let folder = folder_of(&all, &name);
        let mut store = open(&folder);
        store.publish().unwrap();
        assert_eq!(published_rows(&folder), expected, "{name}");
    }
}
