//! An empty DuckDB warehouse, made once for all tests.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::OnceLock,
};

use studysync::{
    load::{Identity, LockPatience, Opening, Place, WarehouseOptions},
    model::{Failpoints, WarehouseKind},
};
use tempfile::TempDir;

/// Writes an empty DuckDB warehouse, unless the path exists. The run that opens it binds it to its service.
pub fn put_empty_warehouse(path: &Path) {
    if let Ok(mut file) = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        file.write_all(empty_warehouse()).unwrap();
    }
}

fn empty_warehouse() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        let (kind, path) = (WarehouseKind::DuckDb, folder.path().join("warehouse.duckdb"));
        let opening = Opening {
            identity: Identity { base_url: "http://127.0.0.1:1".into(), environment: "default".into() },
            memory_limit_bytes: Place::memory_bytes_min(kind),
            buffer_bytes_max: 1 << 20,
            threads: 1,
            patience: LockPatience::default(),
            failpoints: Failpoints::default(),
        };
        let place = Place { kind, location: (&path).into(), options: WarehouseOptions::default() };
        drop(place.open(&opening, None).unwrap());
        fs::read(path).unwrap()
    })
}
