//! Limits, spilling and the session of an engine.

use tempfile::TempDir;

use super::*;

fn start(options: EngineOptions) -> Engine {
    StartedEngine::start(options).unwrap().ready(Failpoints::default()).unwrap()
}

fn open(folder: &Path, memory_limit_bytes: u64) -> Engine {
    let temp_directory = folder.join("deep/spill");
    start(EngineOptions { memory_limit_bytes, threads: 2, temp_directory })
}

/// An engine for tests of other modules, with its spill folder.
pub(in crate::load) fn engine(threads: u32, memory_limit_bytes: u64) -> (TempDir, Engine) {
    let folder = TempDir::new().unwrap();
    let temp_directory = folder.path().join("spill");
    let engine = start(EngineOptions { memory_limit_bytes, threads, temp_directory });
    (folder, engine)
}

#[test]
fn p8_what_does_not_fit_is_spilled_and_removed() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path(), 64 << 20);
    // 200 MB of incompressible text in 64 MiB of memory.
    let rows = "SELECT range AS at, md5(range::VARCHAR) || md5((range + 1)::VARCHAR) || md5((range + 2)::VARCHAR) AS text FROM range(2_000_000)";
    engine.execute("fill", &format!("CREATE TEMP TABLE stage_big AS {rows}")).unwrap();
    let spill = folder.path().join("deep/spill");
    let spilled: u64 = std::fs::read_dir(&spill).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(spilled > 64 << 20, "{spilled} bytes");
    let [rows, bytes] = engine.integers("count", "SELECT count(*), sum(length(text))::BIGINT FROM stage_big").unwrap();
    assert_eq!((rows, bytes), (2_000_000, 2_000_000 * 96));
    drop(engine);
    assert!(!spill.exists());
}

#[test]
fn p9_what_a_killed_process_spilled_is_removed() {
    let folder = TempDir::new().unwrap();
    let spill = folder.path().join("deep/spill");
    std::fs::create_dir_all(&spill).unwrap();
    std::fs::write(spill.join("duckdb_temp_storage_DEFAULT-0.tmp"), "a person").unwrap();
    std::fs::write(spill.join("notes.txt"), "not ours").unwrap();
    drop(open(folder.path(), 64 << 20));
    let left: Vec<_> = std::fs::read_dir(&spill).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
}

#[test]
fn a_started_engine_touches_no_file() {
    let folder = TempDir::new().unwrap();
    let temp_directory = folder.path().join("deep/spill");
    let options = EngineOptions { memory_limit_bytes: 64 << 20, threads: 2, temp_directory: temp_directory.clone() };
    let of_another_run = temp_directory.join("duckdb_temp_storage_DEFAULT-0.tmp");
    drop(StartedEngine::start(options.clone()).unwrap());
    assert!(!folder.path().join("deep").exists());
    std::fs::create_dir_all(&temp_directory).unwrap();
    std::fs::write(&of_another_run, "a person").unwrap();
    let engine = StartedEngine::start(options.clone()).unwrap();
    assert!(of_another_run.exists());
    drop(engine);
    assert!(of_another_run.exists());
    drop(start(options));
    assert!(!of_another_run.exists());
}

#[test]
fn limits_hold_and_no_extension_is_fetched() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path(), 128 << 20);
    let setting = |name: &str| -> String {
        let sql = format!("SELECT current_setting('{name}')::VARCHAR");
        engine.connection().query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(setting("memory_limit"), "128.0 MiB");
    assert_eq!(setting("threads"), "1");
    assert_eq!(engine.with_all_threads(|| Ok(setting("threads"))).unwrap(), "2");
    let failed = engine.with_all_threads(|| engine.execute("fail", "SELECT no_such_column"));
    assert!(failed.is_err());
    assert_eq!(setting("threads"), "1");
    assert_eq!(setting("autoinstall_known_extensions"), "false");
    assert_eq!(setting("autoload_known_extensions"), "false");
    // Memory for one thread.
    drop(engine);
    let engine = open(folder.path(), 127 << 20);
    let sql = "SELECT current_setting('threads')::INTEGER";
    assert_eq!(engine.with_all_threads(|| engine.integers("ask", sql)).unwrap(), [1]);
}

#[test]
fn p8_a_disk_too_full_to_spill_is_reported_as_full() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path(), 64 << 20);
    // The engine limits its spill by the free space.
    engine.execute("bound", "SET max_temp_directory_size = '8MB'").unwrap();
    let rows = "SELECT range AS at, md5(range::VARCHAR) || md5((range + 1)::VARCHAR) AS text FROM range(2_000_000)";
    let error = engine.execute("fill", &format!("CREATE TEMP TABLE stage_big AS {rows}")).unwrap_err();
    assert!(matches!(error, LoadError::Full { .. }), "{error:?}");
}
