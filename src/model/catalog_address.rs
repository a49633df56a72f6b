//! Addresses of warehouses in a catalog that DuckDB attaches: DuckLake, PostgreSQL and Iceberg.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use url::Url;

/// Schema of the tables if the address names none.
const SCHEMA: &str = "studysync";

/// Where the tables of an attached catalog are. It has no password and no key: these come from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogAddress {
    /// A DuckLake: `PATH` of a catalog file, or `postgres://host/database?schema=NAME`, and the folder `data` of its
    /// files.
    DuckLake { catalog: LakeCatalog, data: String },
    /// A schema of a PostgreSQL database: `postgres://[user@]host[:port]/database[?schema=NAME]`.
    Postgres(PostgresAddress),
    /// A namespace of an Iceberg REST catalog: `https://host[:port][/path]?warehouse=NAME[&namespace=NAME]`.
    Iceberg { catalog: Url, warehouse: String, namespace: String },
}

/// A catalog, and what is needed to attach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogPlace {
    pub address: CatalogAddress,
    pub keys: CatalogKeys,
    /// DuckDB's folder of extensions; `None` for its default.
    pub extension_directory: Option<PathBuf>,
}

/// Keys of an Iceberg catalog and of the bucket with the files of a catalog.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CatalogKeys {
    /// Parameters of DuckDB's secret of the type Iceberg, by name; empty for a catalog without authorization.
    pub iceberg: Vec<(&'static str, String)>,
    /// Parameters of DuckDB's secret of the type S3, by name.
    pub s3: Vec<(&'static str, String)>,
}

impl CatalogKeys {
    /// Returns the text with `***` in place of each key.
    pub fn hidden_in(&self, text: &str) -> String {
        let is_secret = |name: &str| name.contains("SECRET") || name.contains("TOKEN");
        let keys = self.iceberg.iter().chain(&self.s3).filter(|(name, key)| is_secret(name) && !key.is_empty());
        keys.fold(text.to_owned(), |text, (_, key)| text.replace(key.as_str(), "***"))
    }
}

impl fmt::Debug for CatalogKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CatalogKeys(..)")
    }
}

/// The snapshots that a catalog keeps: states of its tables that readers can still ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Snapshots {
    /// Number of snapshots, at least one.
    pub count: i64,
    /// When the oldest one was made, in epoch milliseconds.
    pub oldest_ms: i64,
}

/// Where a DuckLake keeps its list of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LakeCatalog {
    File(PathBuf),
    Postgres(PostgresAddress),
}

/// A schema of a PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresAddress {
    /// The address without parameters.
    url: Url,
    pub schema: String,
}

impl CatalogAddress {
    /// Parses the address of a DuckLake. Without `data`, the files are in the folder `PATH.files`. A relative `data`
    /// beside a catalog file is relative to the folder of this file.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn ducklake(text: &str) -> Result<Self, String> {
        if !is_postgres(text) {
            let (path, data) = text.split_once("?data=").map_or((text, None), |(path, data)| (path, Some(data)));
            let beside = |data: &str| match data.contains("://") {
                true => data.to_owned(),
                false => Path::new(path).with_file_name(data).to_string_lossy().into_owned(),
            };
            let data = data.map_or_else(|| format!("{path}.files"), beside);
            return Ok(Self::DuckLake { catalog: LakeCatalog::File(path.into()), data });
        }
        let mut parameters = Parameters::of(text)?;
        let data = parameters.take("data").ok_or_else(|| {
            format!("'{text}' names no folder for files: add ?data=FOLDER or &data=s3://BUCKET/FOLDER")
        })?;
        Ok(Self::DuckLake { catalog: LakeCatalog::Postgres(parameters.postgres()?), data })
    }

    /// Parses the address of a PostgreSQL warehouse.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn postgres(text: &str) -> Result<Self, String> {
        if !is_postgres(text) {
            return Err(format!("'{text}' does not begin with postgres://"));
        }
        Parameters::of(text)?.postgres().map(Self::Postgres)
    }

    /// Parses the address of an Iceberg warehouse.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn iceberg(text: &str) -> Result<Self, String> {
        let mut parameters = Parameters::of(text)?;
        let warehouse = parameters.take("warehouse").ok_or_else(|| format!("'{text}' names no ?warehouse=NAME"))?;
        let namespace = parameters.take("namespace").unwrap_or_else(|| SCHEMA.to_owned());
        let catalog = parameters.end()?;
        if !matches!(catalog.scheme(), "http" | "https") {
            return Err(format!("'{text}' does not begin with https:// or http://"));
        }
        Ok(Self::Iceberg { catalog, warehouse, namespace })
    }

    /// Returns the schema of the tables within the catalog.
    pub fn schema(&self) -> &str {
        match self {
            Self::DuckLake { .. } => "main",
            Self::Postgres(address) => &address.schema,
            Self::Iceberg { namespace, .. } => namespace,
        }
    }
}

impl PostgresAddress {
    /// Returns the connection for libpq, which takes what is missing from its own variables and files.
    pub fn connection(&self) -> String {
        let value = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
        let parts = [
            ("host", self.url.host_str().unwrap_or_default().to_owned()),
            ("port", self.url.port().map(|port| port.to_string()).unwrap_or_default()),
            ("user", self.url.username().to_owned()),
            ("dbname", self.url.path().trim_matches('/').to_owned()),
        ];
        let parts = parts.iter().filter(|(_, text)| !text.is_empty());
        parts.map(|(name, text)| format!("{name}={}", value(text))).collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for CatalogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuckLake { catalog: LakeCatalog::File(path), .. } => path.display().fmt(f),
            Self::DuckLake { catalog: LakeCatalog::Postgres(address), .. } | Self::Postgres(address) => address.fmt(f),
            Self::Iceberg { catalog, warehouse, namespace } => {
                write!(f, "{catalog}?warehouse={warehouse}&namespace={namespace}")
            }
        }
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}?schema={}", self.url, self.schema)
    }
}

fn is_postgres(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// An address, and its parameters that were not taken yet.
struct Parameters<'t> {
    text: &'t str,
    url: Url,
    left: Vec<(String, String)>,
}

impl<'t> Parameters<'t> {
    fn of(text: &'t str) -> Result<Self, String> {
        let mut url = Url::parse(text).map_err(|error| format!("'{text}' is no address: {error}"))?;
        if url.password().is_some() {
            return Err("a password does not belong into the address: it comes from the environment".to_owned());
        }
        let left = url.query_pairs().into_owned().collect();
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self { text, url, left })
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.left.iter().position(|(key, _)| key == name)?;
        Some(self.left.remove(at).1).filter(|value| !value.is_empty())
    }

    fn postgres(mut self) -> Result<PostgresAddress, String> {
        let schema = self.take("schema").unwrap_or_else(|| SCHEMA.to_owned());
        let text = self.text;
        let url = self.end()?;
        match url.path().trim_matches('/') {
            "" => Err(format!("'{text}' names no database: postgres://HOST/DATABASE")),
            _ => Ok(PostgresAddress { url, schema }),
        }
    }

    /// Returns the address without parameters.
    fn end(self) -> Result<Url, String> {
        match self.left.first() {
            Some((name, _)) => Err(format!("'{}' has the unknown parameter {name}", self.text)),
            None => Ok(self.url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_catalogs_are_parsed() {
        let postgres = CatalogAddress::postgres("postgres://me@host:5433/wh?schema=s").unwrap();
        assert_eq!((postgres.schema(), postgres.to_string().as_str()), ("s", "postgres://me@host:5433/wh?schema=s"));
        let CatalogAddress::Postgres(address) = postgres else { panic!("{postgres}") };
        assert_eq!(address.connection(), "host='host' port='5433' user='me' dbname='wh'");
        let lake = CatalogAddress::ducklake("/data/w.ducklake").unwrap();
        assert!(matches!(&lake, CatalogAddress::DuckLake { data, .. } if data == "/data/w.ducklake.files"), "{lake}");
        let lake = CatalogAddress::ducklake("postgres://host/lakes?data=s3://bucket/lake&schema=s").unwrap();
        assert_eq!((lake.schema(), lake.to_string().as_str()), ("main", "postgres://host/lakes?schema=s"));
        let iceberg = CatalogAddress::iceberg("http://host:8181/?warehouse=w").unwrap();
        assert_eq!(iceberg.to_string(), "http://host:8181/?warehouse=w&namespace=studysync");
    }

    #[test]
    fn wrong_addresses_name_what_is_wrong() {
        let refused = [
            (CatalogAddress::postgres("postgres://me:secret@host/wh"), "password"),
            (CatalogAddress::postgres("postgres://host"), "no database"),
            (CatalogAddress::postgres("postgres://host/wh?sslmode=off"), "unknown parameter sslmode"),
            (CatalogAddress::postgres("mysql://host/wh"), "postgres://"),
            (CatalogAddress::ducklake("postgres://host/wh"), "names no folder"),
            (CatalogAddress::iceberg("http://host"), "names no ?warehouse=NAME"),
            (CatalogAddress::iceberg("ftp://host?warehouse=w"), "https://"),
        ];
        for (address, expected) in refused {
            let problem = address.unwrap_err();
            assert!(problem.contains(expected) && !problem.contains("secret"), "{problem}");
        }
    }
}
