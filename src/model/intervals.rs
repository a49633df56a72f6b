//! Sets of milliseconds, stored as sorted, disjoint, half-open windows. Windows that touch are merged.

use super::Window;

/// A set of milliseconds, stored as windows that are sorted, disjoint, not adjacent and not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    windows: Vec<Window>,
}

impl IntervalSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the windows, in order.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns the number of milliseconds in the set.
    pub fn len_ms(&self) -> i64 {
        self.windows.iter().map(|window| window.len_ms()).sum()
    }

    /// Returns the shortest window that contains the whole set; `None` if the set is empty.
    pub fn bounding_range(&self) -> Option<Window> {
        Some(Window::new(self.windows.first()?.start_ms, self.windows.last()?.end_ms))
    }

    /// Adds a window, and merges it with the windows that it overlaps or touches.
    pub fn insert(&mut self, window: Window) {
        if window.is_empty() {
            return;
        }
        let first = self.windows.partition_point(|stored| stored.end_ms < window.start_ms);
        let last = self.windows.partition_point(|stored| stored.start_ms <= window.end_ms);
        let merged = self.windows[first..last].iter().fold(window, |merged, stored| {
            Window::new(merged.start_ms.min(stored.start_ms), merged.end_ms.max(stored.end_ms))
        });
        self.windows.splice(first..last, [merged]);
    }

    /// Removes the milliseconds of a window.
    pub fn remove(&mut self, window: Window) {
        if window.is_empty() {
            return;
        }
        let first = self.windows.partition_point(|stored| stored.end_ms <= window.start_ms);
        let last = self.windows.partition_point(|stored| stored.start_ms < window.end_ms);
        let remaining: Vec<Window> = self.windows[first..last]
            .iter()
            .flat_map(|stored| {
                [
                    Window::new(stored.start_ms, window.start_ms.min(stored.end_ms)),
                    Window::new(window.end_ms.max(stored.start_ms), stored.end_ms),
                ]
            })
            .filter(|window| !window.is_empty())
            .collect();
        self.windows.splice(first..last, remaining);
    }

    /// Returns true if the set contains the whole window.
    pub fn covers(&self, window: Window) -> bool {
        window.is_empty() || {
            let at = self.windows.partition_point(|stored| stored.end_ms <= window.start_ms);
            self.windows
                .get(at)
                .is_some_and(|stored| stored.start_ms <= window.start_ms && window.end_ms <= stored.end_ms)
        }
    }

    /// Returns the ranges of the window that are not in the set, in order of time.
    pub fn gaps_in(&self, window: Window) -> Vec<Window> {
        let mut gaps = IntervalSet::new();
        gaps.insert(window);
        for stored in &self.windows {
            gaps.remove(*stored);
        }
        gaps.windows
    }

    /// Returns the milliseconds that are in both sets.
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
    /// Collects windows in O(n log n), which is faster than inserting them one by one.
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
