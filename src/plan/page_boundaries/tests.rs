//! Services that keep, repeat and lose ties, in any order and with any page size, against the boundary logic.

use proptest::prelude::*;

use super::*;

type Row = (i64, u128);

/// A list in some order of time, and how its page tokens treat ties.
#[derive(Clone, Debug)]
struct Service {
    rows: Vec<Row>,
    ties: Ties,
}

impl Service {
    /// `order` 0: newest first, 1: oldest first, 2: no order of time, but rows of one millisecond together.
    fn new(mut rows: Vec<Row>, order: u8, ties: Ties) -> Service {
        let scatter = |ms: i64| (ms as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        rows.sort_by_key(|(ms, key)| (*ms, *key));
        match order {
            0 => rows.reverse(),
            1 => {}
            _ => rows.sort_by_key(|(ms, key)| (scatter(*ms), *key)),
        }
        Service { rows, ties }
    }

    /// Returns the pages of a list, up to a loop, each with whether a page token follows.
    fn pages(&self, keep: impl Fn(i64) -> bool, page_rows: usize) -> (Vec<(Vec<Row>, bool)>, bool) {
        let rows: Vec<Row> = self.rows.iter().copied().filter(|(ms, _)| keep(*ms)).collect();
        let (mut at, mut pages) = (0, Vec::new());
        loop {
            let page: Vec<Row> = rows[at..].iter().copied().take(page_rows).collect();
            let end = at + page.len();
            let has_next = end < rows.len();
            let last_ms = page.last().map(|(ms, _)| *ms);
            pages.push((page, has_next));
            if !has_next {
                return (pages, true);
            }
            let same = |(ms, _): &Row| Some(*ms) == last_ms;
            let next = match self.ties {
                Ties::Lost => rows.iter().rposition(same).map_or(end, |at| at + 1),
                Ties::Repeated => rows.iter().position(same).unwrap_or(end),
                _ => end,
            };
            if next == at {
                return (pages, false);
            }
            at = next;
        }
    }

    fn probe(&self, at_ms: i64) -> HashSet<u128> {
        self.rows.iter().filter(|(ms, _)| *ms == at_ms).map(|(_, key)| *key).collect()
    }
}

fn moments(page: &[Row]) -> PageMoments {
    let rows = page.iter().map(|(ms, key)| (Some(*ms), *key)).collect();
    PageMoments::new(rows, page.last().map(|(ms, _)| *ms), page.len())
}

/// Scans a list. Returns the keys, the boundaries and the number of probes.
fn scan(service: &Service, page_rows: usize, belief: Ties) -> (HashSet<u128>, ScanBoundaries, usize) {
    let (mut boundaries, mut sampler) = (ScanBoundaries::new(0), BoundarySampler::default());
    let (mut pulled, mut probes) = (HashSet::new(), 0);
    let (pages, _) = service.pages(|_| true, page_rows);
    for (page, has_next) in pages {
        pulled.extend(page.iter().map(|(_, key)| *key));
        let page = moments(&page);
        let due = boundaries.page(&page, has_next, None, belief, |is_shared| sampler.is_due(belief, is_shared));
        if let Some(boundary) = due {
            probes += 1;
            let found = service.probe(boundary.at_ms);
            boundaries.probed(&boundary, &found, belief, Ok(()));
            pulled.extend(found);
        }
    }
    while let Some(boundary) = boundaries.next_waiting(belief) {
        probes += 1;
        let found = service.probe(boundary.at_ms);
        boundaries.probed(&boundary, &found, belief, Ok(()));
        pulled.extend(found);
    }
    (pulled, boundaries, probes)
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec((0..60i64, 1..8usize), 1..40).prop_map(|groups| {
        let rows = groups.into_iter().flat_map(|(ms, count)| std::iter::repeat_n(ms, count));
        rows.enumerate().map(|(key, ms)| (ms, key as u128)).collect()
    })
}

proptest! {
    /// A probe at every boundary finds all rows that a service loses, for any order and page size.
    #[test]
    fn p3_tie_probes_find_every_lost_row(rows in rows(), order in 0..3u8, page_rows in 1..20usize) {
        let service = Service::new(rows, order, Ties::Lost);
        let all: HashSet<u128> = service.rows.iter().map(|(_, key)| *key).collect();
        for belief in [Ties::Unknown, Ties::Lost] {
            let (pulled, boundaries, probes) = scan(&service, page_rows, belief);
            prop_assert_eq!(&pulled, &all);
            prop_assert!(!boundaries.needs_recheck(belief));
            prop_assert!(probes < service.pages(|_| true, page_rows).0.len());
        }
    }

    /// The measure finds the behaviour from the rows of one millisecond and its neighbours.
    #[test]
    fn a_measure_finds_how_the_service_treats_ties(rows in rows(), order in 0..3u8) {
        for ties in [Ties::Kept, Ties::Repeated, Ties::Lost] {
            let service = Service::new(rows.clone(), order, ties);
            let Some(at_ms) = moments(&service.rows).tie_ms else { continue };
            let all = service.probe(at_ms);
            let page_rows = measuring_page_rows(all.len()) as usize;
            let (mut pages, has_end) = service.pages(|ms| (at_ms - 1..=at_ms + 1).contains(&ms), page_rows);
            if !has_end {
                // The walk requests the page twice before it detects the loop.
                pages.push(pages[pages.len() - 1].clone());
            }
            let walked: Vec<u128> = pages.iter().flat_map(|(page, _)| page).map(|(_, key)| *key).collect();
            let end = if has_end { WalkEnd::OfResults } else { WalkEnd::Loop };
            prop_assert_eq!(judge(&all, &walked, pages.len(), end), ties);
            // A walk that ends early, or has a page twice by mistake, never hides that a service loses rows.
            if ties == Ties::Lost {
                for length in 0..=walked.len() {
                    let twice = [&walked[..length], &walked[..length]].concat();
                    let judged = judge(&all, &twice, 2, WalkEnd::BrokenOff);
                    prop_assert_eq!(judged, Ties::Unknown, "{} rows", length);
                }
            }
        }
    }

    /// A sample finds lost rows. In a list in order of time that loses none, it finds nothing.
    #[test]
    fn a_sample_finds_lost_rows_without_false_alarms(rows in rows(), order in 0..2u8, page_rows in 8..20usize) {
        let service = Service::new(rows, order, Ties::Lost);
        let (pulled, boundaries, _) = scan(&service, page_rows, Ties::Kept);
        let (pages, _) = service.pages(|_| true, page_rows);
        let first = &pages[0].0;
        let edge_ms = first[first.len() - 1].0;
        let lost: Vec<u128> = service.probe(edge_ms).into_iter().filter(|key| !first.iter().any(|row| row.1 == *key)).collect();
        prop_assert_eq!(boundaries.missed().contains(&edge_ms), !lost.is_empty());
        prop_assert!(lost.iter().all(|key| pulled.contains(key)), "the scan includes the rows of a probe");
        for ties in [Ties::Kept, Ties::Repeated] {
            let service = Service { ties, ..service.clone() };
            if service.pages(|_| true, page_rows).1 {
                prop_assert_eq!(scan(&service, page_rows, ties).1.missed(), Vec::<i64>::new());
            }
        }
    }
}

#[test]
fn p3_an_unresolved_boundary_needs_recheck_if_rows_can_be_lost() {
    let page = moments(&[(5, 1), (7, 2), (7, 3)]);
    for (belief, needs_recheck) in
        [(Ties::Unknown, true), (Ties::Lost, true), (Ties::Kept, false), (Ties::Repeated, false)]
    {
        let mut boundaries = ScanBoundaries::new(0);
        let boundary =
            boundaries.page(&page, true, None, belief, |_| true).or_else(|| boundaries.next_waiting(belief)).unwrap();
        assert_eq!(boundary, PageBoundary { at_ms: 7, shown: HashSet::from([2, 3]), page_rows: 3 });
        boundaries.probed(&boundary, &HashSet::from([2, 3, 4]), belief, Err("more than a page"));
        assert_eq!(boundaries.needs_recheck(belief), needs_recheck, "{belief}");
        assert_eq!(boundaries.unresolved().0[0].at_ms, Some(7));
        let mut boundaries = ScanBoundaries::new(0);
        boundaries.probed(&boundary, &HashSet::from([2]), belief, Ok(()));
        assert_eq!(boundaries.has_changed(), needs_recheck, "{belief}: worth another scan");
        assert!(boundaries.try_again() && !boundaries.has_changed() && !boundaries.needs_recheck(belief));
        boundaries.probed(&boundary, &HashSet::from([2]), belief, Ok(()));
        assert!(!boundaries.has_changed(), "{belief}: no third scan");
        assert_eq!(
            boundaries.needs_recheck(belief),
            needs_recheck,
            "{belief}: a probe that lacks what the page had proves nothing"
        );
        let unreadable = PageMoments { last_ms: None, ..page.clone() };
        let mut boundaries = ScanBoundaries::new(0);
        assert_eq!(boundaries.page(&unreadable, true, None, belief, |_| true), None);
        assert_eq!(boundaries.needs_recheck(belief), needs_recheck, "{belief}: a boundary without a time");
    }
}

#[test]
fn boundaries_are_probed_once_and_only_inside_the_window() {
    let mut boundaries = ScanBoundaries::new(0);
    let page = moments(&[(5, 1), (7, 2)]);
    let window = Some(Window::new(6, 9));
    assert_eq!(boundaries.page(&page, false, window, Ties::Lost, |_| true), None, "the last page has no boundary");
    assert_eq!(
        boundaries.page(&moments(&[]), true, window, Ties::Lost, |_| true),
        None,
        "an empty page has none either"
    );
    assert_eq!(boundaries.page(&moments(&[(5, 1)]), true, window, Ties::Lost, |_| true), None, "outside the window");
    let boundary = boundaries.page(&page, true, window, Ties::Lost, |_| true).unwrap();
    assert_eq!(boundary.at_ms, 7);
    boundaries.probed(&boundary, &HashSet::from([2, 3]), Ties::Lost, Ok(()));
    assert_eq!(boundaries.page(&moments(&[(7, 3)]), true, window, Ties::Lost, |_| true), None, "its rows are known");
    assert_eq!(boundaries.page(&moments(&[(8, 4)]), true, window, Ties::Kept, |_| false), None);
    assert_eq!(boundaries.unprobed(), 1);
    assert!(
        boundaries.needs_recheck(Ties::Lost) && !boundaries.needs_recheck(Ties::Kept),
        "known to lose rows only later"
    );
    assert!(boundaries.try_again() && boundaries.unprobed() == 0);
    boundaries.start_over();
    assert!(!boundaries.try_again(), "a window starts over once");
}

#[test]
fn boundaries_wait_while_the_behaviour_is_unknown() {
    let pages = [[(5, 1), (7, 2)], [(7, 3), (7, 4)], [(8, 5), (9, 6)]].map(|rows| moments(&rows));
    for (belief, probed) in [(Ties::Unknown, 2), (Ties::Lost, 2), (Ties::Kept, 0), (Ties::Repeated, 0)] {
        let mut boundaries = ScanBoundaries::new(0);
        for page in &pages {
            assert_eq!(boundaries.page(page, true, None, Ties::Unknown, |_| true), None, "it waits");
        }
        let waited: Vec<PageBoundary> = std::iter::from_fn(|| boundaries.next_waiting(belief)).collect();
        assert_eq!(waited.len(), probed, "{belief}");
        assert_eq!(boundaries.unprobed(), 2 - probed as u64, "{belief}");
        if let Some(boundary) = waited.iter().find(|boundary| boundary.at_ms == 7) {
            assert_eq!(boundary.shown, HashSet::from([2, 3, 4]), "one probe for a millisecond of several pages");
        }
        boundaries.start_over();
        assert_eq!(boundaries.next_waiting(Ties::Lost), None, "another scan has its own boundaries");
    }
}

#[test]
fn samples_include_the_first_shared_boundary() {
    let mut sampler = BoundarySampler::default();
    let taken: Vec<bool> = (0..200).map(|at| sampler.is_due(Ties::Kept, at == 10 || at == 20)).collect();
    let at: Vec<usize> = taken.iter().enumerate().filter(|(_, taken)| **taken).map(|(at, _)| at).collect();
    assert_eq!(at, [0, 10, 64, 128, 192]);
    assert!((0..10).all(|_| sampler.is_due(Ties::Lost, false) && sampler.is_due(Ties::Unknown, false)));
}

#[test]
fn a_sorted_page_shows_how_much_of_the_window_is_read() {
    let covered_ms = |times: &[i64]| {
        let rows = times.iter().map(|at_ms| (Some(*at_ms), 0)).collect();
        PageMoments::new(rows, None, times.len()).covered_ms(Window::new(100, 200))
    };
    assert_eq!([covered_ms(&[100, 110, 130]), covered_ms(&[199, 180, 180])], [Some(30), Some(20)]);
    // The service may return records outside of the window.
    assert_eq!([covered_ms(&[90, 99]), covered_ms(&[150, 99])], [Some(0), Some(100)]);
    assert_eq!([covered_ms(&[]), covered_ms(&[150]), covered_ms(&[150, 120, 130])], [None; 3]);
}
