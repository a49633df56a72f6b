//! The bucket of a script's Parquet warehouse, and what its requests meet during a run.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use studysync::model::{Location, TestServer};

use super::{dice::Dice, script::BucketPlan};
use crate::harness::{Meets, ObjectServer, Snapshot};

/// Begins the address of each object.
pub const BUCKET: &str = "s3://simulation/";
/// Addresses of the warehouse and of the archive.
pub const WAREHOUSE: &str = "s3://simulation/warehouse";
pub const ARCHIVE: &str = "s3://simulation/archive";
/// The warehouse, and its lease, in the server.
const BELOW: &str = "simulation/warehouse";
const LEASE: &str = "simulation/warehouse/.studysync/lease.json";
/// Keys below the warehouse that no run leaves behind.
const UNFINISHED: [&str; 2] = ["/.studysync/uploads/", ".part"];
/// The client repeats requests at once, because its delays pass in real time.
const FIRST_DELAY: Duration = Duration::from_millis(1);
/// Longer than a lease is valid.
const LEASE_IS_OLD: Duration = Duration::from_secs(130);
/// The faults of requests.
const FAULTS: [Meets; 5] = [Meets::Refusal, Meets::LostAnswer, Meets::Drop, Meets::DroppedAnswer, Meets::Delay];
/// The host of a machine that is gone.
const OTHER_MACHINE: &str = "another-machine";
/// The number of no process.
const NO_PROCESS: i32 = i32::MAX;

/// Kills a run, at its first call.
pub type Die = Arc<dyn Fn() + Send + Sync>;

/// The server of a script's bucket. Clones share it.
#[derive(Clone)]
pub struct ScriptedBucket {
    server: Arc<ObjectServer>,
    /// The objects when the run was killed.
    at_kill: Arc<Mutex<Option<Snapshot>>>,
}

impl ScriptedBucket {
    pub fn start() -> ScriptedBucket {
        ScriptedBucket { server: Arc::new(ObjectServer::start()), at_kill: Arc::default() }
    }

    /// Leads a location to this server.
    pub fn connect(&self, location: &mut Location) {
        let server = TestServer { endpoint: self.server.endpoint(), first_delay: FIRST_DELAY };
        location.bucket = location.bucket.take().map(|address| address.on_test_server(server));
    }

    /// Sets what the requests of a run meet. `die` kills the run. The process of the last run has ended: if it has left
    /// its lease, that is of an ended process on this machine, or it is old and of another machine.
    pub fn expect_run(&self, plan: BucketPlan, is_new_machine: bool, die: Die) {
        let BucketPlan { seed, percent, last } = plan;
        self.server.edit(LEASE, |text| {
            let mut lease: serde_json::Value = serde_json::from_str(text).unwrap();
            let writer = &mut lease["writer"];
            if is_new_machine {
                writer["host"] = OTHER_MACHINE.into();
            }
            // A run that failed may have left the lease of an earlier machine.
            if writer["host"] == OTHER_MACHINE {
                return (lease.to_string(), LEASE_IS_OLD);
            }
            writer["process"] = NO_PROCESS.into();
            (lease.to_string(), Duration::ZERO)
        });
        self.server.take_requests();
        self.server.meet(move |number, _| match last {
            Some(last) if number == last.number && !last.is_answered => Meets::DroppedAnswer,
            Some(last) if number > last.number => {
                die();
                Meets::Denial
            }
            _ => {
                let mut dice = Dice::new(seed, number as u64);
                if dice.percent(percent) { dice.pick(&FAULTS) } else { Meets::Success }
            }
        });
    }

    /// Remembers the objects, for the end of a run that is killed now.
    pub fn remember(&self) {
        *self.at_kill.lock().unwrap() = Some(self.server.snapshot());
    }

    /// Ends a run. After a kill, the objects are those of the kill.
    pub fn end_run(&self) {
        self.server.meet(|_, _| Meets::Success);
        if let Some(objects) = self.at_kill.lock().unwrap().take() {
            self.server.restore(objects);
        }
    }

    /// Writes the objects of the warehouse to a new folder, for readers of files.
    pub fn mirror(&self, folder: &Path) {
        let _ = std::fs::remove_dir_all(folder);
        self.server.mirror(BELOW, folder);
    }

    /// Returns the names of the archived scans.
    pub fn archived(&self) -> BTreeSet<String> {
        let name = |key: &String| Some(key.strip_suffix(".pages")?.rsplit('/').next()?.to_owned());
        self.server.objects().keys().filter_map(name).collect()
    }

    /// Returns the keys of objects that a run which did all its work should have removed.
    pub fn left_over(&self) -> Vec<String> {
        let is_left = |key: &String| key == LEASE || UNFINISHED.iter().any(|part| key.contains(part));
        let uploads = self.server.uploads();
        assert_eq!(uploads, 0, "writes in parts are left over");
        self.server.objects().into_keys().filter(is_left).collect()
    }
}
