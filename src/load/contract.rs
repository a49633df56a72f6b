//! Finds the contract of a table by its name. A contract defines the columns of a table; see `schemas/`.

use super::LoadError;
use crate::schema::{self, Table};

/// Returns the contract of a table.
///
/// # Errors
/// `Bug` if there is no contract of this name.
pub(in crate::load) fn contract(name: &str) -> Result<&'static Table, LoadError> {
    schema::table(name).ok_or_else(|| LoadError::Bug(format!("no contract is called {name}")))
}
