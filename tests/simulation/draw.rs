//! Draws the script of a seed, and does not run it.

use studysync::model::{DAY_MS, DurableStep, Flag, FlagSet, HOUR_MS, MINUTE_MS, Window};
use studysync_sandbox::{
    BrokenBody, ChangeRequest, DeadTokens, EndMark, Faults, Latency, Media, Order, Plain, RateLimit, Refusal,
    RepeatedRows, RetryAfter, RetryAfterForm, Rough, ServerError, Settings, SlowPages, Ties, When,
};

use super::{
    dice::Dice,
    script::{Act, BucketPlan, BucketWorld, Kill, LastRequest, RunPlan, Script, Warehouses, Weather},
};
use crate::harness::{CatalogKind, KEY, NOW_MS};

/// Maximum runs of most scripts; one script in eight has up to twice as many.
const RUNS_MAX: u64 = 5;
/// The percentage of light scripts. Most faults show with one warehouse, few days and few runs, at a fraction of the
/// cost.
const LIGHT_PERCENT: u64 = 80;
/// The percentage of scripts with a bucket.
const BUCKET_PERCENT: u64 = 3;
/// All seeds from here on have a bucket.
const BUCKET_SEEDS: u64 = 1_000_000_000;
/// All seeds from here on have a catalog: so many seeds of each kind, one kind after the other.
const CATALOG_SEEDS: u64 = 2_000_000_000;
const SEEDS_OF_A_CATALOG: u64 = 100_000_000;
const LIGHT_DAYS_MAX: u32 = 2;
const LIGHT_RUNS_MAX: u64 = 3;

/// The script of a seed.
pub fn draw(seed: u64) -> Script {
    // Its own sequence of random numbers does not change the other choices. Regression seeds stay as they were.
    let mut light_dice = Dice::new(seed, 3);
    let is_light = light_dice.percent(LIGHT_PERCENT) && !super::REGRESSIONS.iter().any(|(once, _)| *once == seed);
    let only = is_light.then(|| light_dice.pick(&[Warehouses::DuckDb, Warehouses::Second]));
    let mut remote_dice = Dice::new(seed, 7);
    let (bucket, catalog) = (bucket(seed, &mut remote_dice), catalog(seed));
    // A DuckDB file would be lost with the machine.
    let is_remote = bucket.is_some() || catalog.is_some();
    let only = only.map(|only| if is_remote { Warehouses::Second } else { only });
    let may_move = is_remote && only == Some(Warehouses::Second);
    let ends_on_new_machine = remote_dice.percent(50) && may_move;
    let mut dice = Dice::new(seed, 1);
    let is_large = dice.percent(12);
    let days = dice.between(2, if is_large { 40 } else { 6 }) as u32;
    let days = if is_light { days.min(LIGHT_DAYS_MAX) } else { days };
    let responses = if is_large { dice.below(600) } else { dice.below(120) };
    let ties_per_ms = if dice.percent(30) { dice.between(2, 5) as u32 } else { 0 };
    let recordings = recordings(seed);
    let service = Settings {
        seed: dice.bits() % 1_000_000,
        now_ms: NOW_MS + dice.between(0, 30) * DAY_MS + dice.between(0, DAY_MS),
        responses,
        days,
        surveys: dice.between(1, 8) as u32,
        deleted_share: dice.pick(&[0.0, 0.02, 0.2]),
        hostile_share: dice.pick(&[0.0, 0.0, 0.05, 0.3]),
        theme_share: 0.5,
        ties_per_ms,
        rough: rough(seed),
        api_key: KEY.into(),
        log_entries_max: 100_000,
        faults: Faults { media: recordings.clone().unwrap_or_default(), ..habits(&mut dice, ties_per_ms) },
        ..Settings::default()
    };
    // If ties are repeated, a page that is full with one millisecond would return the same page token forever.
    let page_rows_min = i64::from(ties_per_ms) * 3 + 3;
    let page_rows = page_rows_min.max(dice.pick(&[8, 25, 200])) as u32;
    let first_sync_days = dice.between(1, i64::from(days) + 1) as u32;
    let (parquet_by_day, keeps_pages, ends_by_tiers) = (dice.percent(15), dice.percent(70), dice.percent(20));
    let plants_edges = dice.percent(30);
    let unplaceable = if dice.percent(25) { 1 + dice.below(3) } else { 0 };
    let runs_max = match (is_light, is_large) {
        (true, _) => LIGHT_RUNS_MAX,
        (false, false) => RUNS_MAX,
        (false, true) => RUNS_MAX * 2,
    };
    let mut acts = Drawn { dice, service: &service, only, ahead_days: 0 }.acts(runs_max);
    acts.truncate(40);
    if is_light {
        acts = acts.into_iter().flat_map(|act| aimed(act, &mut light_dice)).collect();
    }
    if recordings.is_some() {
        let mut dice = Dice::new(seed, 6);
        acts.iter_mut().for_each(|act| kill_while_fetching(act, &mut dice));
    }
    let plans = acts.iter_mut().filter_map(|act| if let Act::Run(plan) = act { Some(plan) } else { None });
    for plan in plans.filter(|_| is_remote) {
        match catalog {
            Some(_) => kill_at_commits(plan, &mut remote_dice),
            None => disturb(plan, &mut remote_dice),
        }
        plan.is_new_machine = remote_dice.percent(35) && may_move;
    }
    Script {
        seed,
        bucket,
        catalog,
        ends_on_new_machine,
        has_recordings: recordings.is_some(),
        service,
        only,
        parquet_by_day,
        keeps_pages,
        first_sync_days,
        page_rows,
        plants_edges,
        unplaceable,
        ends_by_tiers,
        acts,
    }
}

/// Every third seed uses rough data. Its worlds are small, so that rare cases are frequent in them.
fn rough(seed: u64) -> Option<Rough> {
    let mut dice = Dice::new(seed, 4);
    let is_rough = seed.is_multiple_of(3) && !super::REGRESSIONS.iter().any(|(once, _)| *once == seed);
    is_rough.then(|| Rough {
        edge_share: dice.pick(&[0.1, 0.4]),
        reject_share: dice.pick(&[0.0, 0.02, 0.1]),
        twice_share: dice.pick(&[0.0, 0.02, 0.1]),
    })
}

/// Every fifth seed fetches recordings.
fn recordings(seed: u64) -> Option<Media> {
    let mut dice = Dice::new(seed, 5);
    let has_recordings = seed % 5 == 1 && !super::REGRESSIONS.iter().any(|(once, _)| *once == seed);
    has_recordings.then(|| Media {
        is_served: true,
        host: "media.example.com".to_owned(),
        bytes: 2000,
        lost_percent: dice.pick(&[0, 0, 30]),
        ..Media::default()
    })
}

/// Some seeds have the Parquet warehouse in a bucket, and all from [`BUCKET_SEEDS`] on.
fn bucket(seed: u64, dice: &mut Dice) -> Option<BucketWorld> {
    let is_drawn = dice.percent(BUCKET_PERCENT) && !super::REGRESSIONS.iter().any(|(once, _)| *once == seed);
    let world = BucketWorld { has_archive: dice.percent(50) };
    let is_drawn = is_drawn || seed >= BUCKET_SEEDS;
    (is_drawn && seed < CATALOG_SEEDS).then_some(world)
}

fn catalog(seed: u64) -> Option<CatalogKind> {
    let block = seed.checked_sub(CATALOG_SEEDS)? / SEEDS_OF_A_CATALOG;
    Some(CatalogKind::ALL[block as usize % CatalogKind::ALL.len()])
}

/// Returns the first seeds of each kind of catalog, one of each kind after the other.
pub fn catalog_seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = |block| CATALOG_SEEDS + block * SEEDS_OF_A_CATALOG;
    (0..count).flat_map(move |nth| (0..CatalogKind::ALL.len() as u64).map(move |block| first(block) + nth))
}

/// Draws what a run meets in the bucket.
fn disturb(plan: &mut RunPlan, dice: &mut Dice) {
    let last = dice.percent(40).then(|| LastRequest { number: dice.skewed(6) as usize, is_answered: dice.percent(50) });
    plan.bucket = BucketPlan { seed: dice.bits(), percent: dice.pick(&[0, 0, 3, 10, 40]), last };
    if last.is_some() {
        plan.kill = None;
    }
}

/// Kills that wait for a step of the Parquet warehouse happen at a commit.
fn kill_at_commits(plan: &mut RunPlan, dice: &mut Dice) {
    let kill = plan.kill.as_mut().filter(|kill| kill.at == Some(DurableStep::ParquetRenamed));
    if let Some(kill) = kill {
        kill.at = Some(dice.pick(&[DurableStep::DuckDbCommitted, DurableStep::DuckDbCommittedNow]));
        kill.step = 1 + dice.below(8);
    }
}

/// Half of the kills happen where recordings are stored and recorded.
fn kill_while_fetching(act: &mut Act, dice: &mut Dice) {
    let Act::Run(plan) = act else { return };
    if let Some(kill) = plan.kill.as_mut().filter(|_| dice.percent(50)) {
        kill.at = Some(dice.pick(&[DurableStep::RecordingKept, DurableStep::RecordingNoted]));
        kill.step = 1 + dice.below(6);
    }
}

/// Most kills of light scripts happen where a mistake would show. The killed run is then repeated, because a later
/// complete scan could repair the mistake before a check sees it.
fn aimed(act: Act, dice: &mut Dice) -> Vec<Act> {
    let Act::Run(mut plan) = act else { return vec![act] };
    let Some(kill) = &mut plan.kill else { return vec![Act::Run(plan)] };
    if dice.percent(70) {
        let (at, most) = dice.pick(&[
            (DurableStep::PageSpooled, 10),
            (DurableStep::PageSpooled, 10),
            (DurableStep::Checkpointed, 6),
            (DurableStep::DuckDbCommitted, 8),
            // The first run makes a file for each table before it writes data.
            (DurableStep::ParquetRenamed, 40),
            (DurableStep::ParquetRenamed, 40),
        ]);
        (kill.at, kill.step) = (Some(at), 1 + dice.below(most));
    }
    if dice.percent(30) {
        return vec![Act::Run(plan)];
    }
    let (max_requests, deadline_ms, cancel_at, changes) = (None, None, None, Vec::new());
    let again = RunPlan { kill: None, max_requests, deadline_ms, cancel_at, changes, ..(*plan).clone() };
    vec![Act::Run(plan), Act::Run(Box::new(again))]
}

/// Draws the behaviours of the service, which never change.
fn habits(dice: &mut Dice, ties_per_ms: u32) -> Faults {
    let ties = match dice.below(3) {
        0 => Ties::Repeated,
        1 if ties_per_ms > 0 => Ties::Lost,
        _ => Ties::Kept,
    };
    let order = dice.pick(&[Order::NewestFirst, Order::OldestFirst, Order::Shuffled]);
    // Some combinations make a list unreadable: an empty page after the last one that is always there, and 404 for an
    // empty page.
    let trailing_empty_page = dice.percent(25) && ties == Ties::Kept;
    let not_found_when_empty = dice.percent(30) && !trailing_empty_page;
    Faults {
        seed: dice.bits() % 1_000_000,
        order,
        // A shuffled list cannot use a page token that names a millisecond.
        ties: if order == Order::Shuffled { Ties::Kept } else { ties },
        end_mark: dice.pick(&[EndMark::Null, EndMark::Missing, EndMark::Empty]),
        trailing_empty_page,
        not_found_when_empty,
        exclusive_start: dice.percent(30),
        exclusive_end: dice.percent(30),
        default_page_rows: dice.pick(&[20, 100]),
        empty_page: Plain { when: When { every: dice.pick(&[0, 0, 0, 0, 3, 7]), ..When::default() } },
        ..Faults::default()
    }
}

struct Drawn<'a> {
    dice: Dice,
    service: &'a Settings,
    /// The only warehouse of all runs, if there is only one.
    only: Option<Warehouses>,
    /// Days that have passed so far.
    ahead_days: i64,
}

impl Drawn<'_> {
    fn acts(mut self, runs_max: u64) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.dice.percent(40) {
            acts.push(Act::SetClock { ahead_ms: self.ahead_ms() });
        }
        for _ in 0..1 + self.dice.below(runs_max) {
            match self.dice.below(20) {
                0..4 => acts.push(self.pass()),
                4 => acts.push(Act::SetClock { ahead_ms: self.ahead_ms() }),
                5..8 => acts.push(Act::Weather(Box::new(self.weather()))),
                8..12 => acts.push(Act::Change(self.change())),
                12 => acts.push(Act::Restore { rows: 1 + self.dice.below(5) }),
                13 if self.dice.percent(50) => acts.push(Act::LoseState),
                _ => {}
            }
            let plan = self.run();
            acts.push(Act::Run(Box::new(plan)));
        }
        acts
    }

    fn pass(&mut self) -> Act {
        let ms = match self.dice.below(8) {
            0 | 1 => self.dice.between(MINUTE_MS, HOUR_MS),
            2..7 => self.dice.between(HOUR_MS, 2 * DAY_MS),
            _ => self.dice.between(DAY_MS, 40 * DAY_MS),
        };
        self.ahead_days += ms / DAY_MS;
        Act::Pass { ms: ms as u64 }
    }

    fn ahead_ms(&mut self) -> i64 {
        let most_ms = self.dice.pick(&[0, 5 * MINUTE_MS, 3 * HOUR_MS, 3 * DAY_MS]);
        self.dice.between(-most_ms, most_ms)
    }

    fn change(&mut self) -> ChangeRequest {
        let (days, dice) = (self.service.days, &mut self.dice);
        let mut change = ChangeRequest { seed: dice.bits() % 1_000_000, ..ChangeRequest::default() };
        let mut some = |share: u64, most: u64| if dice.percent(share) { 1 + dice.below(most) } else { 0 };
        change.new_answers = some(40, 30);
        change.edits = some(40, 10);
        change.soft_deletes = some(30, 6);
        change.vanish_visitors = some(30, 3);
        change.late = some(30, 8);
        change.late_hours = 24 * some(100, u64::from(days)) as u32;
        change.status_changes = some(20, 2);
        change.question_edits = some(10, 2);
        change.theme_edits = some(15, 2);
        change.new_themes = some(20, 5);
        if dice.percent(22) {
            let start_ms = self.moment();
            let len_ms = self.dice.between(HOUR_MS, 2 * DAY_MS);
            change.vanish_window_ms = Some((start_ms, start_ms + len_ms));
        }
        change
    }

    /// Draws a time in the service's history so far.
    fn moment(&mut self) -> i64 {
        let days = i64::from(self.service.days) + 1;
        let from_ms = self.service.now_ms - days * DAY_MS;
        self.dice.between(from_ms, self.service.now_ms + self.ahead_days * DAY_MS)
    }

    fn run(&mut self) -> RunPlan {
        let backfill = self.dice.percent(40).then(|| {
            let (left, right) = (self.moment(), self.moment());
            let (mut start_ms, mut end_ms) = (left.min(right), left.max(right) + 1);
            if self.dice.percent(50) {
                start_ms = start_ms.div_euclid(DAY_MS) * DAY_MS;
            }
            if self.dice.percent(30) {
                end_ms += 60 * DAY_MS;
            }
            Window::new(start_ms, end_ms)
        });
        let dice = &mut self.dice;
        let flags = match dice.below(10) {
            0..6 => FlagSet::ALL,
            6 => FlagSet::EMPTY,
            7 => FlagSet::EMPTY.with(Flag::WithDeletedResponses),
            _ => FlagSet::from_bits(dice.below(32) as u8),
        };
        let warehouses = match dice.below(20) {
            0 => Warehouses::DuckDb,
            1 => Warehouses::Second,
            _ => Warehouses::Both,
        };
        let warehouses = self.only.unwrap_or(warehouses);
        let surveys = if dice.percent(15) {
            (0..dice.between(1, 2)).map(|_| dice.below(u64::from(self.service.surveys)) as usize).collect()
        } else {
            Vec::new()
        };
        let kill = dice.percent(45).then(|| Kill {
            at: None,
            step: dice.skewed(10),
            tear: dice.percent(40).then(|| dice.below(1000)),
        });
        let mut plan = RunPlan {
            backfill,
            surveys,
            flags,
            warehouses,
            last_warehouse_first: dice.percent(50),
            in_flight: dice.pick(&[1, 2, 4, 4, 7]),
            max_requests: dice.percent(10).then(|| dice.skewed(6)),
            deadline_ms: dice.percent(8).then(|| dice.skewed(18)),
            accept_vanished: dice.percent(15),
            kill,
            bucket: BucketPlan::default(),
            is_new_machine: false,
            cancel_at: dice.percent(6).then(|| dice.skewed(6)),
            changes: Vec::new(),
            again: backfill.is_some() && dice.percent(40),
        };
        if dice.percent(25) {
            let at = dice.skewed(6);
            plan.changes.push((at, self.change()));
        }
        plan
    }

    fn weather(&mut self) -> Weather {
        let habits = self.service.faults.clone();
        let dice = &mut self.dice;
        if dice.percent(25) {
            return Weather { faults: habits, unconnected_percent: 0 };
        }
        let mut sometimes = |share: u64, most_percent: u64| {
            let probability = if dice.percent(share) { (1 + dice.below(most_percent)) as f64 / 100.0 } else { 0.0 };
            When { probability, ..When::default() }
        };
        let mut faults = Faults {
            too_many_requests: Refusal { when: sometimes(40, 30), ..Refusal::default() },
            unavailable: Refusal { when: sometimes(30, 20), ..Refusal::default() },
            server_error: ServerError { when: sometimes(35, 20), ..ServerError::default() },
            cut_body: BrokenBody { when: sometimes(30, 20), ..BrokenBody::default() },
            hung_body: BrokenBody { when: sometimes(20, 8), ..BrokenBody::default() },
            html: Plain { when: sometimes(20, 8) },
            no_data: Plain { when: sometimes(20, 8) },
            repeated_rows: RepeatedRows { when: sometimes(30, 40), ..RepeatedRows::default() },
            looping_cursor: Plain { when: sometimes(15, 4) },
            empty_page: if habits.empty_page.when.every > 0 {
                habits.empty_page.clone()
            } else {
                Plain { when: sometimes(30, 20) }
            },
            dead_tokens: DeadTokens { when: sometimes(30, 15), ..DeadTokens::default() },
            ..habits
        };
        faults.too_many_requests.retry_after = retry_after(dice);
        faults.unavailable.retry_after = retry_after(dice);
        faults.server_error.status = dice.pick(&[500, 500, 502, 503, 504]);
        faults.dead_tokens.status = dice.pick(&[400, 404, 410, 403]);
        faults.cut_body.sent_share = dice.below(100) as f64 / 100.0;
        faults.repeated_rows.rows = 1 + dice.below(6) as usize;
        if dice.percent(15) {
            faults.dead_tokens.after_ms = dice.skewed(16);
        }
        if dice.percent(15) {
            faults.dead_tokens.after_pages = 1 + dice.below(12);
        }
        if dice.percent(60) {
            faults.latency = Latency { ms: dice.skewed(9), jitter_ms: dice.skewed(9), per_row_us: dice.skewed(8) };
        }
        if dice.percent(25) {
            let per_second = dice.pick(&[0.5, 2.0, 10.0, 50.0]);
            let form = retry_after(dice).form;
            let in_flight_max = dice.pick(&[0, 0, 1, 3]);
            let burst = 1 + dice.below(10) as u32;
            faults.rate_limit = RateLimit { per_second, burst, form, min_wait_ms: dice.below(3000), in_flight_max };
        }
        if dice.percent(10) {
            let above_rows = 5 + dice.below(100) as usize;
            faults.slow_pages = SlowPages { above_rows, wait_ms: 2000, status: dice.pick(&[504, 500, 408]) };
        }
        Weather { faults, unconnected_percent: if dice.percent(20) { dice.below(15) } else { 0 } }
    }
}

fn retry_after(dice: &mut Dice) -> RetryAfter {
    let form = dice.pick(&[
        RetryAfterForm::Absent,
        RetryAfterForm::Seconds,
        RetryAfterForm::Fraction,
        RetryAfterForm::HttpDate,
        RetryAfterForm::Zero,
        RetryAfterForm::Negative,
        RetryAfterForm::PastDate,
        RetryAfterForm::Garbage,
    ]);
    let wait_ms = if dice.percent(3) { 2 * HOUR_MS as u64 } else { dice.skewed(15) };
    RetryAfter { form, wait_ms }
}
