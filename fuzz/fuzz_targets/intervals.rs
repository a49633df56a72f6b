//! Compares sets of milliseconds with a naive model, which has one flag per millisecond. Four bytes are one step.

#![no_main]

use libfuzzer_sys::fuzz_target;
use studysync::model::{IntervalSet, Window};

const SIZE: usize = 256;

/// The model's first millisecond. The arithmetic must not depend on it.
fn origin(selector: u8) -> i64 {
    match selector % 4 {
        0 => 0,
        1 => -128,
        2 => i64::MAX - SIZE as i64,
        _ => i64::MIN,
    }
}

fn check(set: &IntervalSet, model: &[bool; SIZE], origin: i64) {
    let at = |ms: i64| (ms - origin) as usize;
    let mut seen = [false; SIZE];
    let mut last_end_ms = None;
    for window in set.windows() {
        assert!(window.start_ms < window.end_ms, "an empty window: {window:?}");
        assert!(last_end_ms.is_none_or(|last| last < window.start_ms), "not sorted, or adjacent: {set:?}");
        last_end_ms = Some(window.end_ms);
        seen[at(window.start_ms)..at(window.end_ms)].fill(true);
    }
    assert_eq!(&seen, model);
    let inside = model.iter().filter(|is_inside| **is_inside).count();
    assert_eq!(set.len_ms(), inside as i64);
    assert_eq!(set.is_empty(), inside == 0);
    let ends = model.iter().position(|is_inside| *is_inside).zip(model.iter().rposition(|is_inside| *is_inside));
    let bounding_range = ends.map(|(first, last)| Window::new(origin + first as i64, origin + last as i64 + 1));
    assert_eq!(set.bounding_range(), bounding_range);
}

fuzz_target!(|input: &[u8]| {
    let Some((selector, steps)) = input.split_first() else { return };
    let origin = origin(*selector);
    let mut sets = [IntervalSet::new(), IntervalSet::new()];
    let mut models = [[false; SIZE]; 2];
    for step in steps.chunks_exact(4) {
        let (kind, which, from, to) = (step[0] % 6, usize::from(step[1] & 1), step[2], step[3]);
        let window = Window::new(origin + i64::from(from), origin + i64::from(to));
        let range = usize::from(from)..usize::from(to.max(from));
        let (set, model) = (&mut sets[which], &mut models[which]);
        match kind {
            0 => {
                set.insert(window);
                model[range].fill(true);
            }
            1 => {
                set.remove(window);
                model[range].fill(false);
            }
            2 => assert_eq!(set.covers(window), model[range].iter().all(|is_inside| *is_inside)),
            3 => {
                let gaps: IntervalSet = set.gaps_in(window).into_iter().collect();
                let mut outside = [false; SIZE];
                range.for_each(|at| outside[at] = !model[at]);
                check(&gaps, &outside, origin);
            }
            4 => {
                let both = sets[0].intersect(&sets[1]);
                check(&both, &std::array::from_fn(|at| models[0][at] && models[1][at]), origin);
            }
            _ => {
                let copy: IntervalSet = set.windows().iter().rev().copied().collect();
                assert_eq!(&copy, &*set, "the order of insertion shows");
            }
        }
        check(&sets[which], &models[which], origin);
    }
});
