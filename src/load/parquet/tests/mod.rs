//! A warehouse under random commits, kills and readers, held against a model: the same commits as transactions in DuckDB.

mod commit;
mod kept;
mod kills;
mod layout;
mod model;
mod pending;
mod publish;
mod readers;
mod scenario;
mod suite;
mod twins;
mod whole;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use commit::{Commit, Values};
use model::Model;
use scenario::Scenario;

const DAY_US: i64 = 86_400_000_000;
/// 2026-01-01.
const START_US: i64 = 1_767_225_600_000_000;

fn identity() -> Identity {
    Identity { base_url: "https://feedback.example".into(), environment: "production".into() }
}

fn options() -> ParquetOptions {
    ParquetOptions { memory_limit_bytes: 256 << 20, threads: 1, ..ParquetOptions::default() }
}

/// A folder for a warehouse; in memory where that is possible, since these tests do little else than to wait for the disk.
fn new_folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn open_with(root: &TempDir, threads: u32) -> ParquetDestination {
    let options = ParquetOptions { memory_limit_bytes: 256 << 20 << (threads - 1), threads, ..options() };
    ParquetDestination::open(root.path(), &identity(), &options).unwrap()
}

fn open(root: &TempDir) -> ParquetDestination {
    ParquetDestination::open(root.path(), &identity(), &options()).unwrap()
}

/// Every file below the folder: all of them must be data.
fn data_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(data_files(&path)),
            false => {
                assert_eq!(path.file_name().unwrap(), "data.parquet", "{} is no data", path.display());
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn answer(key: i64, created_us: i64, hash: i64) -> Values {
    vec![
        ("response_group_uid", format!("'group-{key}'")),
        ("question_id", (key % 3).to_string()),
        ("survey_id", if key % 5 == 0 { "NULL".into() } else { (key % 4).to_string() }),
        ("created_at", format!("make_timestamp({created_us})")),
        ("selected_indexes", if key % 2 == 0 { "[1, NULL, 3]".into() } else { "NULL".into() }),
        ("_row_hash", hash.to_string()),
    ]
}
