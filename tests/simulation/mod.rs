//! The simulator: a seed determines a service, its faults and the runs, and the whole program executes them in
//! simulated time. docs/contributing/simulator.md has its commands.

mod bucket;
mod checks;
mod contents;
pub mod dice;
mod draw;
mod killer;
mod oracle;
mod play;
mod script;
mod service;
mod settings;

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use play::Played;

/// Seeds of a normal test run: a minute on two idle cores. CI runs more of them.
const SEEDS: u64 = 36;

/// Seeds of each kind of catalog if nothing else is said.
const CATALOG_SEEDS: u64 = 1;

/// A long simulation prints its progress each time it has run this many seeds.
const TOLD_EVERY: u64 = 100;

/// Seeds that once found a fault of the program, each with the fault. They always run.
const REGRESSIONS: &[(u64, &str)] = &[
    (
        630,
        "a millisecond with more rows than a page, at a service that loses them and ends lists with 404: never proven complete",
    ),
    (
        44,
        "two parts that wait for publish had a column in two types, one of them of NULLs alone; no publish ever came to its end again",
    ),
    (
        190,
        "a doubt about all surveys made a backfill of one survey look again for ever, however often it found nothing",
    ),
    (
        80034,
        "an answer that tells its time in whole seconds lay on the other side of a window's edge than the service had it, and vanished",
    ),
    (
        80042,
        "page tokens that panicked of age, with 404, within seconds were taken for the end of lists whose tokens had lived deeper",
    ),
    (1515, "a partition that lost its last row left an empty file behind among the files being written"),
    (272, "two records of one key that lay in different windows became two equal rows once a scan met both"),
    (
        5153,
        "a session of eight days had two snapshots, as it may, and the check took the parts of both for those of one",
    ),
    (
        5864,
        "this machine's clock was set back, and a backfill took the time it was asked for to lie ahead and was done",
    ),
    (
        910_617,
        "a scan that did not ask for deleted answers reached one warehouse alone, and what both had taken before counted as covered",
    ),
    (
        1044,
        "a scan without custom metadata moved a row to the creation time of another record of its key; its metadata rows kept the old time",
    ),
    (6061, "a survey was refused as unknown after an empty page with a next page"),
    (6499, "a survey was refused as unknown because the list of surveys failed"),
];

/// The environment variables that select the seeds.
const SEED: &str = "STUDYSYNC_SEED";
const COUNT: &str = "STUDYSYNC_SEEDS";
const START: &str = "STUDYSYNC_SEEDS_FROM";
const MINUTES: &str = "STUDYSYNC_SIMULATE_MINUTES";

thread_local! {
    /// Whether this thread prints the acts of its script.
    static IS_VERBOSE: Cell<bool> = const { Cell::new(false) };
    /// Whether a panic on this thread is a failed seed, which is reported elsewhere.
    static IS_PLAYING: Cell<bool> = const { Cell::new(false) };
}

/// Prints a line if the thread replays a single seed.
fn say(line: impl FnOnce() -> String) {
    if IS_VERBOSE.get() {
        println!("{}", line());
    }
}

/// Suppresses the panic messages of seeds, which are reported together with their scripts.
fn hush() {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_PLAYING.get() || IS_VERBOSE.get() {
                told(panic);
            }
        }));
    });
}

/// Runs one seed on this thread.
fn play_seed(seed: u64) -> Result<Played, String> {
    hush();
    let script = draw::draw(seed);
    say(|| script.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    IS_PLAYING.set(true);
    let played = catch_unwind(AssertUnwindSafe(|| runtime.block_on(play::play(&script))));
    IS_PLAYING.set(false);
    played.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

#[expect(clippy::disallowed_methods, reason = "people say what to simulate in the environment")]
fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs seeds on all cores until there are none left, or the time is over. Returns the failed seeds and the number of
/// seeds.
fn play_seeds(seeds: impl Iterator<Item = u64> + Send, until: Option<Instant>) -> (Vec<(u64, String)>, u64) {
    let (seeds, failed, count) = (Mutex::new(seeds), Mutex::new(Vec::new()), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = || seeds.lock().unwrap().next().filter(|_| until.is_none_or(|until| Instant::now() < until));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    let nth = count.fetch_add(1, Ordering::Relaxed) + 1;
                    if nth.is_multiple_of(TOLD_EVERY) {
                        println!("the {nth}th seed is {seed}");
                    }
                    if let Err(problem) = play_seed(seed) {
                        // Prints at once, because a user may stop a long simulation.
                        println!("seed {seed} failed: {}", problem.lines().next().unwrap_or_default());
                        failed.lock().unwrap().push((seed, problem));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    (failed, count.into_inner())
}

fn assert_none_failed(failed: &[(u64, String)], count: u64) {
    const SHOWN: usize = 5;
    let tell = |(seed, problem): &(u64, String)| {
        format!(
            "{}{problem}\nreplay: STUDYSYNC_SEED={seed} cargo test --profile quick -- simulation::replay --nocapture\n",
            draw::draw(*seed)
        )
    };
    let told: Vec<String> = failed.iter().take(SHOWN).map(tell).collect();
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "{} of {count} seeds failed: {seeds:?}\n\n{}", failed.len(), told.join("\n"));
}

/// Every promise about a warehouse holds for each of these seeds.
#[test]
fn p1_p2_p4_p5_p6_every_seed_ends_equal_to_the_service() {
    if variable(SEED).is_some() {
        return;
    }
    let (start, begun) = (variable(START).unwrap_or(1), Instant::now());
    let (failed, count) = match variable(MINUTES) {
        Some(minutes) => play_seeds(start.., Some(begun + Duration::from_secs(minutes * 60))),
        None => play_seeds(start..start + variable(COUNT).unwrap_or(SEEDS), None),
    };
    println!("{count} seeds from {start} in {:.1} s", begun.elapsed().as_secs_f64());
    assert_none_failed(&failed, count);
}

/// Every promise holds for a warehouse in a catalog too. A seed takes seconds, so that a default run plays few.
#[test]
#[ignore = "slow: run by `make lakes`"]
fn p1_p2_p4_p5_p6_every_catalog_ends_equal_to_the_service() {
    let begun = Instant::now();
    let count = variable(COUNT).unwrap_or(CATALOG_SEEDS);
    let (failed, count) = match variable(START) {
        Some(start) => play_seeds(start..start + count, None),
        None => play_seeds(draw::catalog_seeds(count), None),
    };
    println!("{count} seeds with a catalog in {:.1} s", begun.elapsed().as_secs_f64());
    assert_none_failed(&failed, count);
}

#[test]
fn seeds_that_once_failed_pass() {
    let (failed, count) = play_seeds(REGRESSIONS.iter().map(|(seed, _)| *seed), None);
    assert_none_failed(&failed, count);
}

/// Two runs of a seed send exactly the same requests.
#[test]
fn a_seed_plays_the_same_way_twice() {
    for seed in [3, 14, 15] {
        let digests = [play_seed(seed), play_seed(seed)].map(|played| played.map(|played| played.digest));
        assert_eq!(digests[0], digests[1], "seed {seed}");
    }
}

/// `STUDYSYNC_SEED=n` replays one seed and prints its acts.
#[test]
fn replay() {
    let Some(seed) = variable(SEED) else { return };
    IS_VERBOSE.set(true);
    // RUST_LOG selects the program's own messages.
    let _ = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).try_init();
    match play_seed(seed) {
        Ok(played) => println!("{played:?}"),
        Err(problem) => panic!("{problem}\nseed {seed} failed"),
    }
}
