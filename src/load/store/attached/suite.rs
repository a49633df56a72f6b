//! Runs the conformance suite on catalogs. `scripts/lakes.sh` starts the servers and names the extensions.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::{
    files,
    load::{
        CommitOptions, EngineOptions, Reader, Warehouse,
        conformance::{Answer, Kind, answer, answers_scan, day, identity, page, pages::WantedRows},
        engine::ENGINE_BYTES_MIN,
        extension::new_engine,
    },
    model::{CatalogAddress, CatalogKeys, DAY_MS, Identifier, IdentifierKind, Location, WarehouseKind},
    schema::{self, quote_text},
};

/// Time to wait for the transactions of other tests.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct InCatalog {
    kind: WarehouseKind,
    pub(super) catalog: CatalogPlace,
    /// The published rows as Parquet files, for comparisons.
    mirror: TempDir,
    memory_limit_bytes: u64,
    pub(super) wait: Duration,
}

#[expect(clippy::disallowed_methods, reason = "the script names servers and folders")]
fn variable(name: &str) -> String {
    std::env::var(name).expect("run by scripts/lakes.sh, which starts the servers")
}

pub(super) fn open(kind: &InCatalog, identity: &Identity, is_read_only: bool) -> Result<AttachedStore, LoadError> {
    let (catalog, identity) = (kind.catalog.clone(), identity.clone());
    let patience = LockPatience { wait: kind.wait, ..LockPatience::default() };
    let options = AttachedOptions { catalog, identity, patience, is_read_only };
    let (memory_limit_bytes, temp_directory) = (kind.memory_limit_bytes, kind.mirror.path().join("spill"));
    let engine = StartedEngine::start(EngineOptions { memory_limit_bytes, threads: 1, temp_directory })?;
    AttachedStore::open(options, engine, Failpoints::default())
}

impl InCatalog {
    fn new(address: CatalogAddress, keys: CatalogKeys) -> Self {
        let extension_directory = Some(variable("STUDYSYNC_TEST_EXTENSIONS").into());
        let kind = match &address {
            CatalogAddress::DuckLake { .. } => WarehouseKind::DuckLake,
            CatalogAddress::Postgres(_) => WarehouseKind::Postgres,
            CatalogAddress::Iceberg { .. } => WarehouseKind::Iceberg,
        };
        let catalog = CatalogPlace { address, keys, extension_directory };
        Self { kind, catalog, mirror: TempDir::new().unwrap(), memory_limit_bytes: 256 << 20, wait: PATIENCE }
    }

    /// Writes the rows of each table to a file, unless the file has them.
    fn update_mirror(&self) {
        let store = open(self, &identity("test"), true).unwrap();
        let folder = self.mirror.path().join("files");
        fs::create_dir_all(&folder).unwrap();
        let count = |table: &Table| {
            format!("SELECT {}, count(*) FROM {}", quote_text(&table.name), store.relation(&table.name))
        };
        let counts: Vec<String> = schema::tables().iter().map(count).collect();
        let read = |row: &duckdb::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let counts: BTreeMap<String, i64> = store.engine.query("count", &counts.join(" UNION ALL "), read).unwrap();
        for table in schema::tables() {
            let rows = counts[&table.name];
            let part = if table.partition.is_some() { "all/" } else { "" };
            let path = folder.join(format!("{}/{part}data.parquet", table.name));
            if rows == 0 && !path.exists() {
                continue;
            }
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let new = self.mirror.path().join("new.parquet");
            let columns: Vec<String> = table.columns.iter().map(|column| quote_identifier(&column.name)).collect();
            let sql = format!(
                "COPY (SELECT {} FROM {} ORDER BY ALL) TO {} (FORMAT parquet)",
                columns.join(", "),
                store.relation(&table.name),
                quote_text(&new.to_string_lossy())
            );
            store.engine.execute("mirror", &sql).unwrap();
            if fs::read(&path).ok() == Some(fs::read(&new).unwrap()) {
                fs::remove_file(new).unwrap();
            } else {
                fs::rename(new, path).unwrap();
            }
        }
    }
}

impl Kind for InCatalog {
    fn open(&self, identity: &Identity) -> Result<Warehouse, LoadError> {
        // Without a buffer, a transaction stages rows in many writes.
        let buffer_bytes_max = if self.kind == WarehouseKind::Iceberg { 0 } else { 1 << 20 };
        Ok(Warehouse::new("catalog", String::new(), Box::new(open(self, identity, false)?), buffer_bytes_max, 1))
    }

    fn reader(&self) -> Reader {
        let location = Location::in_catalog(self.catalog.clone(), self.mirror.path().join("unused"));
        Reader::open(&self.kind.at(location)).unwrap()
    }

    fn root(&self) -> &Path {
        self.update_mirror();
        self.mirror.path()
    }

    fn stored_nul(&self) -> char {
        if matches!(self.catalog.address, CatalogAddress::Postgres(_)) { '\u{fffd}' } else { '\0' }
    }
}

pub(super) fn postgres() -> Box<dyn Kind> {
    Box::new(postgres_schema())
}

fn postgres_schema() -> InCatalog {
    let address = format!("{}?schema=s{}", variable("STUDYSYNC_TEST_POSTGRES"), Uuid::new_v4().simple());
    InCatalog::new(CatalogAddress::postgres(&address).unwrap(), CatalogKeys::default())
}

fn ducklake() -> Box<dyn Kind> {
    Box::new(ducklake_in(&TempDir::new().unwrap().keep()))
}

pub(super) fn ducklake_in(folder: &Path) -> InCatalog {
    let address = CatalogAddress::ducklake(&folder.join("w.ducklake").to_string_lossy()).unwrap();
    InCatalog::new(address, CatalogKeys::default())
}

pub(super) fn ducklake_in_postgres() -> Box<dyn Kind> {
    Box::new(ducklake_of_postgres(&TempDir::new().unwrap().keep()))
}

/// Returns a DuckLake with its catalog in PostgreSQL and its files in a folder.
pub(super) fn ducklake_of_postgres(folder: &Path) -> InCatalog {
    let (server, schema) = (variable("STUDYSYNC_TEST_POSTGRES"), Uuid::new_v4().simple());
    let address = format!("{server}?schema=l{schema}&data={}/", folder.to_string_lossy());
    InCatalog::new(CatalogAddress::ducklake(&address).unwrap(), CatalogKeys::default())
}

pub(super) fn iceberg() -> Box<dyn Kind> {
    Box::new(iceberg_namespace())
}

fn iceberg_namespace() -> InCatalog {
    let server = variable("STUDYSYNC_TEST_ICEBERG");
    let [id, secret, endpoint] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "STUDYSYNC_TEST_S3"].map(variable);
    let keys = CatalogKeys {
        iceberg: vec![
            ("CLIENT_ID", id.clone()),
            ("CLIENT_SECRET", secret.clone()),
            ("OAUTH2_SERVER_URI", format!("{server}/v1/oauth/tokens")),
        ],
        s3: [("KEY_ID", id), ("SECRET", secret), ("ENDPOINT", endpoint), ("USE_SSL", "false".into())]
            .into_iter()
            .chain([("URL_STYLE", "path".into()), ("REGION", "us-east-1".into())])
            .collect(),
    };
    let namespace = Uuid::new_v4().simple();
    let address = CatalogAddress::iceberg(&format!("{server}?warehouse=lakehouse&namespace=n{namespace}")).unwrap();
    InCatalog::new(address, keys)
}

mod postgres_catalog {
    crate::load::conformance::conformance_tests!(slow super::postgres);
}
mod ducklake_catalog {
    crate::load::conformance::conformance_tests!(slow super::ducklake);
}
mod ducklake_postgres_catalog {
    crate::load::conformance::conformance_tests!(slow super::ducklake_in_postgres);
}
mod iceberg_catalog {
    crate::load::conformance::conformance_tests!(slow super::iceberg);
}

/// Returns the files below a folder that contain a text.
pub(super) fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let has_text = |path: &PathBuf| fs::read(path).unwrap().windows(text.len()).any(|part| part == text.as_bytes());
    files::files_below(folder).unwrap().into_iter().filter(has_text).collect()
}

/// Runs a statement in PostgreSQL.
pub(super) fn in_postgres(kind: &InCatalog, sql: &str) {
    let connection = new_engine().unwrap();
    let _attachment = attach(&connection, &kind.catalog, CATALOG, false).unwrap();
    connection.execute_batch(&format!("CALL postgres_execute('{CATALOG}', {})", quote_text(sql))).unwrap();
}

/// Returns a schema in PostgreSQL, and the same one for a new user.
pub(super) fn postgres_of_two_users() -> (InCatalog, InCatalog, String) {
    let server = variable("STUDYSYNC_TEST_POSTGRES");
    let schema = format!("s{}", Uuid::new_v4().simple());
    let of = |server: &str| {
        let address = CatalogAddress::postgres(&format!("{server}?schema={schema}")).unwrap();
        InCatalog::new(address, CatalogKeys::default())
    };
    let (owner, guest) = (of(&server), of(&server.replace("postgres@", &format!("{schema}@"))));
    in_postgres(&owner, &format!("CREATE ROLE {schema} LOGIN"));
    (owner, guest, schema)
}

pub(super) fn session(value: &str) -> [Identifier; 1] {
    [Identifier { kind: IdentifierKind::Session, value: value.to_owned() }]
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn tables_of_another_program_are_refused() {
    for table in ["responses (id int, note text)", "studysync_meta (id int)"] {
        let (kind, _, schema) = postgres_of_two_users();
        in_postgres(&kind, &format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table}"));
        let Err(refused) = open(&kind, &identity("test"), false) else { panic!("{table}") };
        assert!(matches!(refused, LoadError::NotOurs { .. }), "{table}: {refused:?}");
        in_postgres(&kind, &format!("DROP TABLE {schema}.{}", table.split(' ').next().unwrap()));
        open(&kind, &identity("test"), false).unwrap();
    }
}

/// A replay replaces all rows, but not those that another writer has committed since it began.
#[test]
#[ignore = "slow: run by `make lakes`"]
fn a_replay_loses_no_commit_of_another_writer() {
    let lakes = [ducklake_in, ducklake_of_postgres].map(|open| open(&TempDir::new().unwrap().keep()));
    for kind in lakes.into_iter().chain([postgres_schema(), iceberg_namespace()]) {
        let commit = |nth: i64| {
            let mut warehouse = kind.open(&identity("test")).unwrap();
            let (scan, records) = (answers_scan(nth, nth, nth + 1), [answer(&format!("g{nth}"), nth, "text")]);
            warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
            warehouse.release_lock().unwrap();
            scan.id
        };
        let first = commit(0);
        let folder = TempDir::new().unwrap();
        let built = folder.path().join("built.duckdb");
        let build = |store: &mut AttachedStore| {
            store.attach().unwrap();
            let mut statements = vec![format!("ATTACH {} AS built", quote_text(&built.to_string_lossy()))];
            statements.extend(schema::tables().iter().map(|table| {
                let (name, relation) = (quote_identifier(&table.name), store.relation(&table.name));
                format!("CREATE OR REPLACE TABLE built.main.{name} AS SELECT * FROM {relation}")
            }));
            statements.push("DETACH built".to_owned());
            store.engine.execute("build", &statements.join("; ")).unwrap();
            store.release_lock().unwrap();
        };
        let mut store = open(&kind, &identity("test"), false).unwrap();
        build(&mut store);
        let second = commit(1);
        let replace = |store: &mut AttachedStore, scans: &[&ScanId]| {
            store.attach().unwrap();
            let replaced = store.replace_rows(&built, &scans.iter().copied().collect());
            let sql = format!("SELECT count(*) FROM {}", store.relation("sync_windows"));
            assert_eq!(store.engine.integers::<1>("count", &sql).unwrap(), [2], "{:?}: {replaced:?}", kind.kind);
            replaced
        };
        let replaced = replace(&mut store, &[&first]);
        assert!(matches!(replaced, Err(LoadError::Conflict { .. })), "{:?}: {replaced:?}", kind.kind);
        build(&mut store);
        replace(&mut store, &[&first, &second]).unwrap();
    }
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn old_snapshots_of_a_ducklake_are_expired_and_files_joined() {
    const NIGHTS: i64 = 12;
    for lake_in in [ducklake_in, ducklake_of_postgres] {
        let folder = TempDir::new().unwrap();
        let kind = lake_in(folder.path());
        let files = || files_with(folder.path(), "PAR1").len();
        let mut warehouse = kind.open(&identity("test")).unwrap();
        let mut last_scan = String::new();
        for night in 0..NIGHTS {
            // Each night has a new record, and changes that of the night before.
            let records = [answer(&format!("g{night}"), 0, "new"), answer(&format!("g{}", night - 1), 0, "changed")];
            let scan = answers_scan(night, 0, 1);
            warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
            warehouse.publish().unwrap();
            last_scan = scan.id.0;
        }
        let mut store = open(&kind, &identity("test"), true).unwrap();
        store.attach().unwrap();
        let message = "SELECT arg_max(commit_message, snapshot_id) FROM ducklake_snapshots('warehouse')";
        assert_eq!(store.engine.query::<String, Vec<_>>("read", message, |row| row.get(0)).unwrap(), [last_scan]);
        drop(store);
        let rows = || kind.reader().query("SELECT * FROM responses ORDER BY ALL", 100).unwrap().batches;
        let oldest_ms = warehouse.maintain(0).unwrap().unwrap().oldest_ms;
        let before = warehouse.maintain(oldest_ms + 12 * DAY_MS).unwrap().unwrap();
        assert!(before.count > NIGHTS, "{before:?}");
        warehouse.release_lock().unwrap();
        let (rows_before, files_before) = (rows(), files());
        let after = warehouse.maintain(oldest_ms + 14 * DAY_MS).unwrap().unwrap();
        assert_eq!(after.count, 1);
        warehouse.release_lock().unwrap();
        assert_eq!(rows(), rows_before);
        assert!(files() < files_before / 4, "{files_before} files became {}", files());
    }
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn p8_long_texts_are_written_with_more_memory() {
    let mut repeats = 0;
    for mut kind in [ducklake_in(&TempDir::new().unwrap().keep()), iceberg_namespace()] {
        kind.memory_limit_bytes = ENGINE_BYTES_MIN;
        let mut warehouse = kind.open(&identity("test")).unwrap();
        let text = "words that differ ".repeat((1 << 20) / 18);
        let records: Vec<Answer> =
            (0..150).map(|nth| answer(&format!("g{nth}"), 0, &format!("{nth} {text}"))).collect();
        let (scan, pages) = (answers_scan(0, 0, 1), [page(&records)]);
        while let Err(error) = warehouse.apply_and_commit(&scan, &WantedRows(&pages), &CommitOptions::default()) {
            assert!(warehouse.can_repeat(&error).unwrap(), "{:?}: {error:?}", kind.kind);
            repeats += 1;
        }
        warehouse.release_lock().unwrap();
        let rows = "SELECT 1 FROM responses WHERE length(answer_text) > 1048000";
        assert_eq!(kind.reader().query(rows, 200).unwrap().rows(), records.len(), "{:?}", kind.kind);
    }
    assert!(repeats > 0);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn a_month_between_removals_of_iceberg_can_be_joined() {
    let kind = iceberg_namespace();
    let mut warehouse = kind.open(&identity("test")).unwrap();
    for (nth, on_day) in [(0, 0), (1, 300)] {
        let records = ["person", "another"].map(|group| Answer { question: nth, ..answer(group, on_day, "text") });
        let scan = answers_scan(nth, on_day, on_day + 1);
        warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
    }
    warehouse.erase_people(&session("person")).unwrap();
    let mut reader = kind.reader();
    let [from, until] = [150, 160].map(|on_day| day(on_day) * 1000);
    for tables in ["responses a, responses b", "(FROM responses UNION ALL FROM responses) a"] {
        let sql = format!(
            "SELECT 1 FROM {tables} WHERE a.created_at > make_timestamp({from}) AND a.created_at < make_timestamp({until})"
        );
        assert_eq!(reader.query(&sql, 100).unwrap().rows(), 0, "{sql}");
    }
    assert_eq!(reader.query("SELECT 1 FROM responses", 100).unwrap().rows(), 2);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn a_commit_of_new_rows_adds_one_manifest_to_an_iceberg_table() {
    let kind = iceberg_namespace();
    let mut warehouse = kind.open(&identity("test")).unwrap();
    for nth in 0..4 {
        let (scan, records) = (answers_scan(nth, nth, nth + 1), [answer(&format!("g{nth}"), nth, "text")]);
        warehouse.apply(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
    }
    warehouse.commit().unwrap();
    let store = open(&kind, &identity("test"), true).unwrap();
    let manifests = |table: &str| {
        let sql = format!("SELECT count(DISTINCT manifest_path) FROM iceberg_metadata({})", store.relation(table));
        store.engine.integers::<1>("count", &sql).unwrap()
    };
    assert_eq!(["responses", "sync_windows"].map(manifests), [[1], [1]]);
}
