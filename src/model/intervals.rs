//! Sets of milliseconds as sorted, disjoint, half-open windows.
//!
//! Integers and half-open ends only: adjacent windows always merge, whatever the granularity of the service's clock.

use super::Window;

/// A set of milliseconds. Its windows are sorted, disjoint, not adjacent and not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    windows: Vec<Window>,
}

impl IntervalSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The windows, in order.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// The number of milliseconds inside.
    pub fn len_ms(&self) -> i64 {
        self.windows.iter().map(|window| window.len_ms()).sum()
    }

    /// The least window around everything inside.
    pub fn bounding_range(&self) -> Option<Window> {
        Some(Window::new(self.windows.first()?.start_ms, self.windows.last()?.end_ms))
    }

    /// Adds a window; what it touches merges with it.
    pub fn insert(&mut self, window: Window) {
        if window.is_empty() {
            return;
        }
        let first = self.windows.partition_point(|held| held.end_ms < window.start_ms);
        let last = self.windows.partition_point(|held| held.start_ms <= window.end_ms);
        let merged = self.windows[first..last].iter().fold(window, |merged, held| {
            Window::new(merged.start_ms.min(held.start_ms), merged.end_ms.max(held.end_ms))
        });
        self.windows.splice(first..last, [merged]);
    }

    /// Takes a window out.
    pub fn remove(&mut self, window: Window) {
        if window.is_empty() {
            return;
        }
        let first = self.windows.partition_point(|held| held.end_ms <= window.start_ms);
        let last = self.windows.partition_point(|held| held.start_ms < window.end_ms);
        let rests: Vec<Window> = self.windows[first..last]
            .iter()
            .flat_map(|held| {
                [
                    Window::new(held.start_ms, window.start_ms.min(held.end_ms)),
                    Window::new(window.end_ms.max(held.start_ms), held.end_ms),
                ]
            })
            .filter(|rest| !rest.is_empty())
            .collect();
        self.windows.splice(first..last, rests);
    }

    /// Whether all of the window is inside.
    pub fn covers(&self, window: Window) -> bool {
        window.is_empty() || {
            let at = self.windows.partition_point(|held| held.end_ms <= window.start_ms);
            self.windows.get(at).is_some_and(|held| held.start_ms <= window.start_ms && window.end_ms <= held.end_ms)
        }
    }

    /// What of the window is not inside, in order.
    pub fn gaps_in(&self, window: Window) -> Vec<Window> {
        let mut gaps = IntervalSet::new();
        gaps.insert(window);
        for held in &self.windows {
            gaps.remove(*held);
        }
        gaps.windows
    }

    /// What both sets hold.
    #[must_use]
    pub fn intersect(&self, other: &IntervalSet) -> IntervalSet {
        let mut both = IntervalSet::new();
        for mine in &self.windows {
            for theirs in &other.windows {
                both.insert(mine.intersect(*theirs));
            }
        }
        both
    }
}

impl FromIterator<Window> for IntervalSet {
    /// Sorted first, so that the cost does not grow with the square of their number.
    fn from_iter<I: IntoIterator<Item = Window>>(windows: I) -> Self {
        let mut sorted: Vec<Window> = windows.into_iter().filter(|window| !window.is_empty()).collect();
        sorted.sort_unstable_by_key(|window| window.start_ms);
        let mut merged: Vec<Window> = Vec::with_capacity(sorted.len());
        for window in sorted {
            match merged.last_mut() {
                Some(last) if window.start_ms <= last.end_ms => last.end_ms = last.end_ms.max(window.end_ms),
                _ => merged.push(window),
            }
        }
        Self { windows: merged }
    }
}

#[cfg(test)]
mod tests;
