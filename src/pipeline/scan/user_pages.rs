//! The pages of a batch of users, built from the exact bodies of the answers:
//!
//! ```json
//! {"askedMs": 1769846400000, "data": [{"userId": "u1", "user": THE BODY}], "absent": ["u2"],
//!  "refused": [{"userId": "u3", "status": 400}]}
//! ```
//!
//! `flatten` reads `data` and `absent`. [`remember`] reads all four members, to store in the checkpoints which users
//! were requested.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    archive::{ArchiveError, RecoveredSpool, read_pages},
    model::{PersonLookup, Stream},
    pipeline::error::PipelineError,
    state::State,
    text::bytes_without_mark,
};

/// The status that the checkpoints store for a user that the service knows.
const FOUND: u16 = 200;
/// The status that the checkpoints store for a user that the service does not know.
const ABSENT: u16 = 404;

/// A page under construction.
#[derive(Debug, Default)]
pub struct PageDraft {
    /// Items of `data`, with commas between them.
    data: Vec<u8>,
    absent: Vec<String>,
    refused: Vec<Refused>,
    /// Number of users on the page, of all kinds.
    pub users: usize,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Refused {
    user_id: String,
    status: u16,
}

impl PageDraft {
    /// Adds a user with the exact body of the answer, without a byte order mark. The body must be valid JSON.
    pub fn add_found(&mut self, user_id: &str, body: &[u8]) {
        self.users += 1;
        if !self.data.is_empty() {
            self.data.push(b',');
        }
        self.data.extend_from_slice(br#"{"userId":"#);
        self.data.extend_from_slice(quoted(user_id).as_bytes());
        self.data.extend_from_slice(br#","user":"#);
        self.data.extend_from_slice(bytes_without_mark(body));
        self.data.push(b'}');
    }

    pub fn add_absent(&mut self, user_id: String) {
        self.users += 1;
        self.absent.push(user_id);
    }

    pub fn add_refused(&mut self, user_id: String, status: u16) {
        self.users += 1;
        self.refused.push(Refused { user_id, status });
    }

    /// Returns the approximate size of the page: the bytes of `data`.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Returns the body of the page. `asked_ms` is the time of the requests in epoch milliseconds, by the service's
    /// clock.
    pub fn write(&self, asked_ms: i64) -> Vec<u8> {
        let mut page = format!("{{\"askedMs\":{asked_ms},\"data\":[").into_bytes();
        page.extend_from_slice(&self.data);
        // The JSON of texts and numbers cannot fail.
        let list = |text: serde_json::Result<String>| text.unwrap_or_else(|_| "[]".to_owned());
        let (absent, refused) = (serde_json::to_string(&self.absent), serde_json::to_string(&self.refused));
        page.extend_from_slice(format!("],\"absent\":{},\"refused\":{}}}", list(absent), list(refused)).as_bytes());
        page
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn requested_users(page: &[u8]) -> serde_json::Result<Vec<PersonLookup>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        user_id: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Page {
        asked_ms: i64,
        data: Vec<Named>,
        absent: Vec<String>,
        refused: Vec<Refused>,
    }
    let Page { asked_ms, data, absent, refused } = serde_json::from_slice(page)?;
    let person = |user_id, status| PersonLookup { user_id, asked_ms, status };
    let found = data.into_iter().map(|named| person(named.user_id, FOUND));
    let absent = absent.into_iter().map(|user_id| person(user_id, ABSENT));
    let refused = refused.into_iter().map(|refused| person(refused.user_id, refused.status));
    Ok(found.chain(absent).chain(refused).collect())
}

/// Stores in the checkpoints which users the pages of a spool requested. If `withholds` is true, the scan withheld its
/// vanished rows: absent users are not stored, so that they stay due.
pub fn remember(state: &mut State, spool: &Path, withholds: bool) -> Result<(), PipelineError> {
    for (page, body) in read_pages(spool)?.enumerate() {
        let body = body?;
        let mut people = requested_users(&body).map_err(|error| {
            let why = format!("it is no page of users: {error}");
            PipelineError::Archive(ArchiveError::Damaged { path: spool.to_owned(), page, why })
        })?;
        people.retain(|person| !(withholds && person.status == ABSENT));
        state.remember_people(&people)?;
    }
    Ok(())
}

/// Returns true for the spool of a batch of users without any answer.
pub fn is_without_pages(recovered: &RecoveredSpool) -> bool {
    recovered.header.scan.scope.stream == Stream::Users && recovered.content.last_page.is_none()
}

#[cfg(test)]
mod tests {
    use crate::{flatten::flatten_page, model::DriftRules};

    use super::*;

    #[test]
    fn p1_a_page_of_users_is_read_back_whatever_it_contains() {
        let mut draft = PageDraft::default();
        let odd = "a\"b\\c/\u{0}日 😀";
        let body =
            r#"{"externalUserId":"other","x":"\ud800","attributes":{"data":[1],"askedMs":2},"id":7,"absent":["no"]}"#;
        draft.add_found(odd, body.as_bytes());
        draft.add_found("list", "\u{feff}[1, 2]".as_bytes());
        draft.add_absent("gone".to_owned());
        draft.add_refused("bad".to_owned(), 400);
        let page = draft.write(5);
        let asked: Vec<(String, u16)> =
            requested_users(&page).unwrap().into_iter().map(|person| (person.user_id, person.status)).collect();
        let expected = [(odd, 200), ("list", 200), ("gone", 404), ("bad", 400)];
        assert_eq!(asked, expected.map(|(user_id, status)| (user_id.to_owned(), status)));
        let flat = flatten_page(Stream::Users, &page, DriftRules::default()).unwrap();
        assert_eq!((flat.records, flat.rejects.len(), flat.absent), (2, 1, vec!["gone".to_owned()]));
        assert!(flat.rejects[0].raw.contains("[1, 2]"));
        assert!(std::str::from_utf8(&page).unwrap().contains(body), "the body changed");
    }
}
