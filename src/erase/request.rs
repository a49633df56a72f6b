//! The request for an erasure: who is erased, and how.

use std::collections::BTreeSet;

use super::{EraseError, error::shown};
use crate::model::{IDENTIFIER_BYTES_MAX, Identifier, IdentifierKind, Spellings, WrittenIdentifier};

/// The maximum number of identifiers in one request.
pub const PEOPLE_MAX: usize = 10_000;

/// Why people are erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// The request names the people.
    #[default]
    Asked,
    /// The people are the sessions that vanished before `before_ms`, in epoch milliseconds by the service's clock.
    /// Vanished sessions are not suppressed: if the service returns them again, a run stores them again.
    Vanished { before_ms: i64 },
}

/// A request for an erasure.
#[derive(Clone, Debug, Default)]
pub struct EraseRequest {
    /// Why people are erased.
    pub reason: Reason,
    /// The named identifiers of the people.
    pub people: BTreeSet<Identifier>,
    /// Spellings in the request that differ from the normalized identifier.
    pub spellings: Spellings,
    /// How long the service waits before it purges, in seconds. `None` for the service's default.
    pub delay_seconds: Option<u64>,
    /// True if the service is not asked to purge.
    pub local_only: bool,
    /// True if identifiers are replaced in texts of other people.
    pub redact_mentions: bool,
    /// True if nobody is erased: the data of the people is only exported.
    pub only_exports: bool,
}

impl EraseRequest {
    /// Creates a request for the sessions that vanished before a time, in epoch milliseconds.
    pub fn vanished(before_ms: i64) -> EraseRequest {
        // The request names this fixed text instead of the sessions. So a later run finds the journal, although other
        // sessions may have vanished since.
        let everybody = Identifier { kind: IdentifierKind::Session, value: "vanished at the service".to_owned() };
        let people = BTreeSet::from([everybody]);
        EraseRequest { reason: Reason::Vanished { before_ms }, people, local_only: true, ..EraseRequest::default() }
    }

    /// Returns the named identifiers without normalization, as earlier versions of the program hashed them in journals.
    pub(super) fn people_as_written(&self) -> BTreeSet<Identifier> {
        let written = |identifier: &Identifier| {
            let form = self.spellings.get(identifier).and_then(BTreeSet::first);
            Identifier { kind: identifier.kind, value: form.unwrap_or(&identifier.value).clone() }
        };
        self.people.iter().map(written).collect()
    }

    /// Adds a person by an identifier of this kind. Fails if the text is not usable as an identifier, or if the request
    /// has more than [`PEOPLE_MAX`] people.
    pub fn add_person(&mut self, kind: IdentifierKind, text: &str) -> Result<(), EraseError> {
        let refuse = |why: &str| Err(EraseError::Names(format!("{kind} '{}': {why}", shown(text))));
        if text.len() > IDENTIFIER_BYTES_MAX {
            return refuse("is longer than 1,024 bytes");
        }
        // The service accepts any text as a user id, so any user id can be named.
        if kind != IdentifierKind::UserId && text.chars().any(char::is_control) {
            return refuse("holds a control character");
        }
        let Some(spelled) = WrittenIdentifier::read(kind, text) else {
            return refuse(match (kind, text.contains('@')) {
                (IdentifierKind::Email, false) if !text.trim().is_empty() => "is no mail address: it has no @",
                (IdentifierKind::Email, true) => {
                    "is no mail address: name one alone, as in anna@example.com, without a name or brackets around it"
                }
                _ => "names nobody in particular, so it would name everybody without a name",
            });
        };
        self.people.insert(spelled.into_identifier(&mut self.spellings));
        if self.people.len() > PEOPLE_MAX {
            return Err(EraseError::Names(format!("more than {PEOPLE_MAX} people: name fewer at once")));
        }
        Ok(())
    }
}

/// Adds the people of a list to the request. Each line is `user-id TEXT`, `email TEXT` or `visitor-id TEXT`. Fails at
/// the first wrong line.
///
/// A comma or tab may replace the blank. Blanks around TEXT do not count, so a user id with a blank at its start or end
/// does not fit a line. Empty lines and lines that begin with `#` are skipped.
pub fn read_people(text: &str, request: &mut EraseRequest) -> Result<(), EraseError> {
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: String| EraseError::Names(format!("line {}: {why}", index + 1));
        let parts = line.split_once([' ', ',', '\t']);
        let (kind, name) =
            parts.ok_or_else(|| wrong("write `user-id NAME`, `email NAME` or `visitor-id NAME`".to_owned()))?;
        let kind = match kind {
            "user-id" | "user_id" => IdentifierKind::UserId,
            "email" => IdentifierKind::Email,
            "visitor-id" | "visitor_id" => IdentifierKind::VisitorUuid,
            other => return Err(wrong(format!("'{}' is neither user-id, email nor visitor-id", shown(other)))),
        };
        request.add_person(kind, name.trim()).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_read_from_a_file() {
        let mut request = EraseRequest::default();
        let text = "\u{feff}# whom\n\nuser-id usér/日本 000123\r\nemail,A+b@x.de\nvisitor-id\t2F1C9D6E-0B7A-4C55-9A40-1D2E3F405162\nvisitor-id 17\n";
        read_people(text, &mut request).unwrap();
        let values: Vec<&str> = request.people.iter().map(|identifier| identifier.value.as_str()).collect();
        assert_eq!(values, ["usér/日本 000123", "a+b@x.de", "17", "2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162"]);
    }

    #[test]
    fn p9_a_user_id_with_control_characters_can_be_named() {
        let mut request = EraseRequest::default();
        read_people("user-id\ta\tb\u{1b}[2J\r\n", &mut request).unwrap();
        request.add_person(IdentifierKind::UserId, "a\nb\t").unwrap();
        let values: Vec<&str> = request.people.iter().map(|identifier| identifier.value.as_str()).collect();
        assert_eq!(values, ["a\tb\u{1b}[2J", "a\nb\t"]);
    }

    #[test]
    fn p9_all_spellings_of_a_name_in_a_file_are_one_person() {
        let mut request = EraseRequest::default();
        let text = "email j\u{fc}rgen@ex\u{e4}mple.de\nemail JU\u{308}RGEN@xn--exmple-cua.de.\nuser-id zoe\u{308}\nuser-id zo\u{eb}\n";
        read_people(text, &mut request).unwrap();
        let values: Vec<&str> = request.people.iter().map(|identifier| identifier.value.as_str()).collect();
        assert_eq!(values, ["zo\u{eb}", "j\u{fc}rgen@ex\u{e4}mple.de"]);
        let written: BTreeSet<String> = request.spellings.into_values().flatten().collect();
        assert_eq!(written, ["zoe\u{308}".to_owned(), "ju\u{308}rgen@xn--exmple-cua.de.".to_owned()].into());
    }

    #[test]
    fn a_name_that_cannot_be_searched_is_refused_with_its_line() {
        for (text, expected) in [
            ("\nname x", "line 2: 'name' is neither"),
            ("user-id", "line 1: write"),
            ("user-id anonymous", "names nobody"),
            ("email ", "names nobody"),
            ("email anna", "no @"),
            ("email on file", "no @"),
            ("email redacted@", "is no mail address"),
            ("email Anna <anna@x.de>", "without a name or brackets"),
            ("visitor-id a\u{1b}[2J", "control character"),
            ("email a\u{1b}[2J@x.de", "control character"),
        ] {
            let error = read_people(text, &mut EraseRequest::default()).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\u{1b}'), "{text:?}: {error}");
        }
        let many: String = (0..PEOPLE_MAX + 1).map(|at| format!("user-id user-{at}\n")).collect();
        assert!(read_people(&many, &mut EraseRequest::default()).unwrap_err().to_string().contains("more than 10000"));
    }
}
