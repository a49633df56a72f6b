//! Warehouses in catalogs: the value of `[warehouse] iceberg`, and keys from the environment.

use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    declare::{PREFIX, Value, ValueType},
    environment::variable,
    error::{ConfigError, invalid},
};
use crate::model::{CatalogAddress, CatalogKeys, WarehouseKind, set_parameters};

/// The address of an Iceberg warehouse, which the file may have as a table.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "toml::Value", into = "String")]
pub(super) struct IcebergValue(pub String);

/// The form as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IcebergTable {
    catalog: String,
    warehouse: String,
    namespace: Option<String>,
}

impl TryFrom<toml::Value> for IcebergValue {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let table = match value {
            toml::Value::String(address) => return Ok(Self(address)),
            toml::Value::Table(table) => {
                IcebergTable::deserialize(table).map_err(|error| error.message().to_owned())?
            }
            _ => return Err("iceberg is an address, or a table with catalog, warehouse and namespace".to_owned()),
        };
        let IcebergTable { catalog, warehouse, namespace } = table;
        let mut url = Url::parse(&catalog).map_err(|error| format!("catalog: it is no address: {error}"))?;
        if url.query().is_some() {
            return Err("catalog: the address has parameters: warehouse and namespace are keys of the table".to_owned());
        }
        let names = [Some(("warehouse", warehouse)), namespace.map(|namespace| ("namespace", namespace))];
        set_parameters(&mut url, names.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)));
        Ok(Self(url.into()))
    }
}

impl From<IcebergValue> for String {
    fn from(value: IcebergValue) -> String {
        value.0
    }
}

impl Value for IcebergValue {
    fn value_type() -> ValueType {
        ValueType::Text
    }
}

/// Parses the address of a warehouse of this kind; `None` if this kind is no catalog.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn address(kind: WarehouseKind, text: &str) -> Option<Result<CatalogAddress, String>> {
    match kind {
        WarehouseKind::DuckDb | WarehouseKind::Parquet => None,
        WarehouseKind::DuckLake => Some(CatalogAddress::ducklake(text)),
        WarehouseKind::Postgres => Some(CatalogAddress::postgres(text)),
        WarehouseKind::Iceberg => Some(CatalogAddress::iceberg(text)),
    }
}

/// Reads the keys of a catalog and of the bucket with its files from the environment.
///
/// # Errors
/// A variable whose value has not the documented form.
pub(super) fn keys(address: &CatalogAddress) -> Result<CatalogKeys, ConfigError> {
    Ok(CatalogKeys { iceberg: iceberg_keys(address)?, s3: s3_keys() })
}

fn set(name: &str) -> Option<String> {
    variable(name).filter(|value| !value.trim().is_empty())
}

fn iceberg_keys(address: &CatalogAddress) -> Result<Vec<(&'static str, String)>, ConfigError> {
    let CatalogAddress::Iceberg { catalog, .. } = address else { return Ok(Vec::new()) };
    let [credential, token, server] =
        ["ICEBERG_CREDENTIAL", "ICEBERG_TOKEN", "ICEBERG_OAUTH_URL"].map(|name| format!("{PREFIX}{name}"));
    if let Some(token) = set(&token) {
        return Ok(vec![("TOKEN", token)]);
    }
    let Some(client) = set(&credential) else { return Ok(Vec::new()) };
    let Some((id, secret)) = client.split_once(':') else {
        return Err(invalid(credential, "it is the client's id and its secret with a colon between them"));
    };
    let default = || format!("{}/v1/oauth/tokens", catalog.as_str().trim_end_matches('/'));
    let server = set(&server).unwrap_or_else(default);
    Ok(vec![("CLIENT_ID", id.to_owned()), ("CLIENT_SECRET", secret.to_owned()), ("OAUTH2_SERVER_URI", server)])
}

/// Returns the parameters of DuckDB's secret for a bucket, from the variables of AWS; none without a key, since most
/// Iceberg catalogs give keys to their clients.
fn s3_keys() -> Vec<(&'static str, String)> {
    let (Some(id), Some(secret)) = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) else { return Vec::new() };
    let region = set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION")).unwrap_or_else(|| "us-east-1".to_owned());
    let mut keys = vec![("KEY_ID", id), ("SECRET", secret), ("REGION", region)];
    keys.extend(set("AWS_SESSION_TOKEN").map(|token| ("SESSION_TOKEN", token)));
    if let Some(endpoint) = set("AWS_ENDPOINT_URL_S3").or_else(|| set("AWS_ENDPOINT_URL")) {
        let has_tls = !endpoint.starts_with("http://");
        let host = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, host)| host).trim_end_matches('/');
        keys.extend([
            ("ENDPOINT", host.to_owned()),
            ("USE_SSL", has_tls.to_string()),
            ("URL_STYLE", "path".to_owned()),
        ]);
    }
    keys
}
