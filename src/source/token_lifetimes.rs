//! Records up to which page of a list, and up to what age, page tokens were still answered in this run.
//!
//! A 404 on a page token means either the end of the list or a dead token. If tokens of later pages and older tokens
//! were answered, then neither the number of pages nor the age killed the token: the list has ended.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::model::Stream;

/// The token lifetimes that this run has seen, by stream.
#[derive(Debug, Default)]
pub(super) struct TokenLifetimes([StreamLifetimes; Stream::ALL.len()]);

/// What this run has seen of the tokens of one stream.
#[derive(Debug, Default)]
struct StreamLifetimes {
    /// The largest number of pages that a walk has read from the start of its window.
    deepest: AtomicU64,
    /// Age in microseconds of the oldest token that was answered with a page.
    oldest_us: AtomicU64,
}

impl TokenLifetimes {
    /// Records that a walk has read `pages` pages from the start of its window. `age` is the age of the token that
    /// requested the last page; `None` for a first page.
    pub fn record_page(&self, stream: Stream, pages: u64, age: Option<Duration>) {
        let Some(lives) = self.of(stream) else { return };
        lives.deepest.fetch_max(pages, Ordering::Relaxed);
        if let Some(age) = age {
            lives.oldest_us.fetch_max(micros(age), Ordering::Relaxed);
        }
    }

    /// Returns true if the run has seen an answer to a token after `pages` pages, and an answer to a token of this age.
    pub fn is_proven(&self, stream: Stream, pages: u64, age: Duration) -> bool {
        self.of(stream).is_some_and(|lives| {
            pages < lives.deepest.load(Ordering::Relaxed) && micros(age) <= lives.oldest_us.load(Ordering::Relaxed)
        })
    }

    fn of(&self, stream: Stream) -> Option<&StreamLifetimes> {
        let index = Stream::ALL.iter().position(|known| *known == stream)?;
        self.0.get(index)
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
        let (lives, ms) = (TokenLifetimes::default(), Duration::from_millis);
        lives.record_page(Stream::Responses, 1, None);
        assert!(!lives.is_proven(Stream::Responses, 0, ms(1)), "no token was answered yet");
        lives.record_page(Stream::Responses, 3, Some(ms(20)));
        for (pages, age, is_proven) in [(2, 20, true), (2, 21, false), (3, 20, false), (1, 0, true)] {
            assert_eq!(lives.is_proven(Stream::Responses, pages, ms(age)), is_proven, "{pages} {age}");
            assert!(!lives.is_proven(Stream::Themes, pages, ms(age)));
        }
    }
}
