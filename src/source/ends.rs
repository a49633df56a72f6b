//! How many pages deep, and how long, the tokens of lists live. A list can end with a 404 on its last page's token, as
//! some services say it and as the schema of themes reads; a token that died looks the same. Where tokens that stand
//! deeper in a list were answered, and others that were as old,
//! this one died neither of its depth nor of its age. Known for one run.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::model::Stream;

/// What is known of the tokens of each stream.
#[derive(Debug, Default)]
pub(super) struct TokenLives([Lives; Stream::ALL.len()]);

#[derive(Debug, Default)]
struct Lives {
    /// The pages of the longest list.
    deepest: AtomicU64,
    /// The age of the oldest token that was answered with a page, in microseconds.
    oldest_us: AtomicU64,
}

impl TokenLives {
    /// So many pages of a list came, each but the first for a token. That of the last was so old;
    /// `None` for a first page.
    pub fn came(&self, stream: Stream, pages: u64, age: Option<Duration>) {
        let Some(lives) = self.of(stream) else { return };
        lives.deepest.fetch_max(pages, Ordering::Relaxed);
        if let Some(age) = age {
            lives.oldest_us.fetch_max(micros(age), Ordering::Relaxed);
        }
    }

    /// Whether a token behind so many pages was answered in some list, and one that was as old.
    pub fn has_lived(&self, stream: Stream, pages: u64, age: Duration) -> bool {
        self.of(stream).is_some_and(|lives| {
            pages < lives.deepest.load(Ordering::Relaxed) && micros(age) <= lives.oldest_us.load(Ordering::Relaxed)
        })
    }

    fn of(&self, stream: Stream) -> Option<&Lives> {
        let at = Stream::ALL.iter().position(|known| *known == stream)?;
        self.0.get(at)
    }
}

fn micros(age: Duration) -> u64 {
    u64::try_from(age.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_lived_if_others_were_as_deep_and_as_old() {
        let (lives, ms) = (TokenLives::default(), Duration::from_millis);
        lives.came(Stream::Responses, 1, None);
        assert!(!lives.has_lived(Stream::Responses, 0, ms(1)), "no token was answered yet");
        lives.came(Stream::Responses, 3, Some(ms(20)));
        for (pages, age, has_lived) in [(2, 20, true), (2, 21, false), (3, 20, false), (1, 0, true)] {
            assert_eq!(lives.has_lived(Stream::Responses, pages, ms(age)), has_lived, "{pages} {age}");
            assert!(!lives.has_lived(Stream::Themes, pages, ms(age)));
        }
    }
}
