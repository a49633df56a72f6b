//! Pseudo-random numbers (SplitMix64). The same seed gives the same numbers on every machine and in every version. Not
//! for secrets.

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes two numbers to one number that looks random. Much data of the sandbox is derived from such numbers and not
/// stored.
pub(crate) fn mix(left: u64, right: u64) -> u64 {
    let mut z = left.wrapping_add(right.wrapping_add(1).wrapping_mul(GOLDEN));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Derives a version 4 UUID from a seed and a number.
pub(crate) fn uuid_of(seed: u64, number: u64) -> u128 {
    let high = (mix(seed, number) & !0xF000) | 0x4000;
    let low = (mix(!seed, number) & !(0b11 << 62)) | (0b10 << 62);
    (u128::from(high) << 64) | u128::from(low)
}

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Starts the sequence of a seed and a purpose. Different purposes have different sequences.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed, purpose))
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0, 0)
    }

    /// Draws a number below `bound`; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 64 by 64 bit product is below the bound.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws an index below `len`; 0 if `len` is 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Draws a number from `low` to `high`, both included; `low` if the range is empty.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        let width = high.saturating_sub(low).max(0) as u64;
        low + self.below(width.saturating_add(1)) as i64
    }

    /// Returns true in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns true with this probability, 0.0 to 1.0.
    pub(crate) fn chance(&mut self, share: f64) -> bool {
        ((self.next() >> 11) as f64) < share * (1_u64 << 53) as f64
    }

    /// Draws one of the items. Panics if there is none.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        // `index` is below the length, and callers pass lists that are not empty.
        &items[self.index(items.len())]
    }

    /// Draws an index of `weights`. The probability of an index is in proportion to its weight. Returns 0 if all
    /// weights are 0.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut rest = self.below(weights.iter().map(|weight| u64::from(*weight)).sum());
        for (index, weight) in weights.iter().enumerate() {
            match rest.checked_sub(u64::from(*weight)) {
                Some(left) => rest = left,
                None => return index,
            }
        }
        0
    }

    /// Puts the items into a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_never_change() {
        let mut random = Random::new(42, 7);
        let first: Vec<u64> = (0..3).map(|_| random.below(1_000_000)).collect();
        assert_eq!(first, FIRST, "a changed generator changes every data set that a bug report names by its seed");
        assert_eq!(format!("{:x}", uuid_of(1, 2) >> 76 & 0xf), "4");
    }

    const FIRST: [u64; 3] = [997_711, 166_446, 99_616];

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(1, 1);
        for _ in 0..10_000 {
            assert!((-3..=3).contains(&random.between(-3, 3)));
            assert!(random.index(5) < 5);
            assert!([1, 3].contains(&random.weighted(&[0, 2, 0, 5])));
        }
        assert_eq!(random.between(9, 3), 9);
        assert_eq!(random.below(0), 0);
    }
}
