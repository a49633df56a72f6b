//! The same scans into a DuckDB file and into Parquet: every table must hold the same rows, and every scan have the same effect.
//!
//! The service is played by a random one that edits, deletes, forgets and repeats. Parquet publishes only now and then, so scans
//! are compared with files and waiting parts in every mixture.

use std::collections::BTreeMap;

use super::*;
use crate::{
    load::{
        DuckDbDestination, Reader, VanishPolicy,
        conformance::pages::{Answer, answer, page, scan, survey_page, theme_page, with_rejects},
    },
    model::{Flag, FlagSet, Reject, RejectReason, Stream},
};

/// Days of the service's calendar: more than two months.
const DAYS: u64 = 75;

/// A service whose records change from scan to scan.
struct Service {
    random: Scenario,
    answers: BTreeMap<(String, i64), Answer>,
    next_group: u64,
}

impl Service {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Things happen.
    fn live(&mut self) {
        for _ in 0..self.below(8) {
            let on_day = self.below(DAYS) as i64;
            let group = format!("g{}", self.next_group);
            self.next_group += 1;
            for question in 0..=self.below(2) as i64 {
                let mut row = answer(&group, on_day, "first");
                // Some sessions go on past midnight.
                row.at_ms += question * 13 * 3_600_000;
                row.question = question;
                row.survey = 7 + self.below(2) as i64;
                row.url = Some(format!("/page/{}", self.below(3)));
                row.snapshot = (self.below(3) == 0).then(|| format!("plan {}", self.below(2)));
                self.answers.insert((group.clone(), question), row);
            }
        }
        let keys: Vec<_> = self.answers.keys().cloned().collect();
        for key in keys {
            let (fate, value) = (self.below(30), self.below(1000));
            let Some(row) = self.answers.get_mut(&key) else { continue };
            match fate {
                0 => row.text = format!("edit {value}"),
                1 => row.deleted_ms = Some(row.at_ms + 1),
                2 => row.choices = (0..value % 3).map(|at| format!("choice {at} of {value}")).collect(),
                3 => row.os = Some(format!("os {value}")),
                4 => drop(self.answers.remove(&key)),
                _ => {}
            }
        }
    }

    /// What the service answers: the window's records, now and then with one from elsewhere, a repeat or a double key.
    fn answers(&mut self, scan: &Scan) -> Vec<FlatPage> {
        let asked = |flag| scan.flags.contains(flag);
        let is_meant = |row: &&Answer| {
            scan.window.contains(row.at_ms)
                && scan.scope.survey_id.is_none_or(|survey| survey == row.survey)
                && (asked(Flag::WithDeletedResponses) || row.deleted_ms.is_none())
        };
        let mut rows: Vec<Answer> = self.answers.values().filter(is_meant).cloned().collect();
        if self.below(3) == 0 {
            rows.extend(self.answers.values().next().cloned());
        }
        if let (0, Some(first)) = (self.below(4), rows.first().cloned()) {
            let mut double = first.clone();
            double.text = "another with the same key".into();
            rows.extend([first, double]);
        }
        for row in &mut rows {
            row.url = row.url.take().filter(|_| asked(Flag::WithUrls));
            row.os = row.os.take().filter(|_| asked(Flag::WithMeta));
            row.snapshot = row.snapshot.take().filter(|_| asked(Flag::WithSnapshots));
            row.deleted_ms = row.deleted_ms.filter(|_| asked(Flag::WithDeletedResponses));
        }
        let mut pages: Vec<FlatPage> = rows.chunks(7).map(page).collect();
        if let (0, Some(last)) = (self.below(5), pages.pop()) {
            let reject =
                Reject { reason: RejectReason::BadKey, field: "questionId".into(), raw: format!("{{{}}}", scan.id) };
            pages.push(with_rejects(last, vec![reject]));
        }
        pages
    }

    fn scan(&mut self, hour: i64) -> (Scan, Vec<FlatPage>) {
        match self.below(6) {
            0 => {
                let statuses = ["NEW", "PAUSED"].map(|status| (self.below(3) as i64, status, ["how?", "why?"]));
                let surveys: Vec<(i64, &str, &[&str])> = statuses
                    .iter()
                    .enumerate()
                    .map(|(at, (id, status, questions))| (id + 3 * at as i64, *status, questions.as_slice()))
                    .collect();
                (scan(Stream::Surveys, hour, -1000, 1000, FlagSet::EMPTY), vec![survey_page(&surveys)])
            }
            1 => {
                let text = format!("theme {}", self.below(3));
                let themes = [(self.below(4) as i64, text.as_str()), (9, "theme")];
                (scan(Stream::Themes, hour, 0, 1, FlagSet::EMPTY), vec![theme_page(&themes)])
            }
            _ => {
                let first = self.below(DAYS) as i64;
                let bits = if self.below(2) == 0 { 31 } else { self.below(32) as u8 };
                let mut scan =
                    scan(Stream::Responses, hour, first, first + 1 + self.below(30) as i64, FlagSet::from_bits(bits));
                scan.scope.survey_id = (self.below(4) == 0).then_some(7);
                let pages = self.answers(&scan);
                (scan, pages)
            }
        }
    }
}

fn apply(destination: &mut dyn Destination, scan: &Scan, pages: &[FlatPage], vanish: VanishPolicy) -> Applied {
    destination.begin(scan).unwrap();
    pages.iter().for_each(|page| destination.stage(page).unwrap());
    destination.commit(scan, &CommitOptions { vanish, record_unchanged: false, ..CommitOptions::default() }).unwrap()
}

#[test]
fn p2_both_warehouses_hold_the_same_rows_after_the_same_scans() {
    hold_the_same_rows(16);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_both_warehouses_hold_the_same_rows_after_more_of_the_same_scans() {
    hold_the_same_rows(40);
}

fn hold_the_same_rows(scans: i64) {
    let mut totals = RowCounts::default();
    for seed in 0..3 {
        let folder = new_folder();
        let (file, root) = (folder.path().join("w.duckdb"), folder.path().join("parquet"));
        let engine_options =
            EngineOptions { memory_limit_bytes: 256 << 20, threads: 1, temp_directory: folder.path().join("spill") };
        let mut duckdb = DuckDbDestination::open(&file, &identity(), &engine_options).unwrap();
        let mut parquet = ParquetDestination::open(&root, &identity(), &options()).unwrap();
        let mut service = Service { random: Scenario::new(seed, DAYS), answers: BTreeMap::new(), next_group: 0 };
        (0..8).for_each(|_| service.live());
        for hour in 0..scans {
            service.live();
            let (scan, pages) = service.scan(hour);
            let vanish = match service.below(2) {
                0 => VanishPolicy::Accept,
                _ => VanishPolicy::Guarded { share_max: 0.02, rows_max: 0 },
            };
            let one = apply(&mut duckdb, &scan, &pages, vanish);
            assert_eq!(apply(&mut parquet, &scan, &pages, vanish), one, "seed {seed}, {scan:?}");
            add(&mut totals, one.counts);
            match service.below(8) {
                0 => parquet.publish().unwrap(),
                1 => {
                    drop(parquet);
                    parquet = ParquetDestination::open(&root, &identity(), &options()).unwrap();
                }
                _ => {}
            }
        }
        duckdb.publish().unwrap();
        parquet.publish().unwrap();
        assert_same_tables(&file, &root, seed);
    }
    // A comparison of nothing would prove nothing.
    let seen = [totals.inserted, totals.updated, totals.unchanged, totals.soft_deleted, totals.vanished];
    let seen = seen.into_iter().chain([totals.withheld, totals.rejected, totals.collisions, totals.outside_window]);
    assert!(seen.min() > Some(0), "{totals:?}");
}

fn add(totals: &mut RowCounts, counts: RowCounts) {
    totals.inserted += counts.inserted;
    totals.updated += counts.updated;
    totals.unchanged += counts.unchanged;
    totals.soft_deleted += counts.soft_deleted;
    totals.vanished += counts.vanished;
    totals.withheld += counts.withheld;
    totals.rejected += counts.rejected;
    totals.collisions += counts.collisions;
    totals.outside_window += counts.outside_window;
}

/// Compares all columns of all tables, both ways, and how often each row is there.
fn assert_same_tables(file: &Path, root: &Path, seed: u64) {
    let mut reader = Reader::open(Some(file), Some(root)).unwrap();
    for table in crate::schema::tables() {
        let name = &table.name;
        for (one, other) in [("warehouse", "parquet"), ("parquet", "warehouse")] {
            let sql = format!("SELECT * FROM {one}.main.{name} EXCEPT ALL SELECT * FROM {other}.main.{name}");
            let only = reader.query(&sql, 10).unwrap();
            let shown = arrow::util::pretty::pretty_format_batches(&only.batches).unwrap();
            assert_eq!(only.rows(), 0, "seed {seed}: {name} has rows in {one} only:\n{shown}");
        }
    }
}
