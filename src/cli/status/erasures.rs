//! The erasures whose people the service may still send. These people are suppressed until the service has purged them.

use serde::Serialize;

use crate::{
    config::Settings,
    person::{SuppressionError, SuppressionList},
};

use super::super::printer::format_second;

/// An erasure that waits for the service to purge.
#[derive(Serialize)]
pub(super) struct WaitingErasure {
    erasure_id: String,
    /// Number of named identifiers.
    people: usize,
    /// Earliest end of the suppression, by the service's clock.
    until: String,
}

/// Returns the waiting erasures, ordered by the end of their suppression.
pub(super) fn waiting(settings: &Settings) -> Result<Vec<WaitingErasure>, SuppressionError> {
    let list = SuppressionList::read(&settings.erasures_folder())?;
    let mut entries: Vec<_> = list.entries().iter().collect();
    entries.sort_by_key(|entry| (entry.until_ms, &entry.erasure_id));
    let waiting = entries.into_iter().map(|entry| WaitingErasure {
        erasure_id: entry.erasure_id.clone(),
        people: entry.named.len(),
        until: format_second(entry.until_ms),
    });
    Ok(waiting.collect())
}

/// Returns the waiting erasures as text; empty if there are none.
pub(super) fn describe(waiting: &[WaitingErasure]) -> String {
    let (Some(first), Some(last)) = (waiting.first(), waiting.last()) else { return String::new() };
    let people: usize = waiting.iter().map(|erasure| erasure.people).sum();
    let until = match first.until == last.until {
        true => first.until.clone(),
        false => format!("{} to {}", first.until, last.until),
    };
    let erasures = if waiting.len() == 1 { "erasure waits" } else { "erasures wait" };
    format!(
        "\n{} {erasures} for the service to purge: {people} named, suppressed until {until}, and until\n  complete scans meet none of them. \
         If somebody signed up again: studysync erase --end ID (of the person or the erasure)\n",
        waiting.len()
    )
}
