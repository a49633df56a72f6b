//! Finds hashes of keys: a filter, and a search among sorted hashes.

/// Bits of a filter for each key.
const BITS_PER_KEY: usize = 16;
/// Largest number of bits of a filter: 32 MiB. With more than 16 million keys, it finds more hashes than it has.
const BITS_MAX: usize = 1 << 28;
/// First step of a search.
const STEP: usize = 16;

/// A set of hashes that may say that it contains a hash which it does not contain. It is small enough for the cache of
/// a processor, so that most rows of a table need no search.
#[derive(Debug)]
pub(super) struct HashFilter {
    bits: Vec<u64>,
    shift: u32,
}

impl HashFilter {
    /// Creates an empty filter. If it gets more keys than it has room for, it says of more hashes that it contains
    /// them.
    pub fn with_room_for(keys: usize) -> Self {
        let bits = (keys * BITS_PER_KEY).clamp(64, BITS_MAX).next_power_of_two();
        Self { bits: vec![0; bits / 64], shift: u64::BITS - bits.trailing_zeros() }
    }

    pub fn add(&mut self, hash: u64) {
        for (word, bit) in self.places(hash) {
            self.bits.get_mut(word).into_iter().for_each(|word| *word |= bit);
        }
    }

    /// Returns the words and their bits of a hash: two, which are set by chance for one of 70 other hashes.
    fn places(&self, hash: u64) -> [(usize, u64); 2] {
        [hash, hash.rotate_left(32)].map(|hash| {
            let bit = hash >> self.shift;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    pub fn may_contain(&self, hash: u64) -> bool {
        let is_set = |(word, bit): (usize, u64)| self.bits.get(word).is_some_and(|word| word & bit != 0);
        self.places(hash).into_iter().all(is_set)
    }
}

/// Returns the items with a hash, of items that are sorted by their hashes. Hashes are spread evenly, so the search
/// begins where the hash should be: a binary search of 500,000 items takes three times as long.
pub(super) fn sorted_by_hash<T>(items: &[T], hash_of: impl Fn(&T) -> u64, hash: u64) -> &[T] {
    let expected = ((u128::from(hash) * items.len() as u128) >> u64::BITS) as usize;
    let is_before = |index: usize| items.get(index).is_some_and(|item| hash_of(item) < hash);
    let (mut start, mut end, mut step) = (expected, expected, STEP);
    while start > 0 && !is_before(start) {
        start = start.saturating_sub(step);
        step *= 2;
    }
    step = STEP;
    while end < items.len() && is_before(end) {
        end = (end + step).min(items.len());
        step *= 2;
    }
    let first = start + items.get(start..end).map_or(0, |near| near.partition_point(|item| hash_of(item) < hash));
    let rest = items.get(first..).unwrap_or_default();
    let count = rest.iter().take_while(|item| hash_of(item) == hash).count();
    rest.get(..count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_its_hashes_and_few_others() {
        let mut filter = HashFilter::with_room_for(10_000);
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..10_000).for_each(|number| filter.add(hash(number)));
        assert!((0..10_000).all(|number| filter.may_contain(hash(number))));
        let others = (10_000..110_000).filter(|number| filter.may_contain(hash(*number))).count();
        assert!(others < 3_000, "{others}");
    }

    proptest::proptest! {
        #[test]
        fn a_search_finds_what_a_scan_finds(
            mut items in proptest::collection::vec(proptest::prop_oneof![0..8u64, proptest::prelude::any::<u64>()], 0..200),
            other in proptest::prelude::any::<u64>(),
        ) {
            items.sort_unstable();
            for hash in items.iter().copied().chain([other, 0, 7, u64::MAX]) {
                let expected: Vec<u64> = items.iter().copied().filter(|item| *item == hash).collect();
                proptest::prop_assert_eq!(sorted_by_hash(&items, |item| *item, hash), &expected[..]);
            }
        }
    }
}
