//! A part: one commit as a folder of files, durable but not yet visible to readers.
//!
//! It is written under another name and then renamed: that rename is the commit. What it holds for a table is what a transaction
//! would do: rows to take out, then rows to add. Where it has all that a partition holds, it has that partition's file (see
//! [`super::whole`]). Merging parts into the tables is [`super::publish`]'s work.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use arrow::datatypes::TimestampMicrosecondType;
use serde::{Deserialize, Serialize};

use super::{
    disk::{Disk, io_error},
    known_table,
    partition::{Partition, PartitionBy, overlap},
    relation::{PART_COLUMN, path_sql},
    root::Root,
    table_file::{self, Notes, order_sql},
    tree::{self, DataFile, FileFacts},
    whole::{self, Whole},
};
use crate::{
    files,
    load::{
        DeltaRows, Engine, Fill, Identity, LoadError, TableDelta, TimeBounds, pending::AppliedScan, stage::column_of,
    },
    schema::{Table, quote_identifier, table},
};

/// The file of a part that says what it is.
const MANIFEST_FILE: &str = "ledger.json";
/// End of the name of a part that is being written.
const UNFINISHED_SUFFIX: &str = ".tmp";
/// An id longer than this is cut in a folder's name; the manifest has it whole.
const ID_CHARS_MAX: usize = 64;
/// Codec of the files of a part: they are read once or twice and then thrown away.
const PART_CODEC: &str = "lz4_raw";
/// Rows of a row group in the files of a part. They are sorted and the groups small, so that publish, which sorts a slice of a
/// partition at a time, reads of each part little more than the slice.
const PART_ROW_GROUP_ROWS: usize = 8192;

/// What a part is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Its place among the parts: larger than that of every part before.
    pub(super) number: u64,
    /// The scans that it applies; a run's record has none.
    pub(super) scans: Vec<AppliedScan>,
    /// What it changes, by table.
    pub(super) tables: BTreeMap<String, Changes>,
}

/// What a part changes in one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Changes {
    pub(super) upserts: Option<Extent>,
    pub(super) deletes: Option<Extent>,
    /// Partitions that had no rows before: their files.
    #[serde(default)]
    pub(super) whole: BTreeSet<Partition>,
}

impl Changes {
    /// The partitions whose rows change; a table that is not cut has `None` as its only one.
    pub(super) fn partitions(&self) -> BTreeSet<Option<Partition>> {
        let both = self.upserts.iter().chain(&self.deletes);
        let partitions = |extent: &Extent| match extent.partitions.as_slice() {
            [] => vec![None],
            partitions => partitions.iter().copied().map(Some).collect(),
        };
        both.flat_map(partitions).chain(self.whole.iter().copied().map(Some)).collect()
    }

    /// Whether there are rows to be merged into this partition.
    pub(super) fn merges_into(&self, partition: Option<Partition>) -> bool {
        let is_within = |extent: &Extent| match partition {
            Some(partition) => extent.partitions.contains(&partition),
            None => extent.partitions.is_empty(),
        };
        self.upserts.iter().chain(&self.deletes).any(is_within)
    }
}

/// How many rows one file of a part has, and where they belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extent {
    pub(super) rows: u64,
    /// Half-open range of the partition column, epoch microseconds.
    bounds_us: Option<(i64, i64)>,
    /// Empty for a table that is not cut.
    partitions: Vec<Partition>,
}

impl Extent {
    pub(super) fn bounds(&self) -> Option<TimeBounds> {
        self.bounds_us.map(|(start_us, end_us)| TimeBounds { start_us, end_us })
    }
}

/// A part that waits for publish.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) manifest: Manifest,
    /// Bytes that its files take.
    pub(super) bytes: u64,
    folder: PathBuf,
    /// The files of partitions that are in it. A publish that was cut short may have put others in their places.
    whole: HashMap<(String, Partition), FileFacts>,
}

impl Part {
    /// The rows to add to a table.
    pub(super) fn upserts_file(&self, table: &Table) -> PathBuf {
        upserts_file(&self.folder, table)
    }

    /// The rows to take out of a table.
    pub(super) fn deletes_file(&self, table: &Table) -> PathBuf {
        deletes_file(&self.folder, table)
    }

    /// Its place among the parts.
    pub(super) fn number(&self) -> u64 {
        self.manifest.number
    }

    /// Whether it changes something in this partition.
    pub(super) fn touches(&self, table: &Table, partition: Option<Partition>) -> bool {
        let changes = self.manifest.tables.get(&table.name);
        changes.is_some_and(|changes| changes.partitions().contains(&partition))
    }

    /// Whether it has rows to be merged into this partition.
    pub(super) fn merges_into(&self, table: &Table, partition: Option<Partition>) -> bool {
        let changes = self.manifest.tables.get(&table.name);
        changes.is_some_and(|changes| changes.merges_into(partition))
    }

    /// The partitions out of which it takes rows.
    pub(super) fn takes_from(&self) -> impl Iterator<Item = (&'static Table, Partition)> {
        let tables = self.manifest.tables.iter().filter_map(|(name, changes)| Some((table(name)?, changes)));
        tables.flat_map(|(table, changes)| {
            changes.deletes.iter().flat_map(|extent| &extent.partitions).map(move |partition| (table, *partition))
        })
    }

    /// The file that it has of a partition, if it has one.
    pub(super) fn whole_file(&self, table: &Table, partition: Option<Partition>) -> Option<DataFile> {
        let key = (table.name.clone(), partition?);
        let facts = self.whole.get(&key)?.clone();
        Some(DataFile { path: whole_file(&self.folder, table, key.1), facts })
    }

    /// Those that can hold rows of a table within the bounds.
    pub(super) fn whole_files_within(
        &self,
        root: &Root,
        table: &Table,
        bounds: Option<TimeBounds>,
    ) -> impl Iterator<Item = DataFile> {
        let changes = self.manifest.tables.get(&table.name);
        let partitions = changes.into_iter().flat_map(|changes| &changes.whole).copied();
        let within = partitions.filter(move |partition| {
            bounds.is_none_or(|bounds| overlap(root.partition_by().bounds(*partition), bounds))
        });
        within.filter_map(|partition| self.whole_file(table, Some(partition)))
    }

    /// Throws it away: its rows are where readers find them.
    pub(super) fn remove(&self, disk: &Disk) -> Result<(), LoadError> {
        // Renamed first: a folder that is half removed must not look like a part.
        let going = unfinished(&self.folder);
        disk.rename(&self.folder, &going)?;
        disk.remove_folder(&going)
    }
}

/// What [`write()`] is to write. A table is either among the deltas or among the others.
pub(super) struct NewPart<'a> {
    pub(super) number: u64,
    /// Id of the scan or the run, for people who look at the folder.
    pub(super) id: &'a str,
    pub(super) scans: Vec<AppliedScan>,
    /// All rows of partitions that have none yet.
    pub(super) whole: &'a [Whole],
    /// Rows that are new, in memory.
    pub(super) fills: &'a [Fill],
    pub(super) tables: &'a [TableDelta],
    pub(super) identity: &'a Identity,
}

/// Writes a part. When this returns it is committed; after an error, or a kill, it either is or is not there as a whole.
pub(super) fn write(engine: &Engine, root: &Root, disk: &Disk, new: NewPart<'_>) -> Result<Part, LoadError> {
    let id: String = new.id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(ID_CHARS_MAX).collect();
    let folder = root.parts().join(format!("{:012}-{id}", new.number));
    let unfinished = unfinished(&folder);
    disk.remove_folder(&unfinished)?;
    disk.step("create", &unfinished)?;
    files::create_folders(&unfinished).map_err(|source| io_error("create", &unfinished, source))?;
    let mut tables: BTreeMap<String, Changes> = BTreeMap::new();
    let run_id = new.scans.last().map(|applied| applied.scan.run_id.0.as_str());
    let notes = Notes { applied_part: new.number, identity: new.identity, run_id };
    let path = |whole: &Whole| whole_file(&unfinished, whole.fill.table, whole.partition);
    let facts = whole::write_files(engine.threads(), disk, new.whole, path, &notes)?;
    for Whole { partition, fill } in new.whole {
        tables.entry(fill.table.name.clone()).or_default().whole.insert(*partition);
    }
    for fill in new.fills {
        let upserts = write_fill(root, disk, fill, new.number, &upserts_file(&unfinished, fill.table))?;
        tables.entry(fill.table.name.clone()).or_default().upserts = Some(upserts);
    }
    for delta in new.tables {
        let table = delta.table;
        let copy = |rows: &DeltaRows, columns: &str, order: &str, path: PathBuf| {
            copy_rows(engine, disk, rows, (columns, order), new.number, &path)?;
            extent(engine, root.partition_by(), table, rows)
        };
        let deletes = delta.deletes.as_ref().map(|rows| copy(rows, "*", "", deletes_file(&unfinished, table)));
        let order = order_sql(table);
        let upserts = delta
            .upserts
            .as_ref()
            .map(|rows| copy(rows, &typed_columns(table), &order, upserts_file(&unfinished, table)));
        let (deletes, upserts) = (deletes.transpose()?, upserts.transpose()?);
        tables.insert(table.name.clone(), Changes { upserts, deletes, ..Changes::default() });
    }
    let manifest = Manifest { number: new.number, scans: new.scans, tables };
    let path = unfinished.join(MANIFEST_FILE);
    let text = serde_json::to_vec_pretty(&manifest).map_err(|source| io_error("write", &path, source.into()))?;
    disk.write(&path, &text)?;
    disk.sync_folder(&unfinished)?;
    disk.rename(&unfinished, &folder)?;
    Ok(Part { manifest, bytes: folder_bytes(&folder)?, folder, whole: facts })
}

/// The parts under the root, in order. What was not finished is removed.
pub(super) fn read_all(root: &Root, disk: &Disk) -> Result<Vec<Part>, LoadError> {
    let folder = root.parts();
    let failed = |source| io_error("read", &folder, source);
    let mut parts = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == UNFINISHED_SUFFIX.trim_start_matches('.')) {
            disk.remove_folder(&path)?;
        } else {
            parts.push(read(root, path)?);
        }
    }
    parts.sort_by_key(Part::number);
    Ok(parts)
}

/// The parts under the root, in order; what was not finished is left alone.
pub(super) fn read_finished(root: &Root) -> Result<Vec<Part>, LoadError> {
    let folder = root.parts();
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| io_error("read", &folder, source))?,
    };
    let mut parts = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| io_error("read", &folder, source))?.path();
        if !path.to_string_lossy().ends_with(UNFINISHED_SUFFIX) {
            parts.push(read(root, path)?);
        }
    }
    parts.sort_by_key(Part::number);
    Ok(parts)
}

fn read(root: &Root, folder: PathBuf) -> Result<Part, LoadError> {
    let path = folder.join(MANIFEST_FILE);
    let text = fs::read(&path).map_err(|source| io_error("read", &path, source))?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|error| LoadError::Damaged { path, why: format!("it cannot be read: {error}") })?;
    let mut whole = HashMap::new();
    for (name, changes) in &manifest.tables {
        let table = known_table(name)?;
        for partition in &changes.whole {
            let path = whole_file(&folder, table, *partition);
            if path.is_file() {
                whole.insert((name.clone(), *partition), tree::read_facts(root, &path, table)?);
            }
        }
    }
    Ok(Part { manifest, bytes: folder_bytes(&folder)?, folder, whole })
}

/// The contract's columns in its types. A column of nothing but NULL has some other type in the engine, and files of one table
/// that differ in their types cannot be read together.
fn typed_columns(table: &Table) -> String {
    let columns = table.columns.iter().map(|column| {
        let name = quote_identifier(&column.name);
        format!("CAST({name} AS {}) AS {name}", column.column_type.duckdb())
    });
    columns.collect::<Vec<_>>().join(", ")
}

fn copy_rows(
    engine: &Engine,
    disk: &Disk,
    rows: &DeltaRows,
    (columns, order): (&str, &str),
    number: u64,
    path: &Path,
) -> Result<(), LoadError> {
    disk.step("write", path)?;
    let sql = format!(
        "COPY (SELECT {columns}, CAST({number} AS BIGINT) AS {PART_COLUMN} FROM {}{order}) TO {} \
         (FORMAT parquet, CODEC {PART_CODEC}, ROW_GROUP_SIZE {PART_ROW_GROUP_ROWS})",
        rows.relation,
        path_sql(path)
    );
    engine.execute("write a part", &sql)?;
    disk.sync_file(path)
}

/// Writes rows that are in memory, in the order in which they go into the table's files.
fn write_fill(root: &Root, disk: &Disk, fill: &Fill, number: u64, path: &Path) -> Result<Extent, LoadError> {
    disk.step("write", path)?;
    let rows = table_file::write_part(fill, (PART_COLUMN, number), PART_ROW_GROUP_ROWS, path)?;
    disk.sync_file(path)?;
    let mut partitions = BTreeSet::new();
    if let Some(column) = &fill.table.partition {
        for batch in &fill.rows {
            let moments = column_of::<TimestampMicrosecondType>(batch, column)?;
            partitions.extend(moments.values().iter().map(|at_us| root.partition_by().of(*at_us)));
        }
    }
    let bounds_us = fill.bounds.map(|bounds| (bounds.start_us, bounds.end_us));
    Ok(Extent { rows, bounds_us, partitions: partitions.into_iter().collect() })
}

fn extent(engine: &Engine, by: PartitionBy, table: &Table, rows: &DeltaRows) -> Result<Extent, LoadError> {
    let mut partitions = Vec::new();
    if let Some(column) = &table.partition {
        let failed = |source| LoadError::engine("list the partitions of a part", source);
        let sql = format!(
            "SELECT DISTINCT CAST({} AS VARCHAR) AS first_day FROM {} ORDER BY first_day",
            by.first_day_sql(column),
            rows.relation
        );
        let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
        let days = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed)?;
        for day in days {
            let day = day.map_err(failed)?;
            let first_day = day.parse().map_err(|_| LoadError::Contract(format!("'{day}' is not a date")))?;
            partitions.push(Partition { first_day });
        }
    }
    let bounds_us = rows.bounds.map(|bounds| (bounds.start_us, bounds.end_us));
    Ok(Extent { rows: rows.rows, bounds_us, partitions })
}

fn upserts_file(folder: &Path, table: &Table) -> PathBuf {
    folder.join(format!("{}.upsert.parquet", table.name))
}

fn deletes_file(folder: &Path, table: &Table) -> PathBuf {
    folder.join(format!("{}.delete.parquet", table.name))
}

fn whole_file(folder: &Path, table: &Table, partition: Partition) -> PathBuf {
    folder.join(format!("{}.{}.parquet", table.name, partition.first_day))
}

fn unfinished(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(UNFINISHED_SUFFIX);
    PathBuf::from(name)
}

fn folder_bytes(folder: &Path) -> Result<u64, LoadError> {
    let failed = |source| io_error("read", folder, source);
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(failed)?.len();
    }
    Ok(bytes)
}
