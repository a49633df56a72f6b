//! A set of texts that is looked for in large ones, whatever the case of ASCII's letters.

use aho_corasick::{AhoCorasick, MatchKind};
use regex::bytes::{Regex, RegexBuilder};

/// With more patterns than this the automaton alone is as quick, and a regular expression of them large.
const QUICK_PATTERNS_MAX: usize = 64;

/// Knows where any of its patterns is. Of no patterns, nothing is anywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    all: Option<AhoCorasick>,
    /// Says ten times faster whether any is there:
    /// it steps over many bytes at once, which the automaton does only where case counts.
    any: Option<Regex>,
}

impl Patterns {
    pub fn new(patterns: &[String]) -> Patterns {
        if patterns.is_empty() {
            return Patterns::default();
        }
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            // It would stop at each byte that is rare elsewhere:
            // identifiers are made of the same bytes as the texts around them.
            .prefilter(false)
            .build(patterns);
        let either = || patterns.iter().map(|pattern| regex::escape(pattern)).collect::<Vec<_>>().join("|");
        let is_few = patterns.len() <= QUICK_PATTERNS_MAX;
        let quick = is_few.then(|| RegexBuilder::new(&either()).case_insensitive(true).unicode(false).build());
        Patterns {
            // It fails for more patterns than 32 bits count, which people never name.
            all: automaton.ok(),
            // It fails where it would become too large.
            any: quick.and_then(Result::ok),
        }
    }

    /// Whether any of them is there.
    pub fn any_in(&self, bytes: &[u8]) -> bool {
        match &self.any {
            Some(any) => any.is_match(bytes),
            None => self.all.as_ref().is_some_and(|all| all.is_match(bytes)),
        }
    }

    /// All places, also those that overlap: which pattern, its start and its end.
    pub fn each_in(&self, bytes: &[u8], mut found: impl FnMut(usize, usize, usize)) {
        if let Some(all) = self.all.as_ref().filter(|_| self.any_in(bytes)) {
            all.find_overlapping_iter(bytes).for_each(|hit| found(hit.pattern().as_usize(), hit.start(), hit.end()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(patterns: &Patterns, text: &str) -> Vec<(usize, usize, usize)> {
        let mut places = Vec::new();
        patterns.each_in(text.as_bytes(), |pattern, start, end| places.push((pattern, start, end)));
        places
    }

    proptest! {
        #[test]
        fn the_quick_look_misses_nothing(
            named in prop::collection::vec("[a-cA-Cé.+|\\\\(\\[*$-]{1,4}", 1..5),
            text in "[a-cA-Cé.+|\\\\(\\[*$-]{0,40}",
        ) {
            let patterns = Patterns::new(&named);
            prop_assert!(patterns.any.is_some());
            let fold = |text: &str| text.to_ascii_lowercase();
            let is_in = named.iter().any(|pattern| fold(&text).contains(&fold(pattern)));
            prop_assert_eq!(patterns.any_in(text.as_bytes()), is_in);
            prop_assert_eq!(!places(&patterns, &text).is_empty(), is_in);
        }
    }

    #[test]
    fn many_patterns_are_found_too() {
        let named: Vec<String> = (0..1000).map(|number| format!("user-{number:04}")).collect();
        let patterns = Patterns::new(&named);
        assert!(patterns.any.is_none() && !patterns.any_in(b"user-1000"));
        assert_eq!(places(&patterns, "a USER-0999 b"), [(999, 2, 11)]);
        assert!(!Patterns::new(&[]).any_in(b"anything"));
    }
}
