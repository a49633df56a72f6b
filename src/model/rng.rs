//! Random numbers for ids and for the jitter of delays. Tests use a seed to repeat them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A source of random numbers: the system's, or a sequence from a seed. Clones share one sequence.
#[derive(Clone, Debug, Default)]
pub struct Rng(Option<Arc<AtomicU64>>);

impl Rng {
    /// Creates a sequence from a seed; the same seed gives the same numbers. The numbers can be predicted, so they must
    /// not be secrets.
    pub fn seeded(seed: u64) -> Rng {
        Rng(Some(Arc::new(AtomicU64::new(seed))))
    }

    /// Returns 64 random bits.
    pub fn bits(&self) -> u64 {
        let Some(state) = &self.0 else { return rand::random() };
        // SplitMix64.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number from 0 to 1, 1 excluded.
    pub fn fraction(&self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_a_fraction_is_below_1() {
        let (left, right) = (Rng::seeded(7), Rng::seeded(7));
        let drawn: Vec<f64> = (0..1000).map(|_| left.fraction()).collect();
        assert!(drawn.iter().all(|fraction| (0.0..1.0).contains(fraction) && *fraction == right.fraction()));
        assert!((drawn.iter().sum::<f64>() / 1000.0 - 0.5).abs() < 0.05);
        assert_ne!(Rng::default().bits(), Rng::default().bits());
    }
}
