//! Contracts that this program cannot do without.

use super::LoadError;
use crate::schema::{self, Table};

/// The contract of such a table.
///
/// # Errors
/// `Contract` if there is no such table.
pub(in crate::load) fn contract(name: &str) -> Result<&'static Table, LoadError> {
    schema::table(name).ok_or_else(|| LoadError::Contract(format!("no contract is called {name}")))
}
