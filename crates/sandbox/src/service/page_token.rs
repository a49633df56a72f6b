//! Page tokens. A page token contains a position in a list and a hash of the query, in Base64, as the contract says.
//!
//! The age and page number of a token are stored here and not in the token, so that the same query always gives the
//! same bytes.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::super::{
    faults::{DeadTokens, Ties},
    world::Position,
};

/// Maximum tokens whose age is stored. If there are more, all stored ages are deleted, and these tokens never expire.
const TOKENS_MAX: usize = 100_000;

/// A decoded page token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageToken {
    pub(crate) position: Position,
    /// Empty pages that were sent for this position. The number makes the tokens of these pages different.
    pub(crate) empty_pages_sent: u32,
}

impl PageToken {
    /// Returns the token for the position after a row. With `Ties::Kept` the token names the row, otherwise only the
    /// row's millisecond.
    pub(crate) fn after(created_ms: i64, serial: u32, ties: Ties) -> Self {
        let position = match ties {
            Ties::Kept => Position::AfterRow(created_ms, serial),
            Ties::Repeated => Position::AtMillisecond(created_ms),
            Ties::Lost => Position::AfterMillisecond(created_ms),
        };
        Self { position, empty_pages_sent: 0 }
    }

    /// Encodes the token. `binding` is the hash of the query for which the token is valid.
    pub(crate) fn encode(self, binding: u64) -> String {
        let position = match self.position {
            Position::Start => "s".to_owned(),
            Position::AfterRow(ms, serial) => format!("{ms}.{serial}"),
            Position::AtMillisecond(ms) => format!("{ms}.r"),
            Position::AfterMillisecond(ms) => format!("{ms}.l"),
        };
        STANDARD.encode(format!("{position}/{:08x}/{}", binding as u32, self.empty_pages_sent))
    }

    /// Decodes a page token. Fails if the token is unreadable or of a query with another `binding`. An error is the
    /// message for a response with status 400.
    pub(crate) fn decode(text: &str, binding: u64) -> Result<Self, &'static str> {
        let unreadable = "'cursor' cannot be read";
        let bytes = STANDARD.decode(text).map_err(|_| unreadable)?;
        let inner = String::from_utf8(bytes).map_err(|_| unreadable)?;
        let mut parts = inner.split('/');
        let (Some(position_text), Some(bound), Some(empty_pages), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(unreadable);
        };
        if bound != format!("{:08x}", binding as u32) {
            return Err("'cursor' belongs to another query");
        }
        let position = match position_text.split_once('.') {
            None if position_text == "s" => Position::Start,
            None => return Err(unreadable),
            Some((ms, rest)) => {
                let ms = ms.parse().map_err(|_| unreadable)?;
                match rest {
                    "r" => Position::AtMillisecond(ms),
                    "l" => Position::AfterMillisecond(ms),
                    serial => Position::AfterRow(ms, serial.parse().map_err(|_| unreadable)?),
                }
            }
        };
        Ok(Self { position, empty_pages_sent: empty_pages.parse().map_err(|_| unreadable)? })
    }
}

/// The tokens that were sent to clients.
#[derive(Debug, Default)]
pub(crate) struct IssuedTokens {
    /// For each token: when the token was sent (microseconds of real time), and the number of its page in the list,
    /// from 1.
    issued: HashMap<String, (u64, u64)>,
}

impl IssuedTokens {
    /// Stores when a token is sent, and on which page of the list, so that [`IssuedTokens::is_dead`] can let it expire.
    /// `request_token` is the token in the request for the page.
    pub(crate) fn issue(&mut self, token: &str, request_token: Option<&str>, now_us: u64) {
        if self.issued.len() >= TOKENS_MAX {
            self.issued.clear();
        }
        let page = request_token.and_then(|before| self.issued.get(before)).map_or(1, |(_, page)| page + 1);
        self.issued.insert(token.to_owned(), (now_us, page));
    }

    /// Returns true if the token has expired by the rule: it is too old, or too many pages came before it. A token that
    /// is not stored never expires.
    pub(crate) fn is_dead(&self, token: &str, rule: &DeadTokens, now_us: u64) -> bool {
        let Some((issued_us, page)) = self.issued.get(token) else { return false };
        let age_ms = now_us.saturating_sub(*issued_us) / 1000;
        (rule.after_ms > 0 && age_ms >= rule.after_ms) || (rule.after_pages > 0 && *page > rule.after_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_only_with_its_query() {
        for position in [
            Position::Start,
            Position::AfterRow(-5, 7),
            Position::AtMillisecond(1_769_847_330_123),
            Position::AfterMillisecond(0),
        ] {
            let token = PageToken { position, empty_pages_sent: 2 };
            assert_eq!(PageToken::decode(&token.encode(9), 9), Ok(token));
            assert_eq!(PageToken::decode(&token.encode(9), 8), Err("'cursor' belongs to another query"));
        }
        for text in ["", "%%%", "MTIz", "czo="] {
            assert!(PageToken::decode(text, 9).is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_die_by_age_and_by_page() {
        let mut tokens = IssuedTokens::default();
        tokens.issue("a", None, 0);
        tokens.issue("b", Some("a"), 5_000);
        let rule = DeadTokens { after_ms: 10, ..DeadTokens::default() };
        assert_eq!([tokens.is_dead("a", &rule, 10_000), tokens.is_dead("b", &rule, 10_000)], [true, false]);
        let rule = DeadTokens { after_pages: 1, ..DeadTokens::default() };
        assert_eq!([tokens.is_dead("a", &rule, 0), tokens.is_dead("b", &rule, 0)], [false, true]);
        assert!(!tokens.is_dead("unknown", &rule, 0));
    }
}
