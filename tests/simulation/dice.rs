//! The random numbers of a seed. The same seed gives the same script on every machine.

/// A sequence of random numbers. Each purpose of a seed has its own sequence, so that one part of a script can change
/// alone.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64, purpose: u64) -> Dice {
        let mut dice = Dice(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.bits();
        dice
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number from 0 to `end`, excluding `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.bits() % end }
    }

    /// Returns a number of the range, including both ends.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from + 1).unsigned_abs()) as i64
    }

    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// Returns mostly small numbers, and sometimes a number up to `2^powers`.
    pub fn skewed(&mut self, powers: u64) -> u64 {
        let scale = 1 << self.below(powers + 1);
        1 + self.below(scale)
    }
}
