//! Compares the set with a bit map of the same small range.

use proptest::prelude::*;

use super::*;

const RANGE: i64 = 64;

#[derive(Clone, Debug)]
enum Change {
    Insert(Window),
    Remove(Window),
}

fn window() -> impl Strategy<Value = Window> {
    (0..RANGE, 0..RANGE).prop_map(|(start_ms, end_ms)| Window { start_ms, end_ms })
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(prop_oneof![window().prop_map(Change::Insert), window().prop_map(Change::Remove)], 0..24)
}

fn run(changes: &[Change]) -> (IntervalSet, [bool; RANGE as usize]) {
    let (mut set, mut bits) = (IntervalSet::new(), [false; RANGE as usize]);
    for change in changes {
        let (window, value) = match change {
            Change::Insert(window) => (*window, true),
            Change::Remove(window) => (*window, false),
        };
        if value {
            set.insert(window)
        } else {
            set.remove(window)
        }
        (window.start_ms..window.end_ms).for_each(|at| bits[at as usize] = value);
    }
    (set, bits)
}

proptest! {
    #[test]
    fn collecting_windows_equals_inserting_them(windows in prop::collection::vec(window(), 0..24)) {
        let mut inserted = IntervalSet::new();
        windows.iter().for_each(|window| inserted.insert(*window));
        prop_assert_eq!(windows.into_iter().collect::<IntervalSet>(), inserted);
    }

    #[test]
    fn a_set_equals_its_bit_map(changes in changes(), probe in window()) {
        let (set, bits) = run(&changes);
        for at in 0..RANGE {
            let inside = set.windows().iter().any(|window| window.contains(at));
            prop_assert_eq!(inside, bits[at as usize]);
        }
        for pair in set.windows().windows(2) {
            prop_assert!(pair[0].end_ms < pair[1].start_ms, "adjacent or overlapping: {:?}", pair);
        }
        prop_assert!(set.windows().iter().all(|window| !window.is_empty()));
        let covered = (probe.start_ms..probe.end_ms).all(|at| bits[at as usize]);
        prop_assert_eq!(set.covers(probe), covered);
        let gaps = set.gaps_in(probe);
        for at in 0..RANGE {
            let is_gap = gaps.iter().any(|gap| gap.contains(at));
            prop_assert_eq!(is_gap, probe.contains(at) && !bits[at as usize]);
        }
        prop_assert_eq!(set.len_ms() as usize, bits.iter().filter(|bit| **bit).count());
    }

    #[test]
    fn an_intersection_has_the_milliseconds_of_both(left in changes(), right in changes()) {
        let ((left, left_bits), (right, right_bits)) = (run(&left), run(&right));
        let both = left.intersect(&right);
        for at in 0..RANGE {
            let inside = both.windows().iter().any(|window| window.contains(at));
            prop_assert_eq!(inside, left_bits[at as usize] && right_bits[at as usize]);
        }
    }
}

#[test]
fn widening_to_seconds_contains_the_window() {
    for (start_ms, end_ms, wider) in [
        (0, 1000, [0, 1000]),
        (1, 1001, [0, 2000]),
        (999, 999, [0, 1000]),
        (-1, 1, [-1000, 1000]),
        (-1001, -1000, [-2000, -1000]),
    ] {
        assert_eq!(Window::new(start_ms, end_ms).widened_to_seconds(), Window::new(wider[0], wider[1]));
    }
    let all = Window::new(i64::MIN, i64::MAX).widened_to_seconds();
    assert!(all.start_ms == i64::MIN && all.end_ms >= i64::MAX - SECOND_MS);
}
