//! The owner of a state file: one service and environment (promise P10). A file without rows of the service may change
//! its owner, so that a first run with a mistyped address does no harm.

use crate::model::is_same_service;

use super::{State, StateError, lock};

/// The tables with data about a service. A change of the owner empties these tables.
const SERVICE_TABLES: [&str; 6] = ["coverage", "proofs", "extents", "scans", "destinations", "traits"];

/// The difference between the owner of the file and the service and environment of the run.
struct OwnerMismatch {
    /// `base_url` or `environment`.
    what: &'static str,
    found: String,
    wanted: String,
}

impl State {
    /// Binds the file to the service and environment. A file without rows of another owner changes its owner.
    ///
    /// # Errors
    /// `OtherService` if the file has rows of another service or environment. `Leased` if the owner would have to
    /// change while another run uses the file.
    pub(super) fn claim(&mut self, base_url: &str, environment: &str) -> Result<(), StateError> {
        let Some(mismatch) = self.owner_mismatch(base_url, environment)? else {
            return match (self.meta("base_url")?, self.meta("environment")?) {
                (Some(_), Some(_)) => Ok(()),
                _ => self.bind(base_url, environment),
            };
        };
        if self.has_rows()? {
            return Err(self.other_service(mismatch));
        }
        let OwnerMismatch { what, found, wanted } = mismatch;
        // The lock keeps other runs from using the file meanwhile.
        let Some(_lock) = lock::try_lock(self.path())? else {
            return Err(StateError::Leased { path: self.path().to_owned(), holder: self.current_holder()? });
        };
        tracing::info!(found, wanted, "the state file holds no rows: it is bound to another {what} now");
        for table in SERVICE_TABLES {
            self.database.execute(&format!("DELETE FROM {table}"), [])?;
        }
        self.bind(base_url, environment)
    }

    /// Checks that the file belongs to the service and environment, or has no rows.
    ///
    /// # Errors
    /// `OtherService` if the file has rows of another service or environment.
    pub fn check_owner(&self, base_url: &str, environment: &str) -> Result<(), StateError> {
        match self.owner_mismatch(base_url, environment)? {
            Some(mismatch) if self.has_rows()? => Err(self.other_service(mismatch)),
            _ => Ok(()),
        }
    }

    fn other_service(&self, OwnerMismatch { what, found, wanted }: OwnerMismatch) -> StateError {
        StateError::OtherService { path: self.path().to_owned(), what, found, wanted }
    }

    /// Returns how the owner of the file differs from this service and environment. Returns `None` if it does not
    /// differ, or the file has no owner.
    fn owner_mismatch(&self, base_url: &str, environment: &str) -> Result<Option<OwnerMismatch>, StateError> {
        let mismatch = |what, found: String, wanted: &str| OwnerMismatch { what, found, wanted: wanted.to_owned() };
        Ok(match (self.meta("base_url")?, self.meta("environment")?) {
            (Some(found), _) if !is_same_service(&found, base_url) => Some(mismatch("base_url", found, base_url)),
            (_, Some(found)) if found != environment => Some(mismatch("environment", found, environment)),
            _ => None,
        })
    }

    /// Returns true if the file is bound to this service and environment.
    pub fn belongs_to(&self, base_url: &str, environment: &str) -> Result<bool, StateError> {
        let is_service = self.meta("base_url")?.is_some_and(|found| is_same_service(&found, base_url));
        Ok(is_service && self.meta("environment")?.as_deref() == Some(environment))
    }

    /// Binds the file to this service and environment, even if it belongs to another one.
    pub fn bind(&self, base_url: &str, environment: &str) -> Result<(), StateError> {
        let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('base_url', ?1), ('environment', ?2)";
        self.database.execute(sql, (base_url, environment)).map(drop)
    }

    /// Returns true if any scan read a row, any user was requested, or any row was sent to the service.
    fn has_rows(&self) -> Result<bool, StateError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM coverage WHERE rows_held > 0)
                       OR EXISTS (SELECT 1 FROM scans WHERE rows_read > 0)
                       OR EXISTS (SELECT 1 FROM people) OR EXISTS (SELECT 1 FROM pushes)";
        self.database.query_row(sql, [], |row| row.get(0))
    }
}
