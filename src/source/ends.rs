//! How many pages deep the tokens of lists live. A list can end with a 404 on its last page's token, as some services say it and as the
//! schema of themes reads; a token that died looks the same. Where tokens that stand deeper in a list were answered, this one did not
//! die of its depth. Known for one run.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::Stream;

/// The pages of the longest list of each stream.
#[derive(Debug, Default)]
pub(super) struct TokenDepths([AtomicU64; Stream::ALL.len()]);

impl TokenDepths {
    /// So many pages of a list came, each but the first for a token.
    pub fn came(&self, stream: Stream, pages: u64) {
        if let Some(deepest) = self.of(stream) {
            deepest.fetch_max(pages, Ordering::Relaxed);
        }
    }

    /// Whether a token behind so many pages was answered in some list.
    pub fn has_lived(&self, stream: Stream, pages: u64) -> bool {
        self.of(stream).is_some_and(|deepest| pages < deepest.load(Ordering::Relaxed))
    }

    fn of(&self, stream: Stream) -> Option<&AtomicU64> {
        let at = Stream::ALL.iter().position(|known| *known == stream)?;
        self.0.get(at)
    }
}
