//! Contracts that this program cannot do without.

use super::LoadError;
use crate::schema::{self, Table};

/// The contract of such a table.
///
/// # Errors
/// `Bug` if there is no such table.
pub(in crate::load) fn contract(name: &str) -> Result<&'static Table, LoadError> {
    schema::table(name).ok_or_else(|| LoadError::Bug(format!("no contract is called {name}")))
}
