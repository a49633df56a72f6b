//! Identifiers of people, in the normal form in which they are compared, and lookups of single users at the service.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::{
    named::named,
    normal_forms::{composed, decomposed, mail_address, mail_address_in_ascii},
};

/// The maximum length of an identifier, in bytes. A longer text in the field of an identifier is some other text, and
/// searches for it would take minutes.
pub const IDENTIFIER_BYTES_MAX: usize = 1024;
/// Placeholders that fill the field of an identifier and name nobody. The case of letters does not matter.
const PLACEHOLDERS: [&str; 10] = [
    "anonymous",
    "guest",
    "n/a",
    "nil",
    "none",
    "null",
    "undefined",
    "unknown",
    "-",
    "00000000-0000-0000-0000-000000000000",
];
/// Names of attributes that contain a mail address, in lower case, reduced to letters and digits.
const EMAIL_ATTRIBUTES: [&str; 8] =
    ["email", "emailaddress", "mail", "mailaddress", "useremail", "contactemail", "primaryemail", "workemail"];

/// The kind of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentifierKind {
    /// The customer's own id of the person.
    UserId,
    /// A mail address.
    Email,
    /// The number that the service gives a visitor.
    VisitorId,
    /// The UUID that the service gives a visitor.
    VisitorUuid,
    /// The id that a partner integration gives a visitor.
    AnonymousId,
    /// The id of one visitor's session: `responseGroupUid`.
    Session,
}

named! {
    /// Returns the name in the contracts of `schemas/` and in JSON.
    IdentifierKind {
        UserId => "user_id",
        Email => "email",
        VisitorId => "visitor_id",
        VisitorUuid => "visitor_uuid",
        AnonymousId => "anonymous_id",
        Session => "session",
    }
}

impl fmt::Display for IdentifierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdentifierKind::UserId => "user id",
            IdentifierKind::Email => "mail address",
            IdentifierKind::VisitorId => "visitor number",
            IdentifierKind::VisitorUuid => "visitor UUID",
            IdentifierKind::AnonymousId => "anonymous id",
            IdentifierKind::Session => "session",
        })
    }
}

/// An identifier in its normal form, in which two spellings of one identifier are equal. Spellings differ in the case
/// of mail addresses and UUIDs, in leading zeros of visitor numbers, and in composed or decomposed letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identifier {
    pub kind: IdentifierKind,
    /// The normal form; never empty.
    pub value: String,
}

/// An identifier and its spelling where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenIdentifier {
    pub identifier: Identifier,
    /// The spelling where the identifier was found. Addresses are in lower case, and UUIDs and numbers in normal form,
    /// because case and zeros never distinguish people.
    pub written: String,
}

/// For each identifier, its spellings that differ from the normal form.
pub type Spellings = BTreeMap<Identifier, BTreeSet<String>>;

/// Adds the spellings in `others` to `spellings`.
pub fn merge_spellings(spellings: &mut Spellings, others: Spellings) {
    for (identifier, written) in others {
        spellings.entry(identifier).or_default().extend(written);
    }
}

impl WrittenIdentifier {
    /// Parses the value of a field for identifiers of this kind. `None` if the value names nobody, is longer than
    /// [`IDENTIFIER_BYTES_MAX`], or should be a mail address and is none. The field of a visitor may contain the number
    /// or the UUID, whatever its declared kind.
    pub fn read(kind: IdentifierKind, text: &str) -> Option<WrittenIdentifier> {
        let trimmed = text.trim();
        let is_too_long = text.len() > IDENTIFIER_BYTES_MAX;
        if trimmed.is_empty() || is_too_long || PLACEHOLDERS.iter().any(|nobody| trimmed.eq_ignore_ascii_case(nobody)) {
            return None;
        }
        let (kind, value, written) = match kind {
            IdentifierKind::UserId | IdentifierKind::AnonymousId => (kind, composed(text), text.to_owned()),
            IdentifierKind::Email => (kind, mail_address(trimmed)?, trimmed.to_lowercase()),
            IdentifierKind::Session => normal(kind, uuid_text(trimmed)),
            IdentifierKind::VisitorId | IdentifierKind::VisitorUuid => match trimmed.parse::<i64>() {
                Ok(number) => normal(IdentifierKind::VisitorId, number.to_string()),
                Err(_) => normal(IdentifierKind::VisitorUuid, uuid_text(trimmed)),
            },
        };
        Some(WrittenIdentifier { identifier: Identifier { kind, value }, written })
    }

    /// Returns the identifier with its spelling as the value, as earlier versions of the program compared it.
    /// Suppression lists and journals of these versions contain its hash. `None` if the spelling is the normal form.
    pub fn as_written(&self) -> Option<Identifier> {
        let Identifier { kind, value } = &self.identifier;
        (*value != self.written).then(|| Identifier { kind: *kind, value: self.written.clone() })
    }

    /// Returns the identifier, and adds its spelling to `spellings` if it differs from the normal form.
    pub fn into_identifier(self, spellings: &mut Spellings) -> Identifier {
        if self.identifier.value != self.written {
            spellings.entry(self.identifier.clone()).or_default().insert(self.written);
        }
        self.identifier
    }
}

/// Returns kind, value and spelling of an identifier whose spelling is its normal form.
fn normal(kind: IdentifierKind, value: String) -> (IdentifierKind, String, String) {
    (kind, value.clone(), value)
}

impl Identifier {
    /// Parses the value of a field, like [`WrittenIdentifier::read`], without the spelling.
    pub fn read(kind: IdentifierKind, text: &str) -> Option<Identifier> {
        WrittenIdentifier::read(kind, text).map(|spelled| spelled.identifier)
    }

    /// Returns the spellings by which the service may know the identifier: the normal form, all its known `spellings`,
    /// and for a mail address the form with the domain in ASCII.
    pub fn written_forms(&self, spellings: &Spellings) -> BTreeSet<String> {
        let mut forms = BTreeSet::from([self.value.clone()]);
        forms.extend(spellings.get(self).into_iter().flatten().cloned());
        if self.kind == IdentifierKind::Email {
            forms.extend(mail_address_in_ascii(&self.value));
        }
        forms
    }

    /// Returns the [`written_forms`](Self::written_forms): each as it is, with composed letters, and with decomposed
    /// letters. A search in raw bytes needs them all.
    pub fn all_forms(&self, spellings: &Spellings) -> BTreeSet<String> {
        let forms = self.written_forms(spellings);
        forms.iter().flat_map(|form| [form.clone(), composed(form), decomposed(form)]).collect()
    }

    /// Returns true if the identifier can be searched for in free text. Returns false for a value without letters, and
    /// for `true` and `false`: such texts occur where they name nobody.
    pub fn is_searchable(&self) -> bool {
        let is_literal = matches!(self.value.as_str(), "true" | "false");
        !is_literal && self.value.chars().any(char::is_alphabetic)
    }
}

/// Returns the hyphenated form of a UUID, and any other text in lower case.
fn uuid_text(text: &str) -> String {
    uuid::Uuid::try_parse(text).map_or_else(|_| text.to_lowercase(), |uuid| uuid.hyphenated().to_string())
}

/// Returns true if an attribute with this name contains a mail address. Ignores case and punctuation of the name.
pub fn is_email_attribute(name: &str) -> bool {
    let plain: String = name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    EMAIL_ATTRIBUTES.contains(&plain.as_str())
}

/// Maximum length of a user id that is requested, in bytes. The id must fit into a URL even with every byte escaped.
pub const USER_ID_BYTES_MAX: usize = 256;

/// The result of a lookup of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonLookup {
    /// The user id that was requested.
    pub user_id: String,
    /// The time of the request, in epoch milliseconds of the service's clock.
    pub asked_ms: i64,
    /// Status of the response: 200, 404 if the service does not know the user, or another refusal.
    pub status: u16,
}

/// Returns true if the service can be asked for this user id. An id that is empty or too long cannot be requested. The
/// ids `.` and `..` cannot be requested either: clients and servers treat them as folders of a URL's path, even if they
/// are escaped.
pub fn can_request_user(user_id: &str) -> bool {
    !matches!(user_id, "" | "." | "..") && user_id.len() <= USER_ID_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_all_spellings_of_an_identifier_are_equal() {
        let read = |kind, text| Identifier::read(kind, text).unwrap();
        let upper = read(IdentifierKind::VisitorUuid, "2F1C9D6E-0B7A-4C55-9A40-1D2E3F405162");
        assert_eq!(upper, read(IdentifierKind::VisitorUuid, " 2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162"));
        assert_eq!(upper, read(IdentifierKind::VisitorId, "2f1c9d6e0b7a4c559a401d2e3f405162"));
        assert_eq!(read(IdentifierKind::Email, "Zoë+News@Example.com").value, "zoë+news@example.com");
        assert_eq!(read(IdentifierKind::VisitorUuid, "17"), read(IdentifierKind::VisitorId, "017"));
        assert_eq!(read(IdentifierKind::VisitorId, "0").value, "0", "0 is a visitor");
        assert!(
            !read(IdentifierKind::UserId, "4711-2").is_searchable()
                && read(IdentifierKind::UserId, "u4").is_searchable()
        );
        assert_ne!(read(IdentifierKind::UserId, "Anna"), read(IdentifierKind::UserId, "anna"));
        assert_eq!(read(IdentifierKind::UserId, "zoe\u{308}"), read(IdentifierKind::UserId, "zo\u{eb}"));
        assert_ne!(
            read(IdentifierKind::UserId, "\u{2460}"),
            read(IdentifierKind::UserId, "1"),
            "different letters are different ids"
        );
    }

    #[test]
    fn p9_the_spelling_of_an_identifier_is_known() {
        let mut spellings = Spellings::new();
        let written = |text: &str| WrittenIdentifier::read(IdentifierKind::UserId, text).unwrap();
        assert_eq!(written("zo\u{eb}").as_written(), None);
        assert_eq!(written("zoe\u{308}").as_written().unwrap().value, "zoe\u{308}");
        let zoe = written("zoe\u{308}").into_identifier(&mut spellings);
        assert_eq!(zoe.written_forms(&spellings), zoe.all_forms(&spellings));
        assert_eq!(zoe.written_forms(&spellings), ["zoe\u{308}".to_owned(), "zo\u{eb}".to_owned()].into());
        let mail = Identifier::read(IdentifierKind::Email, "z@EXA\u{308}MPLE.de").unwrap();
        let forms = mail.all_forms(&spellings);
        for form in ["z@ex\u{e4}mple.de", "z@exa\u{308}mple.de", "z@xn--exmple-cua.de"] {
            assert!(forms.contains(form), "{form}: {forms:?}");
        }
    }

    #[test]
    fn p9_a_placeholder_is_not_an_identifier() {
        assert_eq!(Identifier::read(IdentifierKind::Email, "on file"), None);
        for nobody in ["", "  ", "Anonymous", "null", "N/A", "00000000-0000-0000-0000-000000000000"] {
            for kind in IdentifierKind::ALL {
                assert_eq!(Identifier::read(kind, nobody), None, "{nobody:?}");
            }
        }
        let longest = format!("{}@x.example", "a".repeat(IDENTIFIER_BYTES_MAX - 10));
        for kind in IdentifierKind::ALL {
            assert!(
                Identifier::read(kind, &longest).is_some() && Identifier::read(kind, &format!("a{longest}")).is_none()
            );
        }
        assert!(
            is_email_attribute("emailAddress") && is_email_attribute("E-Mail") && !is_email_attribute("email_verified")
        );
    }
}
