//! Whose a state file is: of one service and environment (promise P10). One that knows nothing of its service yet
//! becomes whoever's opens it: a mistyped address binds nothing.

use crate::model::is_same_service;

use super::{State, StateError, lock};

/// What would be known of a service, and is nothing worth keeping where no row was ever seen.
const KNOWLEDGE: [&str; 6] = ["coverage", "proofs", "extents", "scans", "destinations", "traits"];

/// What is bound, and what was named instead.
struct Difference {
    what: &'static str,
    found: String,
    wanted: String,
}

impl State {
    /// Remembers the service and the environment, or refuses others.
    pub(super) fn own(&mut self, base_url: &str, environment: &str) -> Result<(), StateError> {
        let Some(difference) = self.difference(base_url, environment)? else {
            return match (self.meta("base_url")?, self.meta("environment")?) {
                (Some(_), Some(_)) => Ok(()),
                _ => self.bind(base_url, environment),
            };
        };
        if !self.is_without_rows()? {
            return Err(self.other_service(difference));
        }
        let Difference { what, found, wanted } = difference;
        // Not while a run works on it.
        let Some(_lock) = lock::try_lock(&self.path)? else {
            return Err(StateError::Leased { path: self.path.clone(), holder: self.current_holder()? });
        };
        tracing::info!(found, wanted, "the state file holds no rows: it is bound to another {what} now");
        for table in KNOWLEDGE {
            self.connection.execute(&format!("DELETE FROM {table}"), []).map_err(self.failed("write"))?;
        }
        self.bind(base_url, environment)
    }

    /// Refuses to be read for another service or environment than it is bound to, if it knows rows.
    ///
    /// # Errors
    /// `OtherService`, or it cannot be read.
    pub fn check_owner(&self, base_url: &str, environment: &str) -> Result<(), StateError> {
        match self.difference(base_url, environment)? {
            Some(difference) if !self.is_without_rows()? => Err(self.other_service(difference)),
            _ => Ok(()),
        }
    }

    fn other_service(&self, Difference { what, found, wanted }: Difference) -> StateError {
        StateError::OtherService { path: self.path.clone(), what, found, wanted }
    }

    /// In what it differs from what it is bound to.
    fn difference(&self, base_url: &str, environment: &str) -> Result<Option<Difference>, StateError> {
        let (bound_url, bound_environment) = (self.meta("base_url")?, self.meta("environment")?);
        let differs = |what, found: String, wanted: &str| Some(Difference { what, found, wanted: wanted.to_owned() });
        Ok(match (bound_url, bound_environment) {
            (Some(found), _) if !is_same_service(&found, base_url) => differs("base_url", found, base_url),
            (_, Some(found)) if found != environment => differs("environment", found, environment),
            _ => None,
        })
    }

    /// Whether it is bound to this service and environment.
    pub fn is_of(&self, base_url: &str, environment: &str) -> Result<bool, StateError> {
        let is_service = self.meta("base_url")?.is_some_and(|found| is_same_service(&found, base_url));
        Ok(is_service && self.meta("environment")?.as_deref() == Some(environment))
    }

    /// Writes whose it is, whatever it was.
    pub fn bind(&self, base_url: &str, environment: &str) -> Result<(), StateError> {
        let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('base_url', ?1), ('environment', ?2)";
        self.connection.execute(sql, (base_url, environment)).map_err(self.failed("write"))?;
        Ok(())
    }

    /// Whether nothing that the service has was ever seen by it.
    fn is_without_rows(&self) -> Result<bool, StateError> {
        let sql = "SELECT NOT EXISTS (SELECT 1 FROM coverage WHERE rows_held > 0)
                      AND NOT EXISTS (SELECT 1 FROM scans WHERE rows_read > 0)
                      AND NOT EXISTS (SELECT 1 FROM people) AND NOT EXISTS (SELECT 1 FROM pushes)";
        self.connection.query_row(sql, [], |row| row.get(0)).map_err(self.failed("read"))
    }
}
