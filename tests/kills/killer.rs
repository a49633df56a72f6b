//! Runs the real program and kills it with SIGKILL, at times drawn from a seed.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use crate::harness::{Place, Service, copy_folder};

/// A run that takes longer than this counts as hanging.
const RUN_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(1);

/// SplitMix64: a seed gives the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

/// The duration of the parts of an undisturbed run, and its number of requests.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Time from the start to the first request.
    pub head: Duration,
    /// Time from the first request to the last.
    pub body: Duration,
    /// Time from the last request to the end.
    pub tail: Duration,
    pub requests: u64,
}

/// Kills runs at times that its seed determines.
pub struct Killer {
    random: Random,
    turn: u64,
}

impl Killer {
    pub fn new(seed: u64) -> Killer {
        Killer { random: Random(seed), turn: 0 }
    }

    /// Runs a command without a kill.
    pub fn measure(&mut self, service: &Service, place: &Place, command: &[String]) -> Measured {
        let before = requests(service);
        let begun = Instant::now();
        let mut child = spawn(place, command);
        let (mut seen, mut first, mut last) = (before, None, begun);
        let status = loop {
            if requests(service) > seen {
                seen = requests(service);
                last = Instant::now();
                first.get_or_insert(last);
            }
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < RUN_MAX, "{command:?} does not end");
            std::thread::sleep(POLL);
        };
        assert!(status.success(), "{command:?} ended with {status}");
        let first = first.expect("an undisturbed run asks for something");
        Measured { head: first - begun, body: last - first, tail: last.elapsed(), requests: seen - before }
    }

    /// Runs a command and kills it at a random time; returns `false` if it ended before. One kill in six comes before
    /// the first request. The others come within a range after the first request, which is `1 / one_part_in` of an
    /// undisturbed run. If runs resume, a short range spreads the kills over all of the work. If each run starts anew,
    /// the range must be the whole run.
    pub fn run_and_kill(
        &mut self,
        service: &Service,
        place: &Place,
        command: &[String],
        calm: &Measured,
        one_part_in: u64,
    ) -> bool {
        self.turn += 1;
        let micros = |length: Duration| length.as_micros() as u64;
        if self.turn % 6 == 3 {
            let after = Duration::from_micros(self.random.below(micros(calm.head)));
            return self.kill_after_requests(service, place, command, 0, after);
        }
        let stretch = micros(calm.body + calm.tail) / one_part_in;
        let after = Duration::from_micros(self.random.below(stretch));
        self.kill_after_requests(service, place, command, 1, after)
    }

    /// Kills a time after the run's n-th request; returns `false` if the run ended before that.
    pub fn kill_after_requests(
        &mut self,
        service: &Service,
        place: &Place,
        command: &[String],
        count: u64,
        after: Duration,
    ) -> bool {
        let before = requests(service);
        let begun = Instant::now();
        let mut child = spawn(place, command);
        while requests(service) < before + count {
            if ended(&mut child, command) {
                return false;
            }
            assert!(begun.elapsed() < RUN_MAX, "{command:?} hangs");
            std::thread::sleep(POLL);
        }
        std::thread::sleep(after);
        if ended(&mut child, command) {
            return false;
        }
        child.kill().unwrap();
        // The run may have ended at the same time.
        let is_killed = child.wait().unwrap().code().is_none();
        wait_for_silence(service);
        is_killed
    }
}

/// Asserts that a run that ended by itself succeeded.
fn ended(child: &mut Child, command: &[String]) -> bool {
    let status = child.try_wait().unwrap();
    if let Some(status) = status {
        assert!(status.success(), "{command:?} ended with {status}");
    }
    status.is_some()
}

fn spawn(place: &Place, command: &[String]) -> Child {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--quiet"]).collect();
    // The errors of the run appear in the test's own output.
    place.command(&arguments).stdout(Stdio::null()).spawn().unwrap()
}

fn requests(service: &Service) -> u64 {
    service.control().stats().requests
}

/// Waits until requests that were in flight at the kill are in the log.
fn wait_for_silence(service: &Service) {
    let begun = Instant::now();
    while service.control().stats().in_flight > 0 {
        assert!(begun.elapsed() < RUN_MAX, "the service still answers a dead client");
        std::thread::sleep(POLL);
    }
}

/// Copies the files of a place into another place.
pub fn copy_of(from: &Place, to: Place) -> Place {
    copy_folder(from.root(), to.root());
    to
}
