//! Who is kept out, by count: the erasures whose people the service may still send.

use serde::Serialize;

use crate::{
    config::Settings,
    model::format_ms,
    person::{SuppressionError, SuppressionList},
};

/// An erasure that waits for the service.
#[derive(Serialize)]
pub(super) struct WaitingErasure {
    erasure_id: String,
    /// Identifiers that were named.
    people: usize,
    /// Until when at least its people are kept out, by the service's clock.
    until: String,
}

/// The erasures that wait, the first to be over first.
pub(super) fn waiting(settings: &Settings) -> Result<Vec<WaitingErasure>, SuppressionError> {
    let list = SuppressionList::read(&settings.erasures_folder())?;
    let mut entries: Vec<_> = list.entries().iter().collect();
    entries.sort_by_key(|entry| (entry.until_ms, &entry.erasure_id));
    let waiting = entries.into_iter().map(|entry| WaitingErasure {
        erasure_id: entry.erasure_id.clone(),
        people: entry.named.len(),
        until: format_ms(entry.until_ms.div_euclid(1000) * 1000),
    });
    Ok(waiting.collect())
}

/// Lines for people; nothing where nobody is kept out.
pub(super) fn describe(waiting: &[WaitingErasure]) -> String {
    let (Some(first), Some(last)) = (waiting.first(), waiting.last()) else { return String::new() };
    let people: usize = waiting.iter().map(|erasure| erasure.people).sum();
    let until = match first.until == last.until {
        true => first.until.clone(),
        false => format!("{} to {}", first.until, last.until),
    };
    let erasures = if waiting.len() == 1 { "erasure waits" } else { "erasures wait" };
    format!(
        "\n{} {erasures} for the service to purge: {people} named, kept out until {until}, and until\n  complete scans meet nobody\n",
        waiting.len()
    )
}
