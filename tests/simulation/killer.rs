//! Kills: before a durable step, the folder is copied and the run is stopped. The copy is the state that a kill at that
//! time leaves; later writes of the process are discarded.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Once,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use studysync::{
    archive::summarize,
    model::{DurableStep, Failpoints},
};

use super::{
    bucket::{Die, ScriptedBucket},
    script::Kill,
};

/// Counts the durable steps of one run, and kills it.
pub struct Watch {
    root: PathBuf,
    copy: PathBuf,
    taken: Arc<AtomicU64>,
    /// The maximum number of spools at one time.
    spools_max: Arc<AtomicUsize>,
}

impl Watch {
    /// Watches a run in `root`, which is killed before the step of `kill`, or when the returned closure is called.
    pub fn over(root: &Path, kill: Option<Kill>, bucket: Option<ScriptedBucket>) -> (Watch, Failpoints, Die) {
        let copy = root.with_extension("killed");
        let watch = Watch { root: root.to_owned(), copy, taken: Arc::default(), spools_max: Arc::default() };
        let killed = Arc::new(Once::new());
        let die: Die = {
            let (root, copy, killed) = (watch.root.clone(), watch.copy.clone(), Arc::clone(&killed));
            Arc::new(move || {
                killed.call_once(|| {
                    copy_folder(&root, &copy);
                    if let Some(share) = kill.and_then(|kill| kill.tear) {
                        tear(&copy, share);
                    }
                    bucket.iter().for_each(ScriptedBucket::remember);
                });
            })
        };
        let root = watch.root.clone();
        let counted = AtomicU64::new(0);
        let (taken, spools_max, dies) = (watch.taken.clone(), watch.spools_max.clone(), Arc::clone(&die));
        let failpoints = Failpoints::with_hook(move |step| {
            if killed.is_completed() {
                return true;
            }
            if step == DurableStep::PageSpooled {
                spools_max.fetch_max(spools(&root).len(), Ordering::SeqCst);
            }
            taken.fetch_add(1, Ordering::SeqCst);
            let is_counted = kill.is_some_and(|kill| kill.at.is_none_or(|at| at == step));
            let nth = counted.fetch_add(u64::from(is_counted), Ordering::SeqCst) + 1;
            let is_killed = is_counted && kill.is_some_and(|kill| kill.step == nth);
            if is_killed {
                dies();
            }
            is_killed
        });
        (watch, failpoints, die)
    }

    /// Returns the number of durable steps so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    pub fn spools_max(&self) -> usize {
        self.spools_max.load(Ordering::SeqCst)
    }

    /// Returns whether the run was killed. If so, restores the folder to its state at the kill.
    pub fn bury(self) -> bool {
        let was_killed = self.copy.exists();
        if was_killed {
            fs::remove_dir_all(&self.root).unwrap();
            fs::rename(&self.copy, &self.root).unwrap();
        }
        was_killed
    }
}

/// Returns the spools of open scans.
pub fn spools(root: &Path) -> Vec<PathBuf> {
    let entries = ["archive/under-way", "state/spool/under-way"];
    let files = entries.iter().filter_map(|folder| fs::read_dir(root.join(folder)).ok()).flatten();
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else if let Err(error) = fs::copy(&path, &copy) {
            // Threads that write to a bucket remove spools meanwhile.
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{}", path.display());
        }
    }
}

/// Truncates an incomplete spool: removes bytes that the system had not written at a power failure.
fn tear(root: &Path, share: u64) {
    // A spool with a commit note was synced before any warehouse or ledger had its scan.
    let is_open = |path: &PathBuf| summarize(path).is_ok_and(|summary| summary.note.is_none());
    let open: Vec<PathBuf> = spools(root).into_iter().filter(is_open).collect();
    if open.is_empty() {
        return;
    }
    let path = &open[share as usize % open.len()];
    let bytes = fs::metadata(path).unwrap().len();
    let lost = bytes * share / 1000;
    fs::File::options().write(true).open(path).unwrap().set_len(bytes - lost).unwrap();
}
