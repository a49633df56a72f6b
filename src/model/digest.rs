//! What a set of records comes to, as one number.

use xxhash_rust::xxh3::xxh3_128;

/// Of a set of records: how many, and one number for all their keys and contents, in whatever order they come. Equal digests mean
/// the same keys, each as often, with the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Records.
    pub records: u64,
    /// The sum of a hash of each record, over 128 bits.
    pub sum: u128,
}

impl Digest {
    /// Takes in a record, by the hash of its key and that of its content.
    pub fn add(&mut self, key_hash: u128, row_hash: i64) {
        let mut both = [0; 24];
        both[..16].copy_from_slice(&key_hash.to_le_bytes());
        both[16..].copy_from_slice(&row_hash.to_le_bytes());
        self.records += 1;
        // Sums of well mixed numbers: a record counts as often as it comes, unlike with an exclusive or.
        self.sum = self.sum.wrapping_add(xxh3_128(&both));
    }

    /// Takes in other records.
    pub fn merge(&mut self, other: Digest) {
        self.records += other.records;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(records: &[(u128, i64)]) -> Digest {
        let mut digest = Digest::default();
        records.iter().for_each(|(key, row)| digest.add(*key, *row));
        digest
    }

    proptest! {
        #[test]
        fn an_order_makes_no_difference_and_any_record_does(
            records in prop::collection::vec((any::<u128>(), any::<i64>()), 1..20), at in any::<prop::sample::Index>(),
        ) {
            let whole = of(&records);
            let mut others = records.clone();
            others.reverse();
            prop_assert_eq!(of(&others), whole);
            let (left, right) = records.split_at(at.index(records.len()));
            let mut merged = of(left);
            merged.merge(of(right));
            prop_assert_eq!(merged, whole);
            let at = at.index(records.len());
            let (key, row) = records[at];
            for (key, row) in [(key ^ 1, row), (key, row ^ 1)] {
                others.clone_from(&records);
                others[at] = (key, row);
                prop_assert_ne!(of(&others), whole);
            }
            others.clone_from(&records);
            others.push(records[at]);
            prop_assert_ne!(of(&others), whole);
            others.push(records[at]);
            prop_assert_ne!(of(&others), whole, "twice more is not nothing");
        }
    }
}
