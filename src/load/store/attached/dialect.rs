//! What differs between the catalogs that DuckDB attaches: extensions, tables and texts of errors.

use crate::{
    model::{CatalogAddress, CatalogPlace, LakeCatalog},
    schema::{Table, quote_identifier, quote_text},
};

/// What differs between the kinds of catalogs.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The extensions of DuckDB, in the order in which they are loaded.
    pub extensions: &'static [&'static str],
    /// Settings of the engine for this kind, beside those of buckets.
    pub settings: &'static [&'static str],
    pub partitions: Partitions,
    /// True if two transactions can add rows with the same new key without a conflict. Each transaction then changes a
    /// row of the table with the metadata, so that two of them always conflict.
    pub needs_turn: bool,
    /// Texts in messages of the engine that mean that another writer has committed.
    pub conflicts: &'static [&'static str],
    /// True if each statement that inserts leaves files and a manifest, which each later read opens. The new rows of a
    /// transaction then wait in a temporary table.
    pub stages_rows: bool,
    /// Statement before a commit, which gives its snapshot the text `{label}`.
    pub before_commit: &'static str,
    /// Statements before the catalog is detached from an engine that has written.
    pub before_detach: &'static [&'static str],
    /// Statements after a rollback.
    pub after_rollback: &'static [&'static str],
}

/// How a table with a partition column is partitioned by month.
#[derive(Debug)]
pub(super) enum Partitions {
    /// Not at all: the column has an index.
    Indexed,
    /// By a clause of `CREATE TABLE`, where `{column}` is the column.
    InCreate(&'static str),
    /// By a statement after it, where `{table}` and `{column}` are replaced.
    After(&'static str),
}

/// Makes the parts of an upload to a bucket 5 MiB long, the least of S3. Each file that the engine writes has such a
/// buffer, which takes 77 MiB otherwise.
const UPLOADED_PARTS: &str = "SET s3_uploader_max_filesize = '50GB'";
const DUCKLAKE_CONFLICT: &str = "Transaction conflict";
const DUCKLAKE_MESSAGE: &str = "CALL warehouse.set_commit_message('studysync', {label}); ";
const LAKE_MONTHS: Partitions =
    Partitions::After("ALTER TABLE {table} SET PARTITIONED BY (year({column}), month({column}))");

static DUCKLAKE_FILE: Dialect = Dialect {
    extensions: &["ducklake"],
    settings: &[],
    partitions: LAKE_MONTHS,
    needs_turn: false,
    conflicts: &[DUCKLAKE_CONFLICT],
    stages_rows: false,
    before_commit: DUCKLAKE_MESSAGE,
    // The engine leaves a commit log otherwise, which would not fit a rewritten file.
    before_detach: &["CHECKPOINT __ducklake_metadata_warehouse"],
    after_rollback: &[],
};

static DUCKLAKE_POSTGRES: Dialect = Dialect {
    extensions: &["ducklake", "postgres"],
    settings: &[],
    partitions: LAKE_MONTHS,
    needs_turn: true,
    conflicts: &[DUCKLAKE_CONFLICT, "could not serialize access"],
    stages_rows: false,
    before_commit: DUCKLAKE_MESSAGE,
    before_detach: &[],
    after_rollback: &[],
};

static POSTGRES: Dialect = Dialect {
    extensions: &["postgres"],
    // PostgreSQL has no texts with the character NUL.
    settings: &["SET pg_null_byte_replacement = '\u{fffd}'"],
    partitions: Partitions::Indexed,
    needs_turn: true,
    conflicts: &["could not serialize access", "deadlock detected"],
    stages_rows: false,
    before_commit: "",
    before_detach: &[],
    // The extension keeps columns that the rollback removed.
    after_rollback: &["CALL pg_clear_cache()"],
};

static ICEBERG: Dialect = Dialect {
    extensions: &["httpfs", "avro", "iceberg"],
    // The extension estimates a negative number of rows for a range without rows between removed ones. A statement that
    // joins or unites such tables would fail.
    settings: &["SET disabled_optimizers = 'statistics_propagation'"],
    partitions: Partitions::InCreate(" PARTITIONED BY (month({column}))"),
    // Two commits to one table always conflict, and each transaction with rows has a row of the ledger.
    needs_turn: false,
    conflicts: &["Conflict_409", "CommitFailedException", "does not have a reachable state in this transaction"],
    stages_rows: true,
    before_commit: "",
    before_detach: &[],
    after_rollback: &[],
};

/// Texts in messages of the engine that mean that another worker has created a schema or table.
const CREATED_BY_OTHERS: [&str; 3] =
    ["already exists", "AlreadyExists", "duplicate key value violates unique constraint"];
/// Returns true if a message of the engine means that another worker has created a schema or table meanwhile.
pub(super) fn is_created_by_others(message: &str) -> bool {
    CREATED_BY_OTHERS.iter().any(|sign| message.contains(sign))
}

impl Dialect {
    pub fn of(address: &CatalogAddress) -> &'static Dialect {
        match address {
            CatalogAddress::DuckLake { catalog: LakeCatalog::File(_), .. } => &DUCKLAKE_FILE,
            CatalogAddress::DuckLake { catalog: LakeCatalog::Postgres(_), .. } => &DUCKLAKE_POSTGRES,
            CatalogAddress::Postgres(_) => &POSTGRES,
            CatalogAddress::Iceberg { .. } => &ICEBERG,
        }
    }

    /// Returns the extensions that a catalog needs, in the order in which they are loaded.
    pub fn extensions_of(address: &CatalogAddress) -> impl Iterator<Item = &'static str> + use<> {
        has_bucket(address).then_some("httpfs").into_iter().chain(Self::of(address).extensions.iter().copied())
    }

    /// Returns the settings of the engine for a catalog. They need its extensions.
    pub fn settings_of(address: &CatalogAddress) -> impl Iterator<Item = &'static str> + use<> {
        let uploads = Self::extensions_of(address).any(|extension| extension == "httpfs");
        uploads.then_some(UPLOADED_PARTS).into_iter().chain(Self::of(address).settings.iter().copied())
    }

    pub fn is_conflict(&self, message: &str) -> bool {
        self.conflicts.iter().any(|sign| message.contains(sign))
    }

    /// Returns the statements that create a table. `relation` is its SQL name.
    pub fn create_sql(&self, table: &Table, relation: &str) -> Vec<String> {
        let create = format!("CREATE TABLE {relation} {}", table.columns_sql(""));
        let column = table.partition.as_deref().map(quote_identifier);
        let filled =
            |text: &str| text.replace("{table}", relation).replace("{column}", column.as_deref().unwrap_or_default());
        match (&self.partitions, &column) {
            (Partitions::InCreate(clause), Some(_)) => vec![format!("{create}{}", filled(clause))],
            (Partitions::After(statement), Some(_)) => vec![create, filled(statement)],
            (Partitions::Indexed, Some(column)) => {
                let index = quote_identifier(&format!("{}_by_time", table.name));
                vec![create, format!("CREATE INDEX {index} ON {relation} ({column})")]
            }
            _ => vec![create],
        }
    }
}

/// Returns the statements that attach a catalog as `name`.
pub(super) fn attach_sql(catalog: &CatalogPlace, name: &str, is_read_only: bool) -> Vec<String> {
    let CatalogPlace { address, keys, .. } = catalog;
    let mode = if is_read_only { "READ_ONLY, " } else { "" };
    let create = if is_read_only { "CREATE_IF_NOT_EXISTS false, " } else { "" };
    let attach = match address {
        CatalogAddress::DuckLake { catalog, data } => {
            let (source, schema) = match catalog {
                LakeCatalog::File(path) => (format!("ducklake:{}", path.display()), String::new()),
                LakeCatalog::Postgres(address) => {
                    let schema = format!(", METADATA_SCHEMA {}", quote_text(&address.schema));
                    (format!("ducklake:postgres:{}", address.connection()), schema)
                }
            };
            let (source, data) = (quote_text(&source), quote_text(data));
            // Values of small commits would be in the catalog, where an erasure does not search them.
            let options = format!("{mode}{create}DATA_PATH {data}, DATA_INLINING_ROW_LIMIT 0{schema}");
            format!("ATTACH {source} AS {name} ({options})")
        }
        CatalogAddress::Postgres(address) => {
            let (connection, schema) = (quote_text(&address.connection()), quote_text(&address.schema));
            format!("ATTACH {connection} AS {name} (TYPE postgres, {mode}SCHEMA {schema})")
        }
        CatalogAddress::Iceberg { catalog, warehouse, .. } => {
            let (endpoint, warehouse) = (quote_text(catalog.as_str().trim_end_matches('/')), quote_text(warehouse));
            let authorization = if keys.iceberg.is_empty() { "AUTHORIZATION_TYPE 'none'" } else { "SECRET catalog" };
            format!("ATTACH {warehouse} AS {name} (TYPE iceberg, {mode}ENDPOINT {endpoint}, {authorization})")
        }
    };
    let secrets = [("bucket", "s3", &keys.s3), ("catalog", "iceberg", &keys.iceberg)];
    let secrets = secrets.into_iter().filter(|(_, kind, values)| !values.is_empty() && needs_secret(address, kind));
    secrets.map(|(name, kind, values)| secret_sql(name, kind, values)).chain([attach]).collect()
}

/// Returns true if a catalog needs a secret of this type.
fn needs_secret(address: &CatalogAddress, kind: &str) -> bool {
    let is_iceberg = matches!(address, CatalogAddress::Iceberg { .. });
    is_iceberg || (kind == "s3" && has_bucket(address))
}

/// Returns true if the files of a DuckLake are in a bucket.
fn has_bucket(address: &CatalogAddress) -> bool {
    matches!(address, CatalogAddress::DuckLake { data, .. } if data.contains("://"))
}

fn secret_sql(name: &str, kind: &str, values: &[(&'static str, String)]) -> String {
    let options: Vec<String> = values.iter().map(|(name, value)| format!("{name} {}", quote_text(value))).collect();
    format!("CREATE OR REPLACE SECRET {name} (TYPE {kind}, {})", options.join(", "))
}
