//! The inbox: stores webhook deliveries before they are answered, and until every warehouse has them.
//!
//! The inbox is a separate file, because `serve` writes it while a run has the state file open. Also, replacing a
//! damaged state file must not lose a delivery. Several processes may have the inbox open. The inbox does not parse
//! bodies, and does not decide when deliveries are applied.

use std::path::{Path, PathBuf};

use rusqlite::{OpenFlags, OptionalExtension, Row, Transaction, params};
use rusqlite_migration::M;

use crate::{
    files::with_suffix,
    model::{DAY_MS, Delivery, Drift, DriftEntry, MINUTE_MS, is_same_service},
};

use super::{
    StateError, create_folder_of,
    database::{Database, READ_ONLY},
    file_exists, lock,
};

const MIGRATIONS: &[M<'_>] =
    &[M::up(include_str!("../../state/inbox/0001_inbox.sql")), M::up(include_str!("../../state/inbox/0002_drift.sql"))];
/// How long the hash of a delivery is stored after the body was last received. After this time, a delivery of the same
/// body is no duplicate.
pub const DUPLICATES_KNOWN_MS: i64 = 30 * DAY_MS;
/// How long the same body without a time counts as a duplicate, if no other body about its subject came in between.
const UNDATED_DUPLICATE_MS_MAX: i64 = 10 * MINUTE_MS;

/// A delivery to store.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// When the delivery was received, by this machine, in epoch milliseconds.
    pub received_ms: i64,
    pub body_hash: u128,
    /// The object that a body without a time is about, such as a survey. The same body may be new later, because a
    /// survey can be paused twice. `None` if the body has a time.
    pub undated_subject: Option<String>,
    pub body: Vec<u8>,
}

/// The result of storing a delivery, durable in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryReceipt {
    Stored,
    /// An earlier delivery had the same body, and [`NewDelivery::undated_subject`] does not make this one new.
    Duplicate,
}

/// Deliveries that the warehouses do not have yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingDeliveries {
    /// Number of deliveries.
    pub deliveries: u64,
    /// Size of the bodies.
    pub bytes: u64,
    /// When the oldest delivery was received, in epoch milliseconds. `None` if no delivery is pending.
    pub oldest_ms: Option<i64>,
}

/// The last and the next run of `serve`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// The cron expression and its zone.
    pub expression: String,
    /// The latest scheduled time whose run has ended, in epoch milliseconds. `None` before the first run.
    pub done_tick_ms: Option<i64>,
    /// When the next run is scheduled, in epoch milliseconds.
    pub next_ms: Option<i64>,
    /// When the last run started, in epoch milliseconds.
    pub last_started_ms: Option<i64>,
    /// When the last run ended, in epoch milliseconds.
    pub last_finished_ms: Option<i64>,
    /// The outcome of the last run.
    pub last_outcome: Option<String>,
    /// The process that wrote this entry.
    pub pid: u32,
}

/// The inbox file.
#[derive(Debug)]
pub struct Inbox {
    database: Database,
}

impl Inbox {
    /// Returns the path of the inbox of a state file.
    pub fn path_of(state: &Path) -> PathBuf {
        with_suffix(state, ".inbox")
    }

    /// Opens the inbox of a state file for writing, and creates it if it is missing. The inbox belongs to one service
    /// and environment (promise P10).
    ///
    /// # Errors
    /// `OtherService` if the inbox has deliveries of another service or environment.
    pub fn open(state: &Path, base_url: &str, environment: &str) -> Result<Inbox, StateError> {
        let path = Inbox::path_of(state);
        create_folder_of(&path)?;
        let mut inbox = Inbox { database: Database::connect(&path, OpenFlags::default())? };
        inbox.database.make_durable()?;
        // The bytes of an acknowledged body must not stay in the file (promise P9).
        let secured = inbox.database.connection.pragma_update(None, "secure_delete", "ON");
        secured.map_err(inbox.database.failed("set up"))?;
        inbox.database.migrate(MIGRATIONS)?;
        inbox.claim(base_url, environment)?;
        Ok(inbox)
    }

    /// Takes the lock with which only one `serve` runs for a state file. Returns `None` while another process has it.
    pub fn lock(state: &Path) -> Result<Option<std::fs::File>, StateError> {
        Ok(lock::try_lock(&Inbox::path_of(state))?)
    }

    /// Returns true if the state file has an inbox.
    pub fn exists(state: &Path) -> Result<bool, StateError> {
        file_exists(&Inbox::path_of(state))
    }

    /// Opens the inbox of a state file for reading. Returns `None` if it is missing.
    pub fn open_read_only(state: &Path) -> Result<Option<Inbox>, StateError> {
        match Inbox::exists(state)? {
            true => Ok(Some(Inbox { database: Database::connect(&Inbox::path_of(state), READ_ONLY)? })),
            false => Ok(None),
        }
    }

    /// Binds the inbox to the service and environment. An inbox without deliveries may change its owner.
    ///
    /// # Errors
    /// `OtherService` if the inbox has deliveries of another service or environment.
    fn claim(&self, base_url: &str, environment: &str) -> Result<(), StateError> {
        let sql = "INSERT INTO meta (key, value) VALUES ('base_url', ?1), ('environment', ?2) ON CONFLICT DO NOTHING";
        self.database.execute(sql, (base_url, environment))?;
        let meta = |key: &str| -> Result<String, StateError> {
            self.database.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
        };
        let (found_url, found_environment) = (meta("base_url")?, meta("environment")?);
        let (what, found, wanted) = match () {
            () if !is_same_service(&found_url, base_url) => ("base_url", found_url, base_url),
            () if found_environment != environment => ("environment", found_environment, environment),
            () => return Ok(()),
        };
        match self.database.query_row("SELECT EXISTS (SELECT 1 FROM deliveries)", [], |row| row.get(0))? {
            true => {
                let path = self.path().to_owned();
                Err(StateError::OtherService { path, what, found, wanted: wanted.to_owned() })
            }
            false => self.bind(base_url, environment),
        }
    }

    /// Binds the inbox to this service and environment, even if it belongs to another one.
    pub fn bind(&self, base_url: &str, environment: &str) -> Result<(), StateError> {
        let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('base_url', ?1), ('environment', ?2)";
        self.database.execute(sql, (base_url, environment)).map(drop)
    }

    /// Stores deliveries in one transaction, which is durable when this function returns. Returns one receipt for each
    /// delivery, in order.
    pub fn store(&mut self, deliveries: &[NewDelivery]) -> Result<Vec<DeliveryReceipt>, StateError> {
        self.database.transact(|transaction| deliveries.iter().map(|new| store(transaction, new)).collect())
    }

    /// Fails if the file cannot be written. Writes and removes a value to find out, each in a durable transaction.
    pub fn check_writable(&self) -> Result<(), StateError> {
        for sql in [
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', hex(zeroblob(2048)))",
            "DELETE FROM meta WHERE key = 'probe'",
        ] {
            self.database.execute(sql, [])?;
        }
        Ok(())
    }

    /// Returns the oldest pending deliveries, in order: at most `rows_max`. The last one is that with which the bodies
    /// reach `bytes_max` bytes.
    pub fn pending(&self, rows_max: u32, bytes_max: usize) -> Result<Vec<Delivery>, StateError> {
        let sql = "SELECT id, received_ms, body FROM deliveries WHERE body IS NOT NULL ORDER BY id LIMIT ?1";
        let read = || -> rusqlite::Result<Vec<Delivery>> {
            let mut statement = self.database.connection.prepare_cached(sql)?;
            let mut rows = statement.query([rows_max])?;
            let (mut pending, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let delivery = Delivery { id: row.get(0)?, received_ms: row.get(1)?, body: row.get(2)? };
                bytes += delivery.body.len();
                pending.push(delivery);
                if bytes >= bytes_max {
                    break;
                }
            }
            Ok(pending)
        };
        read().map_err(self.database.failed("read"))
    }

    /// Counts the pending deliveries.
    pub fn count_pending(&self) -> Result<PendingDeliveries, StateError> {
        let sql =
            "SELECT count(*), coalesce(sum(body_bytes), 0), min(received_ms) FROM deliveries WHERE body IS NOT NULL";
        self.database.query_row(sql, [], |row| {
            let count = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
            Ok(PendingDeliveries { deliveries: count(0)?, bytes: count(1)?, oldest_ms: row.get(2)? })
        })
    }

    /// Removes the bodies of these deliveries, because every warehouse has them, and hashes older than
    /// [`DUPLICATES_KNOWN_MS`]. `deliveries` must be the oldest pending deliveries, in order.
    pub fn acknowledge(&self, deliveries: &[Delivery], now_ms: i64) -> Result<(), StateError> {
        let (Some(first), Some(last)) = (deliveries.first(), deliveries.last()) else { return Ok(()) };
        let sql = "UPDATE deliveries SET body = NULL WHERE id BETWEEN ?1 AND ?2 AND body IS NOT NULL";
        self.database.execute(sql, (first.id, last.id))?;
        let sql = "DELETE FROM deliveries WHERE last_received_ms < ?1 AND body IS NULL";
        self.database.execute(sql, [now_ms - DUPLICATES_KNOWN_MS]).map(drop)
    }

    /// Removes the body of each pending delivery for which `matches` returns true. Returns the number of removed
    /// bodies.
    pub fn discard(&self, matches: impl Fn(&[u8]) -> bool) -> Result<u64, StateError> {
        let sql = "SELECT id, body FROM deliveries WHERE body IS NOT NULL ORDER BY id";
        let ids = self.database.query_all(sql, [], |row| {
            let body: Vec<u8> = row.get(1)?;
            Ok(if matches(&body) { Some(row.get::<_, i64>(0)?) } else { None })
        })?;
        let mut discarded = 0;
        for id in ids.into_iter().flatten() {
            self.database.execute("UPDATE deliveries SET body = NULL WHERE id = ?1", [id])?;
            discarded += 1;
        }
        Ok(discarded)
    }

    /// Moves SQLite's log into the file and empties the log, so that no byte of a removed body stays in it. While a
    /// reader uses the log, it stays until a later call.
    pub fn empty_log(&self) -> Result<(), StateError> {
        let emptied = self.database.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        emptied.map_err(self.database.failed("empty the log of"))
    }

    /// Returns the service's id of the environment whose webhooks arrive here. Returns `None` before the first delivery
    /// with an id.
    pub fn environment_id(&self) -> Result<Option<String>, StateError> {
        let sql = "SELECT value FROM meta WHERE key = 'webhook_environment_id'";
        self.database.query_optional(sql, [], |row| row.get(0))
    }

    /// Stores the service's id of the environment, unless one is stored already.
    pub fn remember_environment_id(&self, id: &str) -> Result<(), StateError> {
        let sql = "INSERT INTO meta (key, value) VALUES ('webhook_environment_id', ?1) ON CONFLICT DO NOTHING";
        self.database.execute(sql, [id]).map(drop)
    }

    /// Adds to the stored drift of deliveries, which a run reports later.
    pub fn add_drift(&self, drift: &Drift) -> Result<(), StateError> {
        if drift.is_empty() {
            return Ok(());
        }
        let mut stored = self.drift()?;
        stored.merge(drift);
        let entries: Vec<&DriftEntry> = stored.entries().collect();
        // An entry has numbers, texts and names only, so that its JSON cannot fail.
        let text = serde_json::to_string(&entries).unwrap_or_default();
        self.database.execute("INSERT OR REPLACE INTO drift (id, entries) VALUES (1, ?1)", [text]).map(drop)
    }

    /// Returns the stored drift and deletes it.
    pub fn take_drift(&self) -> Result<Drift, StateError> {
        let drift = self.drift()?;
        if !drift.is_empty() {
            self.database.execute("DELETE FROM drift", [])?;
        }
        Ok(drift)
    }

    /// Edits the JSON text of the stored drift. `edit` returns the new text, or `None` for no change. Returns true if
    /// the text changed.
    pub fn edit_drift(&self, edit: impl FnOnce(&str) -> Option<String>) -> Result<bool, StateError> {
        let Some(edited) = self.drift_text()?.and_then(|text| edit(&text)) else { return Ok(false) };
        self.database.execute("UPDATE drift SET entries = ?1 WHERE id = 1", [edited]).map(|_| true)
    }

    /// Returns the stored drift. Returns empty drift if nothing is stored or the stored text cannot be read.
    fn drift(&self) -> Result<Drift, StateError> {
        let text = self.drift_text()?;
        let entries: Vec<DriftEntry> = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let mut drift = Drift::default();
        entries.into_iter().for_each(|entry| drift.add(entry));
        Ok(drift)
    }

    /// Returns the JSON text of the stored drift; `None` if nothing is stored.
    fn drift_text(&self) -> Result<Option<String>, StateError> {
        self.database.query_optional("SELECT entries FROM drift WHERE id = 1", [], |row| row.get(0))
    }

    /// Stores which warehouses the deliveries are for.
    pub fn set_destinations(&mut self, names: &[&str]) -> Result<(), StateError> {
        self.database.transact(|transaction| {
            transaction.execute("DELETE FROM destinations", [])?;
            for name in names {
                transaction.execute("INSERT INTO destinations (name) VALUES (?1)", [name])?;
            }
            Ok(())
        })
    }

    /// Returns the names of the warehouses that the deliveries are for.
    pub fn destinations(&self) -> Result<Vec<String>, StateError> {
        self.database.query_all("SELECT name FROM destinations ORDER BY name", [], |row| row.get(0))
    }

    /// Returns the schedule that `serve` stored last. Returns `None` if no schedule was stored.
    pub fn schedule(&self) -> Result<Option<ScheduleEntry>, StateError> {
        let sql = "SELECT expression, done_tick_ms, next_ms, last_started_ms, last_finished_ms, last_outcome, pid \
                   FROM schedule WHERE id = 1";
        self.database.query_optional(sql, [], |row: &Row<'_>| {
            Ok(ScheduleEntry {
                expression: row.get(0)?,
                done_tick_ms: row.get(1)?,
                next_ms: row.get(2)?,
                last_started_ms: row.get(3)?,
                last_finished_ms: row.get(4)?,
                last_outcome: row.get(5)?,
                pid: row.get(6)?,
            })
        })
    }

    pub fn store_schedule(&self, entry: &ScheduleEntry) -> Result<(), StateError> {
        let sql = "INSERT OR REPLACE INTO schedule (id, expression, done_tick_ms, next_ms, last_started_ms, \
                   last_finished_ms, last_outcome, pid) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let ScheduleEntry { expression, done_tick_ms, next_ms, last_started_ms, last_finished_ms, last_outcome, pid } =
            entry;
        let values = params![expression, done_tick_ms, next_ms, last_started_ms, last_finished_ms, last_outcome, pid];
        self.database.execute(sql, values).map(drop)
    }

    /// Returns why `serve` could not write its report; `None` if the last report was written.
    pub fn report_error(&self) -> Result<Option<String>, StateError> {
        self.database.query_optional("SELECT value FROM meta WHERE key = 'report_error'", [], |row| row.get(0))
    }

    /// Stores why `serve` could not write its report.
    pub fn store_report_error(&self, why: Option<&str>) -> Result<(), StateError> {
        let done = match why {
            Some(why) => self.database.execute("INSERT OR REPLACE INTO meta VALUES ('report_error', ?1)", [why]),
            None => self.database.execute("DELETE FROM meta WHERE key = 'report_error'", []),
        };
        done.map(drop)
    }

    pub fn path(&self) -> &Path {
        &self.database.path
    }
}

/// Stores a delivery, unless it is a duplicate, which is only counted. A delivery is a duplicate if an earlier one had
/// the same body; for a body without a time, [`is_undated_duplicate`] must also be true.
fn store(transaction: &Transaction<'_>, new: &NewDelivery) -> rusqlite::Result<DeliveryReceipt> {
    let hash = new.body_hash.to_be_bytes();
    let same_body: Option<(i64, u32, i64)> = transaction
        .prepare_cached(
            "SELECT id, occurrence, last_received_ms FROM deliveries WHERE body_hash = ?1 ORDER BY occurrence DESC LIMIT 1",
        )?
        .query_row([&hash[..]], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let occurrence = match same_body {
        None => 0,
        Some((id, occurrence, last_ms)) => {
            if new.undated_subject.is_none() || is_undated_duplicate(transaction, new, id, last_ms)? {
                transaction
                    .prepare_cached("UPDATE deliveries SET times = times + 1, last_received_ms = ?2 WHERE id = ?1")?
                    .execute((id, new.received_ms))?;
                return Ok(DeliveryReceipt::Duplicate);
            }
            occurrence + 1
        }
    };
    transaction
        .prepare_cached(
            "INSERT INTO deliveries (body_hash, occurrence, subject, received_ms, last_received_ms, body_bytes, body) \
             VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6)",
        )?
        .execute(params![
            &hash[..],
            occurrence,
            new.undated_subject,
            new.received_ms,
            new.body.len() as i64,
            new.body
        ])?;
    Ok(DeliveryReceipt::Stored)
}

/// Returns true if a body without a time is a duplicate of the delivery `id`, last received at `last_ms`. It is one if
/// no other body about the subject came later, and at most [`UNDATED_DUPLICATE_MS_MAX`] have passed.
fn is_undated_duplicate(
    transaction: &Transaction<'_>,
    new: &NewDelivery,
    id: i64,
    last_ms: i64,
) -> rusqlite::Result<bool> {
    let last: Option<i64> = transaction
        .prepare_cached("SELECT max(id) FROM deliveries WHERE subject = ?1")?
        .query_row([&new.undated_subject], |row| row.get(0))?;
    // A difference below zero is that of a clock that was set back, and says nothing.
    Ok(last == Some(id) && (0..=UNDATED_DUPLICATE_MS_MAX).contains(&(new.received_ms - last_ms)))
}

#[cfg(test)]
mod tests;
