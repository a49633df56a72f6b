//! Random commits from a seed.

use std::collections::BTreeMap;

use super::*;

/// Random commits: answers come, change, move between months and go, with their children and their history.
pub(super) struct Scenario {
    random: u64,
    next_key: i64,
    /// Answers that are there: key and creation time.
    answers: BTreeMap<i64, i64>,
    commits: usize,
    /// Days over which the answers are spread.
    days: u64,
}

impl Scenario {
    pub(super) fn new(seed: u64, days: u64) -> Self {
        Self { random: seed.wrapping_mul(2) + 1, next_key: 0, answers: BTreeMap::new(), commits: 0, days }
    }

    /// A number below the bound (splitmix64).
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn moment_us(&mut self) -> i64 {
        START_US + self.below(self.days) as i64 * DAY_US + self.below(DAY_US as u64) as i64
    }

    pub(super) fn next(&mut self) -> Commit {
        let mut commit = Commit::new(self.commits);
        self.commits += 1;
        for _ in 0..=self.below(6) {
            let created_us = self.moment_us();
            self.put(&mut commit, self.next_key, created_us);
            self.next_key += 1;
        }
        let held: Vec<(i64, i64)> = self.answers.iter().map(|(key, at)| (*key, *at)).collect();
        for (key, created_us) in held {
            match self.below(10) {
                0 => self.take(&mut commit, key, created_us),
                1 | 2 if key < self.next_key - 6 => {
                    self.take(&mut commit, key, created_us);
                    let moved_us = if self.below(2) == 0 { created_us } else { self.moment_us() };
                    self.put(&mut commit, key, moved_us);
                    let version = answer(key, created_us, self.below(1 << 40) as i64);
                    commit.change("response_history").upserts.push(version);
                }
                _ => {}
            }
        }
        let survey = self.below(4);
        let known = vec![("id", survey.to_string())];
        commit.change("surveys").deletes.push(known.clone());
        let named = [known, vec![("name", format!("'version {}'", self.commits))]].concat();
        commit.change("surveys").upserts.push(named);
        commit
    }

    fn put(&mut self, commit: &mut Commit, key: i64, created_us: i64) {
        let hash = self.below(1 << 40) as i64;
        commit.change("responses").upserts.push(answer(key, created_us, hash));
        for ordinal in 0..self.below(3) {
            let mut choice = answer(key, created_us, hash);
            choice.retain(|(name, _)| *name != "_row_hash" && *name != "selected_indexes");
            choice.push(("choice_ordinal", ordinal.to_string()));
            commit.change("response_choices").upserts.push(choice);
        }
        self.answers.insert(key, created_us);
    }

    fn take(&mut self, commit: &mut Commit, key: i64, created_us: i64) {
        // A commit takes out what was there before it: rows of its own are not meant.
        if commit.change("responses").upserts.contains(&answer(key, created_us, 0)) {
            return;
        }
        let gone: Values = answer(key, created_us, 0).into_iter().filter(|(name, _)| *name != "_row_hash").collect();
        commit.change("responses").deletes.push(gone.clone());
        commit.change("response_choices").deletes.push(gone);
        self.answers.remove(&key);
    }
}
