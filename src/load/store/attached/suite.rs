//! Runs the conformance suite on catalogs. `scripts/lakes.sh` starts the servers and names the extensions.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

use arrow::util::pretty::pretty_format_batches;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::{
    files,
    load::{
        CommitOptions, EngineOptions, Reader, Warehouse,
        conformance::{Answer, Kind, answer, answers_scan, day, identity, page, pages::WantedRows},
        extension::new_engine,
    },
    model::{CatalogAddress, CatalogKeys, DAY_MS, Identifier, IdentifierKind, Location, WarehouseKind},
    schema::{self, quote_text},
};

struct InCatalog {
    kind: WarehouseKind,
    catalog: CatalogPlace,
    /// The published rows as Parquet files, for comparisons.
    mirror: TempDir,
    /// How long to wait for the transactions of other tests.
    wait: Duration,
}

#[expect(clippy::disallowed_methods, reason = "the script names servers and folders")]
fn variable(name: &str) -> String {
    std::env::var(name).expect("run by scripts/lakes.sh, which starts the servers")
}

fn open(kind: &InCatalog, identity: &Identity, is_read_only: bool) -> Result<AttachedStore, LoadError> {
    let (catalog, identity, patience) =
        (kind.catalog.clone(), identity.clone(), LockPatience { wait: kind.wait, ..LockPatience::default() });
    let options = AttachedOptions { catalog, identity, patience, is_read_only };
    let temp_directory = kind.mirror.path().join("spill");
    let engine = StartedEngine::start(EngineOptions { memory_limit_bytes: 256 << 20, threads: 1, temp_directory })?;
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
        Self { kind, catalog, mirror: TempDir::new().unwrap(), wait: Duration::from_secs(60) }
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
        Ok(Warehouse::new("catalog", String::new(), Box::new(open(self, identity, false)?), 1 << 20, 1))
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

fn postgres() -> Box<dyn Kind> {
    Box::new(postgres_schema())
}

fn postgres_schema() -> InCatalog {
    let address = format!("{}?schema=s{}", variable("STUDYSYNC_TEST_POSTGRES"), Uuid::new_v4().simple());
    InCatalog::new(CatalogAddress::postgres(&address).unwrap(), CatalogKeys::default())
}

fn ducklake() -> Box<dyn Kind> {
    Box::new(ducklake_in(&TempDir::new().unwrap().keep()))
}

fn ducklake_in(folder: &Path) -> InCatalog {
    let address = CatalogAddress::ducklake(&folder.join("w.ducklake").to_string_lossy()).unwrap();
    InCatalog::new(address, CatalogKeys::default())
}

fn ducklake_in_postgres() -> Box<dyn Kind> {
    Box::new(ducklake_of_postgres(&TempDir::new().unwrap().keep()))
}

/// Returns a DuckLake with its catalog in PostgreSQL and its files in a folder.
fn ducklake_of_postgres(folder: &Path) -> InCatalog {
    let (server, schema) = (variable("STUDYSYNC_TEST_POSTGRES"), Uuid::new_v4().simple());
    let address = format!("{server}?schema=l{schema}&data={}/", folder.to_string_lossy());
    InCatalog::new(CatalogAddress::ducklake(&address).unwrap(), CatalogKeys::default())
}

fn iceberg() -> Box<dyn Kind> {
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
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let has_text = |path: &PathBuf| fs::read(path).unwrap().windows(text.len()).any(|part| part == text.as_bytes());
    files::files_below(folder).unwrap().into_iter().filter(has_text).collect()
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_no_byte_of_an_erased_person_is_left_in_a_ducklake() {
    const PERSON: &str = "session-of-the-erased-person";
    let folder = TempDir::new().unwrap();
    let kind = ducklake_in(folder.path());
    let mut warehouse = kind.open(&identity("test")).unwrap();
    let records = [answer(PERSON, 0, PERSON), answer("another", 0, "another")];
    let scan = answers_scan(0, 0, 1);
    warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
    warehouse.release_lock().unwrap();
    assert!(!files_with(folder.path(), PERSON).is_empty());
    assert_eq!(warehouse.erase_people(&session(PERSON)).unwrap().total(), 1);
    warehouse.release_lock().unwrap();
    assert_eq!(files_with(folder.path(), PERSON), Vec::<PathBuf>::new());
    drop(warehouse);
    let found = kind.reader().query("SELECT response_group_uid FROM responses", 10).unwrap().batches;
    assert!(pretty_format_batches(&found).unwrap().to_string().contains("another"));
}

/// An erasure leaves the other rows of every kind of catalog.
#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_an_erasure_removes_one_person_from_a_catalog() {
    for kind in [ducklake_in_postgres(), postgres(), iceberg()] {
        let mut warehouse = kind.open(&identity("test")).unwrap();
        let records = [answer("person", 0, "text"), answer("another", 0, "text")];
        let scan = answers_scan(0, 0, 1);
        warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
        assert_eq!(warehouse.erase_people(&session("person")).unwrap().total(), 1);
        let found = kind.reader().query("SELECT response_group_uid FROM responses", 10).unwrap().batches;
        let found = pretty_format_batches(&found).unwrap().to_string();
        assert!(found.contains("another") && !found.contains("person"), "{found}");
    }
}

/// Runs a statement in PostgreSQL.
fn in_postgres(kind: &InCatalog, sql: &str) {
    let connection = new_engine().unwrap();
    let _attachment = attach(&connection, &kind.catalog, CATALOG, false).unwrap();
    connection.execute_batch(&format!("CALL postgres_execute('{CATALOG}', {})", quote_text(sql))).unwrap();
}

/// Returns a schema in PostgreSQL, and the same one for a new user.
fn postgres_of_two_users() -> (InCatalog, InCatalog, String) {
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

fn session(value: &str) -> [Identifier; 1] {
    [Identifier { kind: IdentifierKind::Session, value: value.to_owned() }]
}

/// PostgreSQL skips a table of another user with a warning.
#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_only_the_owner_erases_in_postgres() {
    let (owner, guest, schema) = postgres_of_two_users();
    let Err(creation) = open(&guest, &identity("test"), false) else { panic!("the guest created tables") };
    for refused in [exists(&guest.catalog).unwrap_err(), creation] {
        assert!(refused.to_string().contains("may not create tables"), "{refused}");
    }
    let mut warehouse = owner.open(&identity("test")).unwrap();
    let granted = format!("USAGE ON SCHEMA {schema} TO {schema}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES");
    in_postgres(&owner, &format!("GRANT {granted} IN SCHEMA {schema} TO {schema}"));
    assert!(exists(&guest.catalog).unwrap());
    warehouse.require_erasable().unwrap();
    let refused = guest.open(&identity("test")).unwrap().require_erasable().unwrap_err().to_string();
    assert!(refused.contains(&format!("{schema} does not own")), "{refused}");
}

/// PostgreSQL keeps removed rows for transactions that began before, and values of columns in statistics.
#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_an_erasure_in_postgres_waits_for_older_transactions() {
    let (mut owner, _, schema) = postgres_of_two_users();
    owner.wait = Duration::ZERO;
    let mut warehouse = owner.open(&identity("test")).unwrap();
    let records = [answer("person", 0, "text"), answer("another", 0, "text")];
    let scan = answers_scan(0, 0, 1);
    warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
    in_postgres(&owner, "ANALYZE");
    let mut reader = open(&owner, &identity("test"), true).unwrap();
    let count = format!("SELECT count(*) FROM {}", reader.relation("responses"));
    let counted = |reader: &mut AttachedStore, sql: &str| {
        reader.in_transaction(|store| store.engine.integers::<1>("count", sql)).unwrap()
    };
    let in_statistics = format!(
        "SELECT tablename FROM pg_stats WHERE schemaname = '{schema}' AND \
         coalesce(most_common_vals::text, '') || coalesce(histogram_bounds::text, '') LIKE '%person%'"
    );
    let in_statistics =
        format!("SELECT least(count(*), 1) FROM postgres_query('{CATALOG}', {})", quote_text(&in_statistics));
    assert_eq!(counted(&mut reader, &count), [2]);
    assert_eq!(counted(&mut reader, &in_statistics), [1]);
    let waits = warehouse.erase_people(&session("person")).unwrap_err();
    let is_named = matches!(&waits, LoadError::Locked { holder: Some(holder), .. } if holder.contains("user postgres"));
    assert!(is_named, "{waits:?}");
    assert_eq!(counted(&mut reader, &count), [2]);
    reader.rollback();
    drop(warehouse);
    owner.wait = Duration::from_secs(60);
    let mut warehouse = owner.open(&identity("test")).unwrap();
    // The rows are removed already; their bytes are not.
    assert_eq!(warehouse.erase_people(&session("person")).unwrap().total(), 0);
    assert_eq!(counted(&mut reader, &count), [1]);
    assert_eq!(counted(&mut reader, &in_statistics), [0]);
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

/// Counts a writer as ended, also if it panics.
struct Ended<'a>(&'a AtomicI64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Several writers add, change and lose records of the same keys at the same time. In the end each key has one row, the
/// newest, and the ledger has each scan once. `beside` runs again and again until the writers are done.
fn race(kind: &dyn Kind, writers: i64, nights: i64, beside: Option<&(dyn Fn() + Sync)>) {
    const KEYS: i64 = 6;
    kind.open(&identity("test")).unwrap();
    let opened: Vec<Warehouse> = (0..writers).map(|_| kind.open(&identity("test")).unwrap()).collect();
    let running = AtomicI64::new(writers);
    thread::scope(|scope| {
        if let Some(beside) = beside {
            scope.spawn(|| {
                while running.load(Ordering::Relaxed) > 0 {
                    beside()
                }
            });
        }
        for (writer, mut warehouse) in (0..).zip(opened) {
            let running = &running;
            scope.spawn(move || {
                let _ended = Ended(running);
                for night in 0..nights {
                    // Each writer has a day of its own, and all have the same keys.
                    let records: Vec<Answer> = (0..KEYS)
                        .map(|key| Answer {
                            updated_ms: Some(day(50 + night) + (writer + key) % writers),
                            ..answer(&format!("g{key}"), writer, &format!("{writer} in night {night}"))
                        })
                        .collect();
                    let scan = answers_scan(night * writers + writer, writer, writer + 1);
                    let apply = |warehouse: &mut Warehouse| {
                        warehouse.apply(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default())?;
                        warehouse.commit().map(drop)
                    };
                    while let Err(error) = apply(&mut warehouse) {
                        assert!(warehouse.can_repeat(&error).unwrap(), "{error:?}");
                    }
                }
            });
        }
    });
    let mut reader = kind.reader();
    let mut rows = |sql: &str| {
        let found = reader.query(sql, 1000).unwrap().batches;
        pretty_format_batches(&found).unwrap().to_string()
    };
    let one_each = rows("SELECT count(*) = 6 AND count(DISTINCT response_group_uid) = 6 AS ok FROM responses");
    assert!(one_each.contains("true"), "{one_each}");
    // In the last night, the record with the greatest time of a key is that of one writer.
    let newest = rows("SELECT min(epoch_ms(updated_at) % 1000) AS least FROM responses");
    assert!(newest.contains(&format!("| {} ", writers - 1)), "{newest}");
    let ledger = rows("SELECT count(*) AS scans FROM sync_windows");
    assert!(ledger.contains(&format!("| {} ", writers * nights)), "{ledger}");
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn two_writers_of_postgres_lose_nothing() {
    race(&*postgres(), 3, 4, None);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn two_writers_of_a_ducklake_lose_nothing() {
    race(&*ducklake_in_postgres(), 3, 4, None);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn the_maintenance_of_a_ducklake_loses_no_write() {
    let kind = ducklake_of_postgres(&TempDir::new().unwrap().keep());
    kind.open(&identity("test")).unwrap();
    let store = Mutex::new(open(&kind, &identity("test"), false).unwrap());
    let joined = AtomicI64::new(0);
    let join_files =
        || match store.lock().unwrap().compact_lake("0", "to_timestamp(0)", "older_than => to_timestamp(0)") {
            Ok(()) => drop(joined.fetch_add(1, Ordering::Relaxed)),
            // A writer was first.
            Err(LoadError::Conflict { .. }) => {}
            Err(error) => panic!("{error:?}"),
        };
    race(&kind, 2, 8, Some(&join_files));
    assert!(joined.into_inner() > 0);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn two_writers_of_iceberg_lose_nothing() {
    race(&*iceberg(), 3, 4, None);
}
