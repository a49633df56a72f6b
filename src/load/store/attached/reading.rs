//! Attaches a catalog for readers.

use std::{collections::BTreeSet, path::PathBuf};

use ::duckdb::Connection;

use super::{
    Attachment, CATALOG, META_TABLE, attach,
    dialect::Dialect,
    tables::{readable_tables_in, require_creatable, texts},
};
use crate::{
    load::{
        LoadError,
        extension::{check_extension, new_engine},
    },
    model::{CatalogAddress, CatalogPlace},
    schema::{Table, quote_identifier},
};

/// The tables of a catalog that a reader has attached to its engine.
pub(in crate::load) struct AttachedTables {
    /// Name of the attached catalog in the engine.
    name: String,
    address: CatalogAddress,
    found: BTreeSet<String>,
    _attachment: Attachment,
}

impl AttachedTables {
    /// Attaches a catalog read-only as `name`.
    ///
    /// # Errors
    /// `Missing` if it has no warehouse; `Locked` while a run has the catalog file of a DuckLake open; `NoExtension`.
    pub fn attach(connection: &Connection, catalog: &CatalogPlace, name: String) -> Result<Self, LoadError> {
        let attachment = attach(connection, catalog, &name, true)?;
        let found = readable_tables_in(connection, &name, catalog.address.schema())?;
        if !found.contains(META_TABLE) {
            return Err(LoadError::Missing { path: catalog.address.to_string().into() });
        }
        Ok(Self { name, address: catalog.address.clone(), found, _attachment: attachment })
    }

    /// Returns the SQL name of a table; `None` if the catalog lacks it, since an earlier version wrote it.
    pub fn relation(&self, table: &Table) -> Option<String> {
        self.found.contains(&table.name).then(|| self.named(&table.name))
    }

    fn named(&self, table: &str) -> String {
        format!("{}.{}.{}", self.name, quote_identifier(self.address.schema()), quote_identifier(table))
    }

    /// Returns the folders with files of the tables, which the engine may read.
    pub fn folders(&self, connection: &Connection) -> Result<Vec<String>, LoadError> {
        match &self.address {
            CatalogAddress::DuckLake { data, .. } => Ok(vec![format!("{}/", data.trim_end_matches('/'))]),
            CatalogAddress::Postgres(_) => Ok(Vec::new()),
            CatalogAddress::Iceberg { .. } => {
                let sql = format!("SELECT manifest_path FROM iceberg_metadata({})", self.named(META_TABLE));
                let files = texts(connection, &sql)?;
                let bucket = |file: &String| {
                    let (scheme, rest) = file.split_once("://")?;
                    Some(format!("{scheme}://{}/", rest.split('/').next()?))
                };
                Ok(files.iter().filter_map(bucket).collect::<BTreeSet<_>>().into_iter().collect())
            }
        }
    }
}

/// Returns true if a catalog has a warehouse.
///
/// # Errors
/// `NotOurs` or `Unsupported` if it has none, and none can be created.
pub(in crate::load) fn exists(catalog: &CatalogPlace) -> Result<bool, LoadError> {
    let (connection, address) = (new_engine()?, &catalog.address);
    let _attachment = attach(&connection, catalog, CATALOG, true)?;
    let found = readable_tables_in(&connection, CATALOG, address.schema())?;
    let exists = found.contains(META_TABLE);
    if !exists {
        require_creatable(&connection, address, &found)?;
    }
    Ok(exists)
}

/// Loads the extensions of a catalog into a new engine, which checks their version, platform and signature. Returns
/// their names and files.
///
/// # Errors
/// `NoExtension` for an extension that is not installed, or cannot be loaded.
pub(in crate::load) fn check_extensions(catalog: &CatalogPlace) -> Result<Vec<(&'static str, PathBuf)>, LoadError> {
    let connection = new_engine()?;
    Dialect::extensions_of(&catalog.address)
        .map(|name| Ok((name, check_extension(&connection, name, catalog.extension_directory.as_deref())?)))
        .collect()
}
