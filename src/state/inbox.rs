//! The inbox: deliveries of webhooks, durable from before they are answered until every warehouse has them.
//!
//! A file of its own beside the checkpoints, because it is written while a run of any process holds those, and because
//! a damaged checkpoint file is begun anew, which nothing here may be. Several processes may have it open. It knows
//! nothing of what is in a body, and decides nothing about when to apply or to run.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};
use rusqlite_migration::{M, Migrations};

use crate::model::{DAY_MS, Delivery, Drift, DriftEntry, MINUTE_MS, is_same_service};

use super::StateError;

const MIGRATIONS: &[M<'_>] =
    &[M::up(include_str!("../../state/inbox/0001_inbox.sql")), M::up(include_str!("../../state/inbox/0002_drift.sql"))];
/// How long the connections to the file wait for each other.
const BUSY_WAIT: std::time::Duration = std::time::Duration::from_secs(10);
/// How long the hash of a delivery is remembered, and so how late a repeat of it is known.
pub const REPEATS_KNOWN_MS: i64 = 30 * DAY_MS;
/// Within this time the same text about the same thing is a repeat, although it tells no time.
pub const TIMELESS_REPEAT_MS: i64 = 10 * MINUTE_MS;

/// A delivery that is to be stored.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// By this machine, epoch milliseconds.
    pub received_ms: i64,
    pub body_hash: u128,
    /// What a body is about that tells no time; then the same bytes may be told again and mean something new.
    pub timeless_subject: Option<String>,
    pub body: Vec<u8>,
}

/// What became of a delivery. Either way it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is new.
    Stored,
    /// It was told before.
    Repeat,
}

/// What waits for the warehouses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub deliveries: u64,
    pub bytes: u64,
    /// When the oldest was received, epoch milliseconds.
    pub oldest_ms: Option<i64>,
}

/// What the scheduler did and will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// The cron expression and its zone.
    pub expression: String,
    /// The last moment of the schedule whose run came to its end, epoch milliseconds.
    pub done_tick_ms: Option<i64>,
    pub next_ms: Option<i64>,
    pub last_started_ms: Option<i64>,
    pub last_finished_ms: Option<i64>,
    pub last_outcome: Option<String>,
    /// Of the process that wrote this.
    pub pid: u32,
}

/// The inbox file.
#[derive(Debug)]
pub struct Inbox {
    connection: Connection,
    path: PathBuf,
}

impl Inbox {
    /// Where the inbox of a state file is.
    pub fn path_of(state: &Path) -> PathBuf {
        let mut name = state.as_os_str().to_owned();
        name.push(".inbox");
        PathBuf::from(name)
    }

    /// Opens the inbox of a state file for writing, and makes it if it is missing. It remembers the service and
    /// environment that it was made for and refuses others (promise P10).
    pub fn open(state: &Path, base_url: &str, environment: &str) -> Result<Inbox, StateError> {
        let path = Inbox::path_of(state);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            crate::files::create_folders(folder)
                .map_err(|source| StateError::Folder { path: folder.to_owned(), source })?;
        }
        let mut inbox = Inbox::connect(path, OpenFlags::default())?;
        let set = |name, value: &str| inbox.connection.pragma_update(None, name, value).map_err(inbox.failed("set up"));
        set("journal_mode", "WAL")?;
        set("synchronous", "FULL")?;
        // A body that every warehouse has is to leave no bytes behind (promise P9).
        set("secure_delete", "ON")?;
        inbox.migrate()?;
        inbox.own(base_url, environment)?;
        Ok(inbox)
    }

    /// The lock of the one `serve` at a state file, which goes with its process; `None` while another process has it.
    pub fn lock(state: &Path) -> Result<Option<std::fs::File>, StateError> {
        Ok(super::lock::try_lock(&Inbox::path_of(state))?)
    }

    /// Whether a state file has one.
    pub fn is_there(state: &Path) -> Result<bool, StateError> {
        super::is_there(&Inbox::path_of(state))
    }

    /// Opens it for reading; `None` when there is none.
    pub fn open_read_only(state: &Path) -> Result<Option<Inbox>, StateError> {
        let path = Inbox::path_of(state);
        match super::is_there(&path)? {
            true => Inbox::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX).map(Some),
            false => Ok(None),
        }
    }

    fn connect(path: PathBuf, flags: OpenFlags) -> Result<Inbox, StateError> {
        let connection =
            Connection::open_with_flags(&path, flags).map_err(|source| StateError::sqlite("open", &path, source))?;
        let inbox = Inbox { connection, path };
        inbox.connection.busy_timeout(BUSY_WAIT).map_err(inbox.failed("set up"))?;
        Ok(inbox)
    }

    fn migrate(&mut self) -> Result<(), StateError> {
        let path = self.path.clone();
        Migrations::from_slice(MIGRATIONS).to_latest(&mut self.connection).map_err(|error| match error {
            rusqlite_migration::Error::MigrationDefinition(_) => StateError::Newer { path },
            rusqlite_migration::Error::RusqliteError { err, .. } => StateError::sqlite("prepare", &path, err),
            other => StateError::Migration { path, why: other.to_string() },
        })
    }

    fn own(&self, base_url: &str, environment: &str) -> Result<(), StateError> {
        let sql = "INSERT INTO meta (key, value) VALUES ('base_url', ?1), ('environment', ?2) ON CONFLICT DO NOTHING";
        self.connection.execute(sql, (base_url, environment)).map_err(self.failed("write"))?;
        let meta = |what: &str| {
            let sql = "SELECT value FROM meta WHERE key = ?1";
            self.connection.query_row(sql, [what], |row| row.get::<_, String>(0)).map_err(self.failed("read"))
        };
        let (found_url, found_environment) = (meta("base_url")?, meta("environment")?);
        let (what, found, wanted) = match () {
            () if !is_same_service(&found_url, base_url) => ("base_url", found_url, base_url),
            () if found_environment != environment => ("environment", found_environment, environment),
            () => return Ok(()),
        };
        let sql = "SELECT NOT EXISTS (SELECT 1 FROM deliveries)";
        match self.connection.query_row(sql, [], |row| row.get(0)).map_err(self.failed("read"))? {
            // Nothing was delivered yet: it is whoever's opens it.
            true => self.bind(base_url, environment),
            false => Err(StateError::OtherService { path: self.path.clone(), what, found, wanted: wanted.to_owned() }),
        }
    }

    /// Writes whose it is, whatever it was.
    pub fn bind(&self, base_url: &str, environment: &str) -> Result<(), StateError> {
        let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('base_url', ?1), ('environment', ?2)";
        self.connection.execute(sql, (base_url, environment)).map_err(self.failed("write"))?;
        Ok(())
    }

    /// Stores deliveries in one transaction, which is durable when this returns. One answer for each, in order.
    pub fn accept(&mut self, group: &[NewDelivery]) -> Result<Vec<Accepted>, StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::sqlite("write", &path, source)
        };
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(failed(&self.path))?;
        let mut accepted = Vec::with_capacity(group.len());
        for delivery in group {
            accepted.push(accept(&transaction, delivery).map_err(failed(&self.path))?);
        }
        transaction.commit().map_err(failed(&self.path))?;
        Ok(accepted)
    }

    /// Stores something and takes it back, each in a transaction that is durable when this returns.
    pub fn probe(&self) -> Result<(), StateError> {
        for sql in [
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', hex(zeroblob(2048)))",
            "DELETE FROM meta WHERE key = 'probe'",
        ] {
            self.connection.execute(sql, []).map_err(self.failed("write"))?;
        }
        Ok(())
    }

    /// The oldest deliveries that wait, in order: at most so many, and about so many bytes.
    pub fn waiting(&self, rows_max: u32, bytes_max: usize) -> Result<Vec<Delivery>, StateError> {
        let sql = "SELECT id, received_ms, body FROM deliveries WHERE body IS NOT NULL ORDER BY id LIMIT ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(self.failed("read"))?;
        let mut rows = statement.query([rows_max]).map_err(self.failed("read"))?;
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next().map_err(self.failed("read"))? {
            let read = || -> rusqlite::Result<Delivery> {
                Ok(Delivery { id: row.get(0)?, received_ms: row.get(1)?, body: row.get(2)? })
            };
            let delivery = read().map_err(self.failed("read"))?;
            bytes += delivery.body.len();
            waiting.push(delivery);
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(waiting)
    }

    /// How much waits.
    pub fn count_waiting(&self) -> Result<Waiting, StateError> {
        let sql =
            "SELECT count(*), coalesce(sum(body_bytes), 0), min(received_ms) FROM deliveries WHERE body IS NOT NULL";
        let read = |row: &rusqlite::Row<'_>| {
            let count = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
            Ok(Waiting { deliveries: count(0)?, bytes: count(1)?, oldest_ms: row.get(2)? })
        };
        self.connection.query_row(sql, [], read).map_err(self.failed("read"))
    }

    /// Every warehouse has these: their bodies go, and hashes that are older than [`REPEATS_KNOWN_MS`] go too.
    pub fn settle(&self, deliveries: &[Delivery], now_ms: i64) -> Result<(), StateError> {
        let (Some(first), Some(last)) = (deliveries.first(), deliveries.last()) else { return Ok(()) };
        let sql = "UPDATE deliveries SET body = NULL WHERE id BETWEEN ?1 AND ?2 AND body IS NOT NULL";
        self.connection.execute(sql, (first.id, last.id)).map_err(self.failed("write"))?;
        let sql = "DELETE FROM deliveries WHERE last_received_ms < ?1 AND body IS NULL";
        self.connection.execute(sql, [now_ms - REPEATS_KNOWN_MS]).map_err(self.failed("write"))?;
        Ok(())
    }

    /// The bodies go of those that wait and are such. Returns how many.
    pub fn discard(&self, is_such: impl Fn(&[u8]) -> bool) -> Result<u64, StateError> {
        let sql = "SELECT id, body FROM deliveries WHERE body IS NOT NULL ORDER BY id";
        let mut statement = self.connection.prepare(sql).map_err(self.failed("read"))?;
        let mut rows = statement.query([]).map_err(self.failed("read"))?;
        let mut found: Vec<i64> = Vec::new();
        while let Some(row) = rows.next().map_err(self.failed("read"))? {
            let body: Vec<u8> = row.get(1).map_err(self.failed("read"))?;
            if is_such(&body) {
                found.push(row.get(0).map_err(self.failed("read"))?);
            }
        }
        for id in &found {
            let sql = "UPDATE deliveries SET body = NULL WHERE id = ?1";
            self.connection.execute(sql, [id]).map_err(self.failed("write"))?;
        }
        Ok(found.len() as u64)
    }

    /// Folds the log into the file and empties it, so that nothing of a settled body is left in it. Readers may keep it
    /// from doing so: then the next time does.
    pub fn fold(&self) -> Result<(), StateError> {
        let done = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        done.map_err(self.failed("fold the log of"))
    }

    /// The environment of the service whose webhooks come here, as the service calls it; `None` until one told.
    pub fn environment_id(&self) -> Result<Option<String>, StateError> {
        let sql = "SELECT value FROM meta WHERE key = 'webhook_environment_id'";
        self.connection.query_row(sql, [], |row| row.get(0)).optional().map_err(self.failed("read"))
    }

    /// Remembers it, unless another one is known.
    pub fn remember_environment_id(&self, id: &str) -> Result<(), StateError> {
        let sql = "INSERT INTO meta (key, value) VALUES ('webhook_environment_id', ?1) ON CONFLICT DO NOTHING";
        self.connection.execute(sql, [id]).map_err(self.failed("write"))?;
        Ok(())
    }

    /// Keeps what deliveries held that no contract knows, until a run reports it.
    pub fn note_drift(&self, drift: &Drift) -> Result<(), StateError> {
        if drift.is_empty() {
            return Ok(());
        }
        let mut noted = self.noted_drift()?;
        noted.merge(drift);
        let entries: Vec<&DriftEntry> = noted.entries().collect();
        // Its parts are numbers, texts and names: all of them have a JSON.
        let text = serde_json::to_string(&entries).unwrap_or_default();
        let sql = "INSERT OR REPLACE INTO drift (id, entries) VALUES (1, ?1)";
        self.connection.execute(sql, [text]).map_err(self.failed("write"))?;
        Ok(())
    }

    /// What was noted, to be reported: it is not noted any more.
    pub fn take_drift(&self) -> Result<Drift, StateError> {
        let noted = self.noted_drift()?;
        if !noted.is_empty() {
            self.connection.execute("DELETE FROM drift", []).map_err(self.failed("write"))?;
        }
        Ok(noted)
    }

    fn noted_drift(&self) -> Result<Drift, StateError> {
        let sql = "SELECT entries FROM drift WHERE id = 1";
        let text: Option<String> =
            self.connection.query_row(sql, [], |row| row.get(0)).optional().map_err(self.failed("read"))?;
        let entries: Vec<DriftEntry> = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let mut drift = Drift::default();
        entries.into_iter().for_each(|entry| drift.add(entry));
        Ok(drift)
    }

    /// Remembers which warehouses are to have the deliveries.
    pub fn set_destinations(&mut self, names: &[&str]) -> Result<(), StateError> {
        let path = self.path.clone();
        let write = |transaction: rusqlite::Transaction<'_>| {
            transaction.execute("DELETE FROM destinations", [])?;
            for name in names {
                transaction.execute("INSERT INTO destinations (name) VALUES (?1)", [name])?;
            }
            transaction.commit()
        };
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        begun.and_then(write).map_err(|source| StateError::sqlite("write", &path, source))
    }

    /// The warehouses that are to have the deliveries.
    pub fn destinations(&self) -> Result<Vec<String>, StateError> {
        let mut statement =
            self.connection.prepare("SELECT name FROM destinations ORDER BY name").map_err(self.failed("read"))?;
        let names = statement.query_map([], |row| row.get(0));
        names.and_then(|names| names.collect()).map_err(self.failed("read"))
    }

    /// What the scheduler noted last.
    pub fn schedule(&self) -> Result<Option<ScheduleEntry>, StateError> {
        let sql = "SELECT expression, done_tick_ms, next_ms, last_started_ms, last_finished_ms, last_outcome, pid \
                   FROM schedule WHERE id = 1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(ScheduleEntry {
                expression: row.get(0)?,
                done_tick_ms: row.get(1)?,
                next_ms: row.get(2)?,
                last_started_ms: row.get(3)?,
                last_finished_ms: row.get(4)?,
                last_outcome: row.get(5)?,
                pid: row.get(6)?,
            })
        };
        self.connection.query_row(sql, [], read).optional().map_err(self.failed("read"))
    }

    /// Notes what the scheduler did and will do.
    pub fn note_schedule(&self, entry: &ScheduleEntry) -> Result<(), StateError> {
        let sql = "INSERT OR REPLACE INTO schedule (id, expression, done_tick_ms, next_ms, last_started_ms, \
                   last_finished_ms, last_outcome, pid) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let ScheduleEntry { expression, done_tick_ms, next_ms, last_started_ms, last_finished_ms, last_outcome, pid } =
            entry;
        let values = params![expression, done_tick_ms, next_ms, last_started_ms, last_finished_ms, last_outcome, pid];
        self.connection.execute(sql, values).map_err(self.failed("write"))?;
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(rusqlite::Error) -> StateError + use<> {
        let path = self.path.clone();
        move |source| StateError::sqlite(action, &path, source)
    }
}

fn accept(transaction: &rusqlite::Transaction<'_>, new: &NewDelivery) -> rusqlite::Result<Accepted> {
    let hash = new.body_hash.to_be_bytes();
    let known: Option<(i64, u32, i64)> = transaction
        .prepare_cached(
            "SELECT id, occurrence, last_received_ms FROM deliveries WHERE body_hash = ?1 ORDER BY occurrence DESC LIMIT 1",
        )?
        .query_row([&hash[..]], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let occurrence = match known {
        None => 0,
        Some((id, occurrence, last_ms)) => {
            if new.timeless_subject.is_none() || is_retold(transaction, new, id, last_ms)? {
                transaction
                    .prepare_cached("UPDATE deliveries SET times = times + 1, last_received_ms = ?2 WHERE id = ?1")?
                    .execute((id, new.received_ms))?;
                return Ok(Accepted::Repeat);
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
            new.timeless_subject,
            new.received_ms,
            new.body.len() as i64,
            new.body
        ])?;
    Ok(Accepted::Stored)
}

/// Whether a body without a time is the repeat of the delivery `id`:
/// it is the last one about its subject, and not long ago.
fn is_retold(
    transaction: &rusqlite::Transaction<'_>,
    new: &NewDelivery,
    id: i64,
    last_ms: i64,
) -> rusqlite::Result<bool> {
    let last: Option<i64> = transaction
        .prepare_cached("SELECT max(id) FROM deliveries WHERE subject = ?1")?
        .query_row([&new.timeless_subject], |row| row.get(0))?;
    Ok(last == Some(id) && new.received_ms - last_ms <= TIMELESS_REPEAT_MS)
}

#[cfg(test)]
mod tests;
