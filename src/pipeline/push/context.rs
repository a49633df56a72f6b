//! The state that all lanes of a push share.
//!
//! Rows about erased people, which are not sent.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::{
    model::{IdentifierKind, WrittenIdentifier, is_email_attribute},
    person::Suppression,
    pipeline::error::PipelineError,
    source::{Source, Stop},
    upsert::{AttributeValue, Upsert},
};

use super::{
    ledger::Ledger,
    report::{PushRequest, PushRows},
    results::{ResultsFile, RowResult},
};

/// The state that all lanes of a push share.
pub(super) struct PushContext {
    pub request: PushRequest,
    pub source: Source,
    pub ledger: Ledger,
    pub suppression: Suppression,
    pub results: Mutex<ResultsFile>,
    pub progress: Mutex<PushProgress>,
    /// Cancelled when no further row may be sent.
    pub ending: CancellationToken,
}

/// The counts of a push so far, and why it ends early.
#[derive(Debug, Default)]
pub(super) struct PushProgress {
    pub rows: PushRows,
    /// Why the push was stopped. `None` if it was not stopped.
    pub stop: Option<Stop>,
    /// The first error that ends the push.
    pub error: Option<PipelineError>,
    /// Rows since the last answer that the service neither accepted nor refused.
    pub consecutive_failures: u32,
}

impl PushContext {
    pub fn progress(&self) -> MutexGuard<'_, PushProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn results(&self) -> MutexGuard<'_, ResultsFile> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the result of a row and writes it to the results file. An error of the file ends the push.
    pub fn record_result(&self, result: &RowResult<'_>) {
        self.progress().rows.count(result);
        let written = self.results().write(result);
        if let Err(error) = written {
            self.fail(error);
        }
    }

    /// Ends the push early. Only the first reason is kept.
    pub fn stop(&self, stop: Stop) {
        self.progress().stop.get_or_insert(stop);
        self.ending.cancel();
    }

    /// Ends the push with an error. Only the first error is kept.
    pub fn fail(&self, error: PipelineError) {
        self.progress().error.get_or_insert(error);
        self.ending.cancel();
    }
}

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
