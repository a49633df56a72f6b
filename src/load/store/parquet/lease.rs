//! The lease of a warehouse in a bucket: an object that names the writer, and that the writer renews.
//!
//! The lease only avoids work that would fail. A commit is safe without it, because of its number.

use std::{
    fmt,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use serde::{Deserialize, Serialize};

use crate::{
    bucket::{Bucket, Content, Expected, Version},
    clock::now_ms,
    load::LoadError,
};

/// Key of the lease.
pub(super) const KEY: &str = ".studysync/lease.json";
/// A lease that was not renewed for this long may be taken by another writer.
const VALID: Duration = Duration::from_secs(120);
/// Time between two renewals.
const RENEWAL: Duration = Duration::from_secs(30);
/// Stands for a writer whose name cannot be found out.
const UNKNOWN: &str = "another writer took the lease";
/// The random id of this process.
static PROCESS_ID: LazyLock<String> = LazyLock::new(|| uuid::Uuid::new_v4().to_string());
/// Tries to take a lease that is given back or taken between two requests.
const TRIES: u32 = 3;

/// A process that writes a warehouse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Writer {
    process: u32,
    host: String,
    /// Names the system in which the number of the process is unique; `None` if that cannot be found out.
    #[serde(default)]
    system: Option<String>,
    /// Differs between any two processes, also if the second one gets the number of the first.
    #[serde(default)]
    id: String,
}

/// The content of the lease.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    writer: Writer,
    /// Differs between any two leases and renewals, so that each write is another version.
    id: String,
}

impl Writer {
    /// Returns this process.
    pub(super) fn this() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let id = PROCESS_ID.clone();
        Self { process: std::process::id(), system: system_of(&host), host, id }
    }

    pub(super) fn is_this(&self) -> bool {
        *self == Self::this()
    }

    /// Returns true if the process ran in this system and has ended. A container's first process has the same number
    /// each time.
    fn has_ended(&self) -> bool {
        let this = Self::this();
        let Some(process) = i32::try_from(self.process).ok().and_then(Pid::from_raw) else { return false };
        let is_gone = || match self.process == this.process {
            true => self.id != this.id,
            false => test_kill_process(process) == Err(Errno::SRCH),
        };
        self.system.is_some() && (&self.system, &self.host) == (&this.system, &this.host) && is_gone()
    }
}

/// Returns a name of the system in which process numbers are unique. On Linux that is the boot of the machine and the
/// namespace of processes: containers may share a host name, and each begins with the number 1.
#[cfg(target_os = "linux")]
fn system_of(_: &str) -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

#[cfg(not(target_os = "linux"))]
fn system_of(host: &str) -> Option<String> {
    Some(host.to_owned())
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Other messages recognize a command of this program by the last word.
        write!(f, "process {} on {}, studysync", self.process, self.host)
    }
}

struct State {
    version: Version,
    /// When the last renewal began, by the clock of this process.
    renewed: Instant,
    /// The writer that took the lease; `None` while this process has it.
    taken_by: Option<String>,
}

/// The lease of this process. Dropping it gives it back.
pub(super) struct Lease {
    bucket: Bucket,
    state: Arc<Mutex<State>>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    renewals: Option<JoinHandle<()>>,
}

impl Lease {
    /// Takes the lease without waiting.
    ///
    /// # Errors
    /// [`LoadError::Locked`] with the holder while another writer renews it.
    pub(super) fn take(bucket: &Bucket) -> Result<Self, LoadError> {
        let renewed = Instant::now();
        let version = create_or_replace(bucket)?;
        let state = Arc::new(Mutex::new(State { version, renewed, taken_by: None }));
        let (stop, stopped) = mpsc::channel();
        let renewals = {
            let (bucket, state) = (bucket.clone(), Arc::clone(&state));
            let renew = move || {
                while stopped.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                    renew(&bucket, &state);
                }
            };
            thread::Builder::new().name("lease".to_owned()).spawn(renew)
        };
        let renewals = renewals.map_err(LoadError::io("start a thread for", bucket.address().to_string().as_ref()))?;
        Ok(Self { bucket: bucket.clone(), state, stop: Some(stop), renewals: Some(renewals) })
    }

    /// Fails if another writer may have taken the lease.
    pub(super) fn require(&self) -> Result<(), LoadError> {
        let state = lock(&self.state);
        match &state.taken_by {
            Some(holder) => Err(held(&self.bucket, Some(holder.clone()))),
            None if state.renewed.elapsed() >= VALID => Err(held(&self.bucket, None)),
            None => Ok(()),
        }
    }

    /// Ends the lease, because another writer has overtaken this one. Each later write is refused with its name.
    pub(super) fn end(&self, winner: Option<String>) {
        lock(&self.state).taken_by = Some(winner.unwrap_or_else(|| UNKNOWN.to_owned()));
    }

    /// Returns true if the object is the lease of this process. Asks the bucket only if the lease has ended.
    fn is_own(&self) -> bool {
        let version = lock(&self.state).version.clone();
        self.require().is_ok() || matches!(self.bucket.read(KEY), Ok(Some(found)) if found.version == version)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(renewals) = self.renewals.take() {
            // A renewal that panicked has renewed nothing.
            let _ = renewals.join();
        }
        if self.is_own() {
            // A lease that cannot be removed ends by its time.
            let _ = self.bucket.remove(&[KEY.to_owned()]);
        }
    }
}

/// Returns the writer that has the lease, if it is not this process; `None` also if this cannot be found out.
pub(super) fn other_holder(bucket: &Bucket) -> Option<Writer> {
    let found = bucket.read(KEY).ok().flatten()?;
    serde_json::from_slice::<Holder>(&found.bytes).ok().map(|found| found.writer).filter(|writer| !writer.is_this())
}

fn create_or_replace(bucket: &Bucket) -> Result<Version, LoadError> {
    for _ in 0..TRIES {
        if let Some(version) = bucket.put(KEY, Content::Bytes(&text()?), &Expected::Missing)? {
            return Ok(version);
        }
        if let Some(version) = replace_old(bucket)? {
            return Ok(version);
        }
    }
    Err(held(bucket, None))
}

/// Replaces a lease that its holder does not renew. Returns `None` if the lease changed meanwhile.
fn replace_old(bucket: &Bucket) -> Result<Option<Version>, LoadError> {
    let Some(found) = bucket.read(KEY)? else { return Ok(None) };
    let holder = serde_json::from_slice::<Holder>(&found.bytes).ok().map(|found| found.writer);
    let age_ms = now_ms().saturating_sub(found.written_ms);
    if age_ms < VALID.as_millis() as i64 && !holder.as_ref().is_some_and(Writer::has_ended) {
        return Err(held(bucket, holder.map(|holder| holder.to_string())));
    }
    Ok(bucket.put(KEY, Content::Bytes(&text()?), &Expected::Version(found.version))?)
}

fn renew(bucket: &Bucket, state: &Mutex<State>) {
    let (renewed, version) = (Instant::now(), lock(state).version.clone());
    let Ok(text) = text() else { return };
    match bucket.put(KEY, Content::Bytes(&text), &Expected::Version(version)) {
        Ok(Some(version)) => {
            let mut state = lock(state);
            (state.version, state.renewed) = (version, renewed);
        }
        Ok(None) => {
            let holder = other_holder(bucket).map(|writer| writer.to_string());
            lock(state).taken_by = Some(holder.unwrap_or_else(|| UNKNOWN.to_owned()));
        }
        Err(error) => tracing::warn!("the lease of the warehouse is not renewed: {error}"),
    }
}

fn text() -> Result<Vec<u8>, LoadError> {
    let holder = Holder { writer: Writer::this(), id: uuid::Uuid::new_v4().to_string() };
    serde_json::to_vec_pretty(&holder).map_err(|error| LoadError::Bug(error.to_string()))
}

fn held(bucket: &Bucket, holder: Option<String>) -> LoadError {
    LoadError::Locked { path: bucket.address().to_string().into(), holder }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Every change of the state is one assignment, so it is right also after a panic.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_only_a_process_of_the_same_system_has_ended() {
        let this = Writer::this();
        let gone = Writer { process: i32::MAX as u32, ..this.clone() };
        let earlier = Writer { id: "earlier".to_owned(), ..this.clone() };
        assert!(gone.has_ended() && earlier.has_ended() && !this.has_ended());
        for system in [None, Some("another boot pid:[1]".to_owned())] {
            // Two containers with one host name: the other one may be alive.
            let of_others = [&gone, &earlier].map(|writer| Writer { system: system.clone(), ..writer.clone() });
            assert!(!of_others.iter().any(Writer::has_ended), "{system:?}");
        }
        let elsewhere = Writer { host: "another-machine".to_owned(), ..gone };
        assert!(!elsewhere.has_ended());
    }
}
