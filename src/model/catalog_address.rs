//! Addresses of warehouses in a catalog that DuckDB attaches: DuckLake, PostgreSQL and Iceberg.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use url::{Url, form_urlencoded};

/// Schema of the tables if the address names none.
const SCHEMA: &str = "studysync";
/// Bytes of the longest name in PostgreSQL, which cuts longer ones.
const POSTGRES_NAME_MAX: usize = 63;

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
            let (path, data) = file_and_data(text)?;
            let beside = |data: &str| match data.contains("://") {
                true => data.to_owned(),
                false => Path::new(path).with_file_name(data).to_string_lossy().into_owned(),
            };
            let data = data.map_or_else(|| format!("{path}.files"), beside);
            return Ok(Self::DuckLake { catalog: LakeCatalog::File(path.into()), data });
        }
        let mut parameters = Parameters::of(text)?;
        let data = parameters
            .take("data")
            .ok_or("the address names no folder for files: add ?data=FOLDER or &data=s3://BUCKET/FOLDER")?;
        Ok(Self::DuckLake { catalog: LakeCatalog::Postgres(parameters.postgres()?), data })
    }

    /// Returns the address of a DuckLake with `resolve` applied to its paths. A folder beside a catalog file stays
    /// relative to it.
    ///
    /// # Errors
    /// What is wrong with the text, or an error of `resolve`.
    pub fn resolve_ducklake(text: &str, resolve: impl Fn(&str) -> Result<PathBuf, String>) -> Result<String, String> {
        let resolve = |path: &str| resolve(path).map(|path| path.to_string_lossy().into_owned());
        if !is_postgres(text) {
            let (path, data) = file_and_data(text)?;
            let path = resolve(path)?;
            return Ok(match data {
                Some(data) if data.starts_with('~') => format!("{path}?data={}", resolve(data)?),
                Some(data) => format!("{path}?data={data}"),
                None => path,
            });
        }
        let Parameters { mut url, left } = Parameters::of(text)?;
        let resolved = left.into_iter().map(|(name, value)| match name == "data" && !value.contains("://") {
            true => Ok((name, resolve(&value)?)),
            false => Ok((name, value)),
        });
        let resolved: Vec<_> = resolved.collect::<Result<_, String>>()?;
        set_parameters(&mut url, resolved);
        Ok(url.into())
    }

    /// Parses the address of a PostgreSQL warehouse.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn postgres(text: &str) -> Result<Self, String> {
        if !is_postgres(text) {
            return Err("the address does not begin with postgres://".to_owned());
        }
        Parameters::of(text)?.postgres().map(Self::Postgres)
    }

    /// Parses the address of an Iceberg warehouse.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn iceberg(text: &str) -> Result<Self, String> {
        let mut parameters = Parameters::of(text)?;
        let warehouse = parameters.take("warehouse").ok_or("the address names no ?warehouse=NAME")?;
        let namespace = parameters.take("namespace").unwrap_or_else(|| SCHEMA.to_owned());
        let catalog = parameters.end()?;
        if !matches!(catalog.scheme(), "http" | "https") {
            return Err("the address does not begin with https:// or http://".to_owned());
        }
        if !catalog.username().is_empty() {
            return Err("a user or key does not belong into the address: it comes from the environment".to_owned());
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
        let host = self.url.host_str().unwrap_or_default();
        let parts = [
            ("host", decoded(host.trim_start_matches('[').trim_end_matches(']'))),
            ("port", self.url.port().map(|port| port.to_string()).unwrap_or_default()),
            ("user", decoded(self.url.username())),
            ("dbname", decoded(self.url.path().trim_matches('/'))),
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
        // Another user reaches the same tables.
        let mut url = self.url.clone();
        url.set_username("").ok();
        write!(f, "{url}?schema={}", self.schema)
    }
}

fn is_postgres(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    ["postgres", "postgresql"].iter().any(|name| scheme.eq_ignore_ascii_case(name))
}

/// Splits `PATH?data=FOLDER`. A `?` within a path is part of it.
fn file_and_data(text: &str) -> Result<(&str, Option<&str>), String> {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    let parameters = text.rsplit_once('?').and_then(|(path, rest)| Some((path, rest.split_once('=')?)));
    match parameters.filter(|(_, (name, _))| is_name(name)) {
        None => Ok((text, None)),
        Some((path, ("data", data))) if !data.is_empty() && !data.contains('&') => Ok((path, Some(data))),
        Some((_, ("data", _))) => Err("the address has more than ?data=FOLDER".to_owned()),
        Some((_, (name, _))) => Err(unknown_parameter(name)),
    }
}

fn unknown_parameter(name: &str) -> String {
    format!("the address has the unknown parameter {name}")
}

/// Decodes `%20` and the like. A `+` is a plus.
fn decoded(text: &str) -> String {
    let value = format!("={}", text.replace('&', "%26"));
    pairs(&value).pop().map(|(_, value)| value).unwrap_or_default()
}

fn pairs(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.replace('+', "%2B").as_bytes()).into_owned().collect()
}

/// Sets the parameters of an address, in the form that this module reads.
pub fn set_parameters(url: &mut Url, parameters: impl IntoIterator<Item = (String, String)>) {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
    url.set_query(Some(&query.replace('+', "%20")));
}

/// An address, and its parameters that were not taken yet.
///
/// No error has the text of the address: a password may be in a wrong place of it.
struct Parameters {
    url: Url,
    left: Vec<(String, String)>,
}

impl Parameters {
    fn of(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text).map_err(|error| format!("it is no address: {error}"))?;
        if url.password().is_some() {
            return Err("a password does not belong into the address: it comes from the environment".to_owned());
        }
        if url.fragment().is_some() {
            return Err("the address has a #, which is written as %23".to_owned());
        }
        let left = pairs(url.query().unwrap_or_default());
        url.set_query(None);
        Ok(Self { url, left })
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.left.iter().position(|(key, _)| key == name)?;
        Some(self.left.remove(at).1).filter(|value| !value.is_empty())
    }

    fn postgres(mut self) -> Result<PostgresAddress, String> {
        let schema = self.take("schema").unwrap_or_else(|| SCHEMA.to_owned());
        if schema.len() > POSTGRES_NAME_MAX {
            return Err(format!("the schema is longer than {POSTGRES_NAME_MAX} bytes, at which PostgreSQL cuts names"));
        }
        if schema.starts_with("pg_") || matches!(schema.as_str(), "main" | "information_schema") {
            return Err(format!("the schema {schema} belongs to PostgreSQL or DuckDB: name another one"));
        }
        let url = self.end()?;
        match url.path().trim_matches('/') {
            "" => Err("the address names no database: postgres://HOST/DATABASE".to_owned()),
            _ => Ok(PostgresAddress { url, schema }),
        }
    }

    /// Returns the address without parameters.
    fn end(self) -> Result<Url, String> {
        match self.left.first() {
            Some((name, _)) => Err(unknown_parameter(name)),
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
        assert_eq!((postgres.schema(), postgres.to_string().as_str()), ("s", "postgres://host:5433/wh?schema=s"));
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
    fn parts_of_addresses_are_decoded() {
        for (text, expected) in [
            ("postgres://a%40b@host/d%2Fb", "host='host' user='a@b' dbname='d/b'"),
            ("POSTGRES://u@[::1]:5432/a+b", "host='::1' port='5432' user='u' dbname='a+b'"),
            ("postgresql://%2Fvar%2Frun/db", "host='/var/run' dbname='db'"),
            ("postgres:///db", "dbname='db'"),
        ] {
            let CatalogAddress::Postgres(address) = CatalogAddress::postgres(text).unwrap() else { panic!("{text}") };
            assert_eq!(address.connection(), expected, "{text}");
        }
        let lake = CatalogAddress::ducklake("postgres://host/db?data=/a+b%20c&schema=s%26").unwrap();
        let CatalogAddress::DuckLake { catalog: LakeCatalog::Postgres(address), data } = lake else { panic!() };
        assert_eq!((address.schema.as_str(), data.as_str()), ("s&", "/a+b c"));
    }

    #[test]
    fn paths_of_a_ducklake_are_resolved() {
        let resolve = |path: &str| match path.strip_prefix("~/") {
            Some(rest) => Ok(Path::new("/home/me").join(rest)),
            None => Ok(Path::new("/etc/a b+c?&#%d").join(path)),
        };
        for (text, catalog, data) in [
            ("w.ducklake", "/etc/a b+c?&#%d/w.ducklake", "/etc/a b+c?&#%d/w.ducklake.files"),
            ("w.ducklake?data=s3://b/f", "/etc/a b+c?&#%d/w.ducklake", "s3://b/f"),
            ("w.ducklake?data=files", "/etc/a b+c?&#%d/w.ducklake", "/etc/a b+c?&#%d/files"),
            ("~/w.ducklake?data=~/f", "/home/me/w.ducklake", "/home/me/f"),
            ("/w?x/y.ducklake", "/w?x/y.ducklake", "/w?x/y.ducklake.files"),
            ("postgres://h/d?data=files", "postgres://h/d?schema=studysync", "/etc/a b+c?&#%d/files"),
            ("postgres://h/d?schema=a%20b&data=s3://b/f", "postgres://h/d?schema=a b", "s3://b/f"),
        ] {
            let resolved = CatalogAddress::resolve_ducklake(text, resolve).unwrap();
            let address = CatalogAddress::ducklake(&resolved).unwrap();
            let CatalogAddress::DuckLake { data: found, .. } = &address else { panic!("{text}") };
            assert_eq!((address.to_string().as_str(), found.as_str()), (catalog, data), "{text}: {resolved}");
        }
    }

    #[test]
    fn wrong_addresses_name_what_is_wrong() {
        let refused = [
            (CatalogAddress::postgres("postgres://me:secret@host/wh"), "password"),
            (CatalogAddress::postgres("postgres://me:se/secret@host/wh"), "no address"),
            (CatalogAddress::postgres("postgres://host/wh?password=secret"), "unknown parameter password"),
            (CatalogAddress::postgres("postgres://host/wh#secret"), "%23"),
            (CatalogAddress::postgres("host=h password=secret"), "postgres://"),
            (CatalogAddress::postgres("postgres://host"), "no database"),
            (CatalogAddress::postgres(&format!("postgres://host/wh?schema={}", "s".repeat(64))), "63 bytes"),
            (CatalogAddress::postgres("postgres://host/wh?schema=pg_x"), "pg_x"),
            (CatalogAddress::postgres("postgres://host/wh?schema=main"), "main"),
            (CatalogAddress::ducklake("w.ducklake?schema=s"), "unknown parameter schema"),
            (CatalogAddress::ducklake("w.ducklake?data=x&schema=s"), "more than ?data="),
            (CatalogAddress::iceberg("https://secret@host?warehouse=w"), "does not belong"),
            (CatalogAddress::iceberg("https://host?warehouse=w&token=secret"), "unknown parameter token"),
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
