//! Warehouses in catalogs, on the servers that `scripts/lakes.sh` starts.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use duckdb::Connection;
use studysync::model::WarehouseKind;

#[expect(clippy::disallowed_methods, reason = "the script names servers and folders")]
pub fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: run by scripts/lakes.sh, which starts the servers"))
}

/// A kind of catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogKind {
    DuckLakeFile,
    DuckLakeInPostgres,
    Postgres,
    Iceberg,
}

impl CatalogKind {
    pub const ALL: [CatalogKind; 4] =
        [CatalogKind::DuckLakeFile, CatalogKind::DuckLakeInPostgres, CatalogKind::Postgres, CatalogKind::Iceberg];
}

/// The place of a warehouse in a catalog.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub kind: CatalogKind,
    /// The address, as users give it.
    pub address: String,
    /// The schema or namespace, which no other test has.
    name: String,
}

impl Catalog {
    /// Returns a place without a warehouse. `folder` is for the files of a DuckLake.
    pub fn new(kind: CatalogKind, folder: &Path) -> Catalog {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (postgres, iceberg) = (|| variable("STUDYSYNC_TEST_POSTGRES"), || variable("STUDYSYNC_TEST_ICEBERG"));
        let address = match kind {
            CatalogKind::DuckLakeFile => folder.join("warehouse.ducklake").display().to_string(),
            CatalogKind::DuckLakeInPostgres => {
                format!("{}?schema={name}&data={}", postgres(), folder.join("data").display())
            }
            CatalogKind::Postgres => format!("{}?schema={name}", postgres()),
            CatalogKind::Iceberg => format!("{}?warehouse=lakehouse&namespace={name}", iceberg()),
        };
        Catalog { kind, address, name }
    }

    pub fn warehouse_kind(&self) -> WarehouseKind {
        match self.kind {
            CatalogKind::DuckLakeFile | CatalogKind::DuckLakeInPostgres => WarehouseKind::DuckLake,
            CatalogKind::Postgres => WarehouseKind::Postgres,
            CatalogKind::Iceberg => WarehouseKind::Iceberg,
        }
    }

    /// Returns the schema of the tables in the attached catalog.
    pub fn schema(&self) -> &str {
        match self.warehouse_kind() {
            WarehouseKind::DuckLake => "main",
            _ => &self.name,
        }
    }

    /// Returns the statements that attach the catalog as `w` for readers.
    pub fn attach_sql(&self) -> String {
        self.attach(true)
    }

    /// Removes the schema or namespace from its server, which becomes slower with each that stays.
    pub fn remove(&self, engine: &Connection) {
        let name = &self.name;
        match self.kind {
            CatalogKind::DuckLakeFile => {}
            CatalogKind::DuckLakeInPostgres | CatalogKind::Postgres => {
                let postgres = Catalog { kind: CatalogKind::Postgres, ..self.clone() };
                let drop = format!("CALL postgres_execute('w', 'DROP SCHEMA IF EXISTS {name} CASCADE'); DETACH w");
                engine.execute_batch(&format!("{}; {drop}", postgres.attach(false))).unwrap();
            }
            CatalogKind::Iceberg => {
                engine.execute_batch(&self.attach(false)).unwrap();
                let tables = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'w' AND schema_name = ?";
                let mut tables = engine.prepare(tables).unwrap();
                let tables = tables.query_map([name], |row| row.get::<_, String>(0)).unwrap();
                let drops: String = tables.map(|table| format!("DROP TABLE w.{name}.{}; ", table.unwrap())).collect();
                engine.execute_batch(&format!("{drops}DROP SCHEMA IF EXISTS w.{name}; DETACH w")).unwrap();
            }
        }
    }

    fn attach(&self, is_read_only: bool) -> String {
        let (name, server) = (&self.name, self.address.split('?').next().unwrap());
        let (extensions, attach) = match self.kind {
            CatalogKind::DuckLakeFile => {
                (&["ducklake"][..], format!("ATTACH 'ducklake:{server}' AS w (READ_ONLY {is_read_only})"))
            }
            CatalogKind::DuckLakeInPostgres => (
                &["ducklake", "postgres_scanner"][..],
                format!(
                    "ATTACH 'ducklake:postgres:{server}' AS w (READ_ONLY {is_read_only}, METADATA_SCHEMA '{name}')"
                ),
            ),
            CatalogKind::Postgres => (
                &["postgres_scanner"][..],
                format!("ATTACH '{server}' AS w (TYPE postgres, READ_ONLY {is_read_only}, SCHEMA '{name}')"),
            ),
            CatalogKind::Iceberg => {
                let [id, secret, endpoint] =
                    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "STUDYSYNC_TEST_S3"].map(variable);
                let attach = format!(
                    "CREATE OR REPLACE SECRET bucket (TYPE s3, KEY_ID '{id}', SECRET '{secret}', ENDPOINT '{endpoint}', \
                     USE_SSL false, URL_STYLE 'path', REGION 'us-east-1'); \
                     ATTACH 'lakehouse' AS w (TYPE iceberg, READ_ONLY {is_read_only}, ENDPOINT '{server}', CLIENT_ID '{id}', \
                     CLIENT_SECRET '{secret}', OAUTH2_SERVER_URI '{server}/v1/oauth/tokens')"
                );
                (&["httpfs", "avro", "iceberg"][..], attach)
            }
        };
        let loads: String = extensions.iter().map(|name| format!("LOAD {name}; ")).collect();
        format!("SET extension_directory = '{}'; {loads}{attach}", variable("STUDYSYNC_TEST_EXTENSIONS"))
    }
}
