//! Rows about erased people, which are not sent.

use crate::{
    model::{IdentifierKind, WrittenIdentifier, is_email_attribute},
    person::Suppression,
    upsert::{AttributeValue, Upsert},
};

/// The reason in the results file why a row about an erased person was not sent.
pub(super) const SUPPRESSED: &str = "this person was erased: nothing is sent until the service has purged them. If they signed up again, run `studysync erase --end ID`";

/// Returns true if the row's user id or one of its email addresses belongs to an erased person.
pub(super) fn is_suppressed(suppression: &Suppression, upsert: &Upsert) -> bool {
    let user_id = WrittenIdentifier::read(IdentifierKind::UserId, &upsert.user_id);
    let attributes = upsert.attributes.iter().filter(|(name, _)| is_email_attribute(name));
    let in_attributes = attributes.filter_map(|(_, value)| match value {
        AttributeValue::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let emails = upsert.email.as_deref().into_iter().chain(in_attributes);
    let emails = emails.filter_map(|email| WrittenIdentifier::read(IdentifierKind::Email, email));
    let identifiers: Vec<WrittenIdentifier> = user_id.into_iter().chain(emails).collect();
    suppression.matches_identifiers(&identifiers)
}
