//! The open transaction: visible to its own reads, gone after a rollback or an error, durable after its commit.

use super::{rows::change, *};

const ROW: Row = Row { key: 1, at_us: START_US, content: 1 };
const LATER: Row = Row { key: 2, at_us: START_US + 40 * DAY_US, content: 2 };

fn answers(store: &mut ParquetStore) -> Vec<String> {
    contents(store, "responses", &["response_group_uid", "_row_hash"], &Filter::all())
}

fn parts(root: &TempDir) -> Vec<String> {
    let parts = std::fs::read_dir(root.path().join(".studysync/parts")).unwrap();
    let mut names: Vec<_> = parts.map(|part| part.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_transaction_is_one_part_with_a_layer_for_each_write() {
    let root = new_folder();
    let mut store = open(&root);
    store.write(&[added("responses", &[ROW]), added("surveys", &[ROW])]).unwrap();
    store.write(&[change("responses", &[ROW], &[Row { content: 9, ..ROW }, LATER])]).unwrap();
    assert_eq!(answers(&mut store), ["response_group_uid-1 | 9", "response_group_uid-2 | 2"]);
    assert_eq!(parts(&root), ["000000000001.tmp"]);
    store.commit("scan/17: é").unwrap();
    assert_eq!(parts(&root), ["000000000001-scan17"]);
    let folder = root.path().join(".studysync/parts/000000000001-scan17");
    let names: Vec<_> =
        all_files(&folder).iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let expected = [
        "0000.responses.2026-01-01.parquet",
        "0000.surveys.all.parquet",
        "0001.responses.2026-01-01.parquet",
        "0001.responses.2026-02-01.parquet",
        "0001.responses.removed.parquet",
        "part.json",
    ];
    assert_eq!(names, expected);
    // An empty change writes nothing.
    store.write(&[]).unwrap();
    store.commit("empty").unwrap();
    assert_eq!(parts(&root).len(), 1);
    assert_eq!(answers(&mut store).len(), 2);
}

#[test]
fn two_changes_of_a_table_in_one_write_follow_each_other() {
    let root = new_folder();
    let mut store = open(&root);
    store.write(&[added("responses", &[ROW]), change("responses", &[ROW], &[LATER])]).unwrap();
    assert_eq!(answers(&mut store), ["response_group_uid-2 | 2"]);
}

#[test]
fn p2_a_rollback_leaves_nothing() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[ROW])]);
    store.write(&[change("responses", &[ROW], &[LATER])]).unwrap();
    store.rollback();
    assert_eq!(answers(&mut store), ["response_group_uid-1 | 1"]);
    assert_eq!(parts(&root).len(), 1);
    commit(&mut store, &[added("responses", &[LATER])]);
    assert_eq!(answers(&mut store).len(), 2);
}

#[test]
fn p2_reopening_drops_an_uncommitted_transaction() {
    let root = new_folder();
    let mut store = open(&root);
    store.write(&[added("responses", &[ROW])]).unwrap();
    drop(store);
    assert_eq!(answers(&mut open(&root)), [""; 0]);
    assert_eq!(parts(&root), [""; 0]);
}

#[test]
fn p2_a_failed_transaction_must_be_rolled_back() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[ROW])]);
    store.write(&[added("responses", &[LATER])]).unwrap();
    store.disk = kills::killed_after(0).0;
    store.write(&[added("responses", &[LATER])]).unwrap_err();
    store.disk = Disk::default();
    for error in [
        store.write(&[added("responses", &[LATER])]).unwrap_err(),
        store.commit("half").unwrap_err(),
        store.publish().unwrap_err(),
    ] {
        assert!(error.to_string().contains("rolled back"), "{error}");
    }
    store.rollback();
    assert_eq!(answers(&mut store).len(), 1);
    commit(&mut store, &[added("responses", &[LATER])]);
    assert_eq!(answers(&mut store).len(), 2);
    assert_eq!(parts(&root).len(), 2);
}

#[test]
fn a_publish_leaves_an_open_transaction_alone() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[ROW])]);
    store.write(&[change("responses", &[ROW], &[LATER])]).unwrap();
    store.publish().unwrap();
    assert_eq!(file_rows(&root.path().join("responses/created_month=2026-01-01/data.parquet")).len(), 1);
    assert_eq!(answers(&mut store), ["response_group_uid-2 | 2"]);
    store.commit("after").unwrap();
    store.publish().unwrap();
    assert!(!root.path().join("responses/created_month=2026-01-01").exists());
    assert_eq!(answers(&mut open_again(store, &root)), ["response_group_uid-2 | 2"]);
}

fn open_again(store: ParquetStore, root: &TempDir) -> ParquetStore {
    drop(store);
    open(root)
}

#[test]
fn rows_that_do_not_fit_the_contract_are_refused() {
    let root = new_folder();
    let mut store = open(&root);
    let mut change = TableChange::new(crate::schema::table("responses").unwrap());
    let without_hash = batch(change.table, &[ROW]);
    let kept: Vec<usize> =
        (0..without_hash.num_columns()).filter(|at| without_hash.schema().field(*at).name() != "_row_hash").collect();
    change.add(without_hash.project(&kept).unwrap());
    let error = store.write(&[change]).unwrap_err();
    assert!(matches!(&error, LoadError::Bug(why) if why.contains("_row_hash")), "{error}");
    store.rollback();
    assert_eq!(parts(&root), [""; 0]);
    let error = store.read(crate::schema::table("surveys").unwrap(), &["no"], &Filter::all(), &mut |_| Ok(()));
    assert!(error.unwrap_err().to_string().contains("no column no"));
}

#[test]
fn too_much_that_waits_asks_for_publish() {
    use super::super::store::{WAITING_BYTES_MAX, WAITING_KEYS_MAX, WAITING_PARTS_MAX};
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[change("responses", &[ROW], &[LATER])]);
    assert!(!store.should_compact(false));
    let part = store.waiting[0].clone();
    assert!(part.bytes > 0 && part.removed_keys() == 1);
    store.waiting[0].bytes = WAITING_BYTES_MAX;
    assert!(store.should_compact(false));
    store.waiting = vec![part; WAITING_PARTS_MAX];
    assert!(store.should_compact(false));
    store.waiting.pop();
    assert!(!store.should_compact(false));
    let changes = store.waiting[0].layers[0].tables.get_mut("responses").unwrap();
    changes.removed.as_mut().unwrap().rows = WAITING_KEYS_MAX;
    assert!(store.should_compact(false));
}

#[test]
fn a_store_opened_to_compare_changes_nothing() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[ROW])]);
    store.write(&[added("responses", &[LATER])]).unwrap();
    drop(store);
    let before = all_files(root.path());
    let mut compared = ParquetStore::open_to_compare(root.path(), &identity(), &options()).unwrap();
    assert_eq!(answers(&mut compared), ["response_group_uid-1 | 1"]);
    compared.publish().unwrap();
    compared.write(&[added("responses", &[LATER])]).unwrap_err();
    compared.rebind(&identity()).unwrap_err();
    assert_eq!(all_files(root.path()), before);
}
