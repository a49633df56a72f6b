//! The configuration file as tables: the declarations of the short tables, and the list of all keys. Longer tables are
//! declared beside the code that uses them.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use super::{
    catalogs::IcebergValue,
    declare::{DAY_SECS, Setting, SettingKey, Table, YEAR_SECS, default, example, table},
    lines::FileLines,
    notify::NotifyTable,
    paths::{ArchiveChoice, STATE_PATH},
    publish::{KEY_VARIABLE, PublishValue},
    recordings::RecordingsTable,
    serve::ServeTable,
    settings::EXAMPLE_URL,
    streams::{self, StreamTable},
};
use crate::model::{Stream, WarehouseKind};

/// The smallest memory limit per warehouse, in MiB.
pub(super) const MEMORY_LIMIT_MB_MIN: u64 = 256;

/// The configuration file. Its tables are in the order of the file that `init` writes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConfigFile {
    pub service: ServiceTable,
    pub throttle: ThrottleTable,
    pub streams: BTreeMap<String, StreamTable>,
    pub warehouse: WarehouseTable,
    pub state: StateTable,
    pub archive: ArchiveTable,
    pub erase: EraseTable,
    pub recordings: RecordingsTable,
    pub serve: ServeTable,
    pub metrics: MetricsTable,
    pub notify: NotifyTable,
    /// The content of the file as a TOML table, into which the values of environment variables are written.
    #[serde(skip)]
    pub table: toml::Table,
    #[serde(skip)]
    pub lines: FileLines,
}

table! {
    ServiceTable {
        "The address of the service, without /v1/responses. Replace this example, which is refused."
        base_url: Option<String> => example(EXAMPLE_URL).set();
        "A label of your choice for the environment of the service that the key belongs to. A warehouse refuses data of another environment."
        environment: String = "default".into();
        "The environment variable with the key."
        api_key_env: String = "STUDYSYNC_API_KEY".into();
        "A file that contains only the key, instead of the variable."
        api_key_file: Option<PathBuf> => example("/run/secrets/studysync-key");
        "A command line for /bin/sh that prints the key, instead of the variable."
        api_key_command: Option<String> => example("vault kv get -field=key secret/studysync");
        "Time limit of one request."
        timeout_secs: u64 = 60, in 1..=DAY_SECS;
        r#"The form of the Authorization header: "documented" (bearer, and api-key for users), "bearer" or "api-key"."#
        auth: String = "documented".into();
    }
}

table! {
    ThrottleTable {
        "Concurrent requests. Also the number of windows that are pulled concurrently."
        "Fewer are sent at a time if memory_limit_mb is too small for their pages."
        in_flight_max: usize = 4;
        "An upper limit of your own. The program learns the service's limit from its responses, so you rarely need this."
        requests_per_sec_max: Option<f64> => example(3.0);
        "The longest Retry-After of the service that a run waits for. A longer one stops the run early; the next run resumes."
        patience_secs: u64 = 3600, in 0..=YEAR_SECS;
    }
}

table! {
    WarehouseTable {
        "The DuckDB file. Configure one warehouse or several."
        duckdb: Option<PathBuf> => example("warehouse.duckdb").set();
        "The folder of Parquet files, or a folder of a bucket: \"s3://bucket/folder\", gs://, az:// or abfss://. Credentials come from the"
        "variables of the provider."
        parquet: Option<PathBuf> => example("warehouse-parquet");
        "A DuckLake: the file of its catalog, with the data beside it in FILE.files or in FILE?data=FOLDER; or a catalog in PostgreSQL:"
        "\"postgres://host/database?data=s3://bucket/folder\". DuckDB's extensions must be installed for this and the next two."
        ducklake: Option<PathBuf> => example("warehouse.ducklake");
        "A schema of a PostgreSQL database. The password comes from PGPASSWORD or ~/.pgpass."
        postgres: Option<String> => example("postgres://user@host/database?schema=studysync");
        r#"A namespace of an Iceberg REST catalog: an address, or { catalog = "https://host", warehouse = "lake", namespace = "studysync" }."#
        "Keys come from STUDYSYNC_ICEBERG_CREDENTIAL (ID:SECRET) or"
        "STUDYSYNC_ICEBERG_TOKEN, and for the bucket from AWS_ACCESS_KEY_ID and the other variables of AWS."
        iceberg: Option<IcebergValue> => example("https://host?warehouse=lake&namespace=studysync");
        r#"The size of Parquet partitions: "month" or "day"."#
        parquet_partition: String = "month".into();
        "Memory limit of the whole program in MiB, kept within a quarter. An engine spills to disk beyond its share. At least {MEMORY_LIMIT_MB_MIN} per"
        "warehouse. More than the default is hardly faster. DuckDB exceeds it, with a warning, if thousands of records in a row have long texts."
        memory_limit_mb: u64 = 512;
        "How long a run waits for a DuckDB file that another program has locked, and query, report and diff for a run, before exit code 5."
        lock_wait_secs: u64 = 60, in 0..=DAY_SECS;
        "A read-only copy of the DuckDB file, replaced atomically at the end of each run that changed the file. Readers of the copy and runs"
        "never wait for each other, and query, report and diff read the copy while a run has the file. Only this user can read the first copy; later copies keep the mode, owner and group of the previous one."
        "As a table: copies without personal data. Ids become pseudonyms, which join; what else may name a person is NULL. The table may have"
        "without, a list of further columns or open_texts, and pseudonyms; false drops the ids."
        publish: Option<PublishValue> => example("analytics.duckdb")
            .below(r#"publish = { path = "analysts.duckdb" }"#);
        "The environment variable with the key of pseudonyms: 16 characters or more. Another key gives other pseudonyms."
        publish_key_env: String = KEY_VARIABLE.into();
        "A file that contains only the key of pseudonyms, instead of the variable."
        publish_key_file: Option<PathBuf> => example("/run/secrets/studysync-publish");
        "A command line for /bin/sh that prints the key of pseudonyms, instead of the variable."
        publish_key_command: Option<String> => example("vault kv get -field=publish secret/studysync");
        "A full-text index in the DuckDB file for search_answers. DuckDB's extension fts must be installed: nothing is downloaded. A run that"
        "changed answers rebuilds the index, which takes about 13 seconds for a million responses."
        full_text_search: bool = false;
        "The time zone of days, weeks and months in views, report and diff, and of the schedule. Stored times stay UTC. Without it: UTC."
        report_time_zone: Option<String> => example("Europe/Berlin");
        "DuckDB's folder of extensions, if it is not ~/.duckdb/extensions."
        extension_directory: Option<PathBuf> => example("/opt/duckdb/extensions");
    }
}

impl WarehouseTable {
    /// Takes the path or address of a warehouse.
    pub fn take_place(&mut self, kind: WarehouseKind) -> Option<PathBuf> {
        match kind {
            WarehouseKind::DuckDb => self.duckdb.take(),
            WarehouseKind::Parquet => self.parquet.take(),
            WarehouseKind::DuckLake => self.ducklake.take(),
            WarehouseKind::Postgres => self.postgres.take().map(PathBuf::from),
            WarehouseKind::Iceberg => self.iceberg.take().map(|value| value.0.into()),
        }
    }

    /// Sets the path or address of a warehouse.
    pub fn set_place(&mut self, kind: WarehouseKind, place: PathBuf) {
        let text = place.to_string_lossy().into_owned();
        match kind {
            WarehouseKind::DuckDb => self.duckdb = Some(place),
            WarehouseKind::Parquet => self.parquet = Some(place),
            WarehouseKind::DuckLake => self.ducklake = Some(place),
            WarehouseKind::Postgres => self.postgres = Some(text),
            WarehouseKind::Iceberg => self.iceberg = Some(IcebergValue(text)),
        }
    }
}

table! {
    StateTable {
        "The checkpoint file."
        path: PathBuf = STATE_PATH.into();
    }
}

table! {
    ArchiveTable {
        r#"The folder of the exact pages of every scan, compressed. `studysync replay` rebuilds every table from them. "none" deletes the pages"#
        "after each scan. A folder has the pages of one state file. For a state file with another name the default is NAME.sqlite.archive."
        "It may be a folder of a bucket: s3://bucket/folder, gs://, az:// or abfss://. The pages of unfinished scans stay on this machine."
        path: Option<ArchiveChoice> => default("studysync-state/archive");
        "Days that pages are kept; without it, for ever."
        keep_days: Option<u32> => example(400);
    }
}

table! {
    EraseTable {
        r#"The policy for sessions that the service no longer returns, for example after a purge: "keep" keeps their rows, marked with"#
        r#"_vanished_at; "erase" removes rows, history and archived records after grace_days, with a receipt."#
        on_vanish: String = "keep".into();
        "Days between the disappearance of a session and its erasure."
        grace_days: u32 = 30;
    }
}

table! {
    MetricsTable {
        "A file that each run writes at its end, for the textfile collector of Prometheus' node_exporter. `serve` also has /metrics."
        textfile: Option<PathBuf> => example("/var/lib/node_exporter/textfile_collector/studysync.prom");
    }
}

/// A table of the file with its name in TOML.
struct NamedTable<'file> {
    name: String,
    table: &'file mut dyn Table,
}

fn named<'file>(name: &str, table: &'file mut dyn Table) -> NamedTable<'file> {
    NamedTable { name: name.to_owned(), table }
}

impl ConfigFile {
    fn tables(&mut self) -> Vec<NamedTable<'_>> {
        let mut tables = vec![named("service", &mut self.service), named("throttle", &mut self.throttle)];
        for (stream, table) in &mut self.streams {
            tables.push(NamedTable { name: format!("streams.{stream}"), table });
        }
        tables.extend([
            named("warehouse", &mut self.warehouse),
            named("state", &mut self.state),
            named("archive", &mut self.archive),
            named("erase", &mut self.erase),
            named("recordings", &mut self.recordings),
            named("serve", &mut self.serve),
            named("metrics", &mut self.metrics),
            named("notify", &mut self.notify),
        ]);
        tables
    }

    /// Returns every key with its value.
    pub fn settings(&mut self) -> impl Iterator<Item = Setting<'_>> {
        self.tables().into_iter().flat_map(|NamedTable { name, table }| table.settings(&name))
    }
}

/// Returns every key, in the order of the file.
pub(super) fn keys_of_file() -> Vec<SettingKey> {
    let streams = Stream::ALL.into_iter().map(|stream| (stream.name().to_owned(), StreamTable::default()));
    let mut file = ConfigFile { streams: streams.collect(), ..ConfigFile::default() };
    file.settings().filter_map(|setting| streams::key_of_stream(setting.key)).collect()
}

/// Returns every key, table by table.
pub fn keys() -> impl Iterator<Item = SettingKey> {
    let mut keys = keys_of_file();
    // The reference of variables ends with [serve].
    keys.sort_by_key(|key| key.table == "serve");
    keys.into_iter()
}
