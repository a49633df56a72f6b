//! Whom an erasure is asked for, and how.

use std::collections::BTreeSet;

use super::EraseError;
use crate::model::{Identifier, IdentifierKind, Spelled, Spellings};

/// Identifiers that one erasure takes.
pub const PEOPLE_MAX: usize = 10_000;
/// The longest identifier, in bytes.
const IDENTIFIER_BYTES_MAX: usize = 1024;

/// What an erasure is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// People were named.
    #[default]
    Asked,
    /// Sessions had vanished at the service before this moment, epoch milliseconds by its clock. Nobody is kept out for
    /// it: what the service returns again is welcome.
    Vanished { before_ms: i64 },
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct EraseRequest {
    /// What for.
    pub reason: Reason,
    /// Whom.
    pub people: BTreeSet<Identifier>,
    /// How they were written.
    pub spellings: Spellings,
    /// How long the service is to wait; `None` leaves it the delay of its own.
    pub delay_seconds: Option<u64>,
    /// Whether the service is left alone.
    pub local_only: bool,
    /// Whether identifiers are replaced in what other people wrote.
    pub redact_mentions: bool,
}

impl EraseRequest {
    /// The sessions that vanished before a moment.
    pub fn vanished(before_ms: i64) -> EraseRequest {
        // By this the journal of an interrupted try is found, whatever vanished since.
        let everybody = Identifier { kind: IdentifierKind::Session, value: "vanished at the service".to_owned() };
        let people = BTreeSet::from([everybody]);
        EraseRequest { reason: Reason::Vanished { before_ms }, people, local_only: true, ..EraseRequest::default() }
    }

    /// Whom, as they were written: so versions before this one named them in the journals of their erasures.
    pub(super) fn people_as_written(&self) -> BTreeSet<Identifier> {
        let written = |identifier: &Identifier| {
            let form = self.spellings.get(identifier).and_then(BTreeSet::first);
            Identifier { kind: identifier.kind, value: form.unwrap_or(&identifier.value).clone() }
        };
        self.people.iter().map(written).collect()
    }

    /// Adds somebody; the error says what is wrong with the name.
    pub fn name(&mut self, kind: IdentifierKind, text: &str) -> Result<(), EraseError> {
        let names = |why: &str| Err(EraseError::Names(format!("{kind} '{}': {why}", shown(text))));
        if text.len() > IDENTIFIER_BYTES_MAX {
            return names("is longer than 1,024 bytes");
        }
        if text.chars().any(char::is_control) {
            return names("holds a control character");
        }
        let Some(spelled) = Spelled::read(kind, text) else {
            return names(match (kind, text.contains('@')) {
                (IdentifierKind::Email, false) if !text.trim().is_empty() => "is no mail address: it has no @",
                (IdentifierKind::Email, true) => {
                    "is no mail address: name one alone, as in anna@example.com, without a name or brackets around it"
                }
                _ => "names nobody in particular, so it would name everybody without a name",
            });
        };
        self.people.insert(spelled.noted_in(&mut self.spellings));
        match self.people.len() > PEOPLE_MAX {
            true => Err(EraseError::Names(format!("more than {PEOPLE_MAX} people: name fewer at once"))),
            false => Ok(()),
        }
    }
}

/// Reads a file of people: one a line, `user-id TEXT`, `email TEXT` or `visitor-id TEXT`; a comma may stand in place of
/// the blank. Empty lines and those that begin with `#` are passed over.
pub fn read_people(text: &str, request: &mut EraseRequest) -> Result<(), EraseError> {
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: String| EraseError::Names(format!("line {}: {why}", at + 1));
        let parts = line.split_once([' ', ',', '\t']);
        let (kind, name) =
            parts.ok_or_else(|| wrong("write `user-id NAME`, `email NAME` or `visitor-id NAME`".to_owned()))?;
        let kind = match kind {
            "user-id" | "user_id" => IdentifierKind::UserId,
            "email" => IdentifierKind::Email,
            "visitor-id" | "visitor_id" => IdentifierKind::VisitorUuid,
            other => return Err(wrong(format!("'{}' is neither user-id, email nor visitor-id", shown(other)))),
        };
        request.name(kind, name.trim()).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(())
}

/// The beginning of a text as it may be shown.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !crate::model::steers_display(*letter)).take(60).collect()
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
    fn p9_people_are_the_same_however_the_file_writes_them() {
        let mut request = EraseRequest::default();
        let text = "email j\u{fc}rgen@ex\u{e4}mple.de\nemail JU\u{308}RGEN@xn--exmple-cua.de.\nuser-id zoe\u{308}\nuser-id zo\u{eb}\n";
        read_people(text, &mut request).unwrap();
        let values: Vec<&str> = request.people.iter().map(|identifier| identifier.value.as_str()).collect();
        assert_eq!(values, ["zo\u{eb}", "j\u{fc}rgen@ex\u{e4}mple.de"]);
        let written: BTreeSet<String> = request.spellings.into_values().flatten().collect();
        assert_eq!(written, ["zoe\u{308}".to_owned(), "ju\u{308}rgen@xn--exmple-cua.de.".to_owned()].into());
    }

    #[test]
    fn whoever_cannot_be_looked_for_is_told_with_the_line() {
        for (text, expected) in [
            ("\nname x", "line 2: 'name' is neither"),
            ("user-id", "line 1: write"),
            ("user-id anonymous", "names nobody"),
            ("email ", "names nobody"),
            ("email anna", "no @"),
            ("email on file", "no @"),
            ("email redacted@", "is no mail address"),
            ("email Anna <anna@x.de>", "without a name or brackets"),
            ("user-id a\u{1b}[2J", "control character"),
        ] {
            let error = read_people(text, &mut EraseRequest::default()).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\u{1b}'), "{text:?}: {error}");
        }
        let many: String = (0..PEOPLE_MAX + 1).map(|at| format!("user-id user-{at}\n")).collect();
        assert!(read_people(&many, &mut EraseRequest::default()).unwrap_err().to_string().contains("more than 10000"));
    }
}
