//! The streaming merge: its memory, and the runs that it reads at once.

use super::{
    super::{
        chunk::CHUNK_ROWS,
        merge::{Merge, OpenRun},
        runs::{Run, RunWriter, Target},
        sorted_rows::SortedRows,
        table_file::Notes,
    },
    options::Limits,
    part::Layer,
    rows_reader::RowsReader,
    *,
};
use crate::schema::{Table, table};

fn responses() -> &'static Table {
    table("responses").unwrap()
}

fn runs(folder: &TempDir, rows: &[Vec<Row>]) -> Vec<PathBuf> {
    let identity = identity();
    let notes = Notes { applied_part: 1, identity: &identity, run_id: None };
    let write = |(number, rows): (usize, &Vec<Row>)| {
        let sorted = SortedRows::of(responses(), PartitionBy::Month, &[batch(responses(), rows)]).unwrap();
        let path = folder.path().join(format!("{number}.parquet"));
        let partitions = sorted.partitions().unwrap();
        assert_eq!(partitions.len(), 1);
        sorted.write(&partitions[0], &path, &notes).unwrap();
        path
    };
    rows.iter().enumerate().map(write).collect()
}

#[test]
fn p8_a_merge_holds_a_few_batches_of_each_run() {
    let folder = new_folder();
    let rows: Vec<Vec<Row>> = (0..6)
        .map(|run| (0..30_000).map(|at| Row { key: at * 6 + run, at_us: START_US + at, content: run }).collect())
        .collect();
    let readers: Vec<_> = runs(&folder, &rows).iter().map(|path| RowsReader::open(path).unwrap()).collect();
    let picks: Vec<_> = readers.iter().map(RowsReader::all).collect();
    let open: Vec<_> = readers.iter().zip(&picks).map(|(reader, pick)| OpenRun { reader, pick }).collect();
    let schema = responses().parquet_schema();
    let mut merge = Merge::of(responses(), &schema, &open).unwrap();
    let (mut merged, mut chunks) = (0, Vec::new());
    while let Some(chunk) = merge.next_chunk().unwrap() {
        assert!(merge.open_batches() <= 2 * open.len() + 1, "{} batches are held", merge.open_batches());
        merged += chunk.num_rows();
        chunks.push(chunk.num_rows());
    }
    assert_eq!(merged, 180_000);
    let (last, whole) = chunks.split_last().unwrap();
    assert!(whole.iter().all(|rows| *rows == CHUNK_ROWS) && *last <= CHUNK_ROWS, "{chunks:?}");
}

#[test]
fn rows_with_equal_sort_keys_stay_in_the_order_of_their_runs() {
    let folder = new_folder();
    // Equal keys three times; the content tells the run and the position.
    let rows: Vec<Vec<Row>> = (0..3)
        .map(|run| (0..20).map(|at| Row { key: at / 2, at_us: START_US, content: run * 100 + at }).collect())
        .collect();
    let paths = runs(&folder, &rows);
    let identity = identity();
    let notes = Notes { applied_part: 1, identity: &identity, run_id: None };
    let partition = Some(PartitionBy::Month.of(START_US));
    let target = Target { table: responses(), partition_by: PartitionBy::Month, partition, notes };
    let limits = Limits { open_runs_max: 2, ..Limits::for_memory(64 << 20) };
    for (order, open_runs_max) in [([0, 1, 2], 2), ([0, 1, 2], 16), ([2, 0, 1], 16)] {
        let limits = Limits { open_runs_max, ..limits };
        let open = |at: &usize| {
            let reader = RowsReader::open(&paths[*at]).unwrap();
            Run::new(responses(), &paths[*at], &reader, reader.all())
        };
        let merged = folder.path().join("merged.parquet");
        let mut writer = RunWriter::new(target, folder.path().join("scratch"), limits);
        assert_eq!(writer.write(order.iter().map(open).collect(), &merged).unwrap(), 60);
        let found = file_rows(&merged);
        let hash_at = responses().columns.iter().position(|column| column.name == "_row_hash").unwrap();
        let of_key_9: Vec<i64> = found
            .iter()
            .filter(|row| row.starts_with("response_group_uid-9 "))
            .map(|row| row.split(" | ").nth(hash_at).unwrap().parse().unwrap())
            .collect();
        let expected: Vec<i64> =
            order.iter().flat_map(|run| [*run as i64 * 100 + 18, *run as i64 * 100 + 19]).collect();
        assert_eq!(of_key_9, expected, "{open_runs_max} at once");
        // The intermediate runs are removed.
        assert_eq!(all_files(folder.path()).len(), 4);
    }
}

#[test]
fn p8_a_publish_of_many_runs_reads_a_few_at_once() {
    let root = new_folder();
    let mut store = open(&root);
    store.limits.open_runs_max = 3;
    let (shelf, runs) = (Shelf::default(), 20);
    let mut memory = MemoryStore::open(&shelf);
    for run in 0..runs {
        let rows: Vec<_> = (0..30).map(|at| Row { key: at * runs + run, at_us: START_US + at, content: run }).collect();
        let change = [rows::change("responses", &rows[..run as usize % 4], &rows)];
        store.write(&change).unwrap();
        memory.write(&change).unwrap();
    }
    store.commit("test").unwrap();
    memory.commit("test").unwrap();
    store.publish().unwrap();
    rows::assert_published(root.path(), PartitionBy::Month, &shelf, "merged in turns");
    let layers: Vec<&Layer> = store.waiting.iter().flat_map(|part| &part.layers).collect();
    assert!(layers.is_empty());
}
