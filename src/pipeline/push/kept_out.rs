//! Rows of people who were erased: nothing is sent of them.

use crate::{
    model::{IdentifierKind, WrittenIdentifier, is_email_attribute},
    person::Suppression,
    upsert::{AttributeValue, Upsert},
};

/// Why nothing is sent of somebody who was erased.
pub(super) const KEPT_OUT: &str = "this person was erased, and is kept out until the service has purged them";

/// Whether the person was erased.
pub(super) fn is_kept_out(suppression: &Suppression, upsert: &Upsert) -> bool {
    let user_id = WrittenIdentifier::read(IdentifierKind::UserId, &upsert.user_id);
    let named_so = upsert.attributes.iter().filter(|(name, _)| is_email_attribute(name));
    let attributes = named_so.filter_map(|(_, value)| match value {
        AttributeValue::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let emails = upsert.email.as_deref().into_iter().chain(attributes);
    let emails = emails.filter_map(|email| WrittenIdentifier::read(IdentifierKind::Email, email));
    let all: Vec<WrittenIdentifier> = user_id.into_iter().chain(emails).collect();
    suppression.matches_identifiers(&all)
}
