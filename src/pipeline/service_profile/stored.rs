//! Reads facts about the service from the warehouse and the inbox: environments in webhooks, and ids of users. Sends no
//! request.

use std::{collections::BTreeMap, time::Duration};

use arrow::{
    array::{Array as _, AsArray as _},
    datatypes::Int64Type,
};
use serde::Serialize;

use crate::{
    config::Settings,
    flatten::summarize_body,
    load::Reader,
    model::{behaviour_names, can_request_user},
    state::{Inbox, StateError},
};

use super::{
    super::{PipelineError, assemble::open_reader, memory::Memory},
    report::Measured,
};

/// The maximum number of environments in the result.
const ENVIRONMENTS_MAX: usize = 10;
/// The maximum length of an id. A longer text is probably no id, and may name a person.
const ID_CHARS_MAX: usize = 64;
/// The maximum number of deliveries that are read from the inbox.
const DELIVERIES_MAX: u32 = 10_000;
/// Time limit of a query.
const QUERY_TIME: Duration = Duration::from_secs(20);

/// An environment by the service's id.
#[derive(Serialize)]
struct Environment {
    id: String,
    deliveries: u64,
}

/// Opens the warehouse for reading. Returns `None` if it is missing or locked.
pub(super) fn reader(settings: &Settings) -> Option<Reader> {
    let opened = open_reader(&settings.warehouse, QUERY_TIME);
    let opened = opened.map(|(_, reader)| reader);
    opened.inspect_err(|error| tracing::debug!(%error, "the warehouse cannot be read now")).ok()
}

/// Returns ids of the users of the latest ten answers with a user. Returns none if the query fails.
pub(super) fn user_ids(reader: &mut Reader) -> Vec<String> {
    let sql = "SELECT external_user_id FROM current_responses WHERE external_user_id IS NOT NULL ORDER BY created_at DESC LIMIT 10";
    let Ok(found) = reader.query(sql, 10) else { return Vec::new() };
    let columns = found.batches.iter().filter_map(|batch| batch.column(0).as_string_opt::<i32>());
    columns.flatten().flatten().filter(|id| can_request_user(id)).map(str::to_owned).collect()
}

/// Returns the environments in webhooks of the warehouse and the inbox, those with the most deliveries first. The
/// environment of the settings is added without deliveries. Texts that do not look like ids are left out.
pub(super) fn environments(settings: &Settings, reader: Option<&mut Reader>) -> Result<Measured, PipelineError> {
    let mut counts = reader.map(count_in_warehouse).unwrap_or_default();
    let mut add = |id: String, deliveries: u64| *counts.entry(id).or_default() += deliveries;
    count_in_inbox(settings, &mut add)?;
    if let Some(id) = &settings.serve.environment_id {
        add(id.clone(), 0);
    }
    let name = behaviour_names::ENVIRONMENT_IDS;
    let total: u64 = counts.values().sum();
    let (known, others): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(id, _)| is_id(id));
    if known.is_empty() {
        return Ok(Measured::unknown(name, format!("no environment is named in {total} webhooks")));
    }
    let mut known: Vec<Environment> =
        known.into_iter().map(|(id, deliveries)| Environment { id, deliveries }).collect();
    known.sort_by(|left, right| right.deliveries.cmp(&left.deliveries).then_with(|| left.id.cmp(&right.id)));
    let left_out = known.len().saturating_sub(ENVIRONMENTS_MAX) + others.len();
    known.truncate(ENVIRONMENTS_MAX);
    let mut how = format!("{total} webhooks of the warehouse and the inbox");
    if left_out > 0 {
        how.push_str(&format!("; {left_out} more names are left out"));
    }
    Ok(Measured::known(name, known, how))
}

/// Returns true if a text looks like an id. The field of a webhook can contain any text, such as an email address.
fn is_id(text: &str) -> bool {
    let is_sign = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | ':');
    text.chars().count() <= ID_CHARS_MAX && text.chars().all(is_sign)
}

/// Counts the webhooks in the warehouse by environment. Returns none if the query fails.
fn count_in_warehouse(reader: &mut Reader) -> BTreeMap<String, u64> {
    let sql = "SELECT environment_id, count(*) FROM webhook_events WHERE environment_id IS NOT NULL GROUP BY ALL ORDER BY 2 DESC LIMIT 100";
    let Ok(found) = reader.query(sql, 100) else { return BTreeMap::new() };
    let mut counts = BTreeMap::new();
    for batch in &found.batches {
        let ids = batch.column(0).as_string_opt::<i32>();
        let deliveries = batch.column(1).as_primitive_opt::<Int64Type>();
        let Some((ids, deliveries)) = ids.zip(deliveries) else { continue };
        let rows = (0..batch.num_rows()).filter(|row| ids.is_valid(*row));
        counts.extend(rows.map(|row| (ids.value(row).to_owned(), deliveries.value(row).unsigned_abs())));
    }
    counts
}

/// Passes the environment of each pending delivery in the inbox to `add`, as one delivery each. Also passes the
/// environment that the inbox stores, with 0 deliveries. Adds nothing if there is no inbox.
fn count_in_inbox(settings: &Settings, add: &mut impl FnMut(String, u64)) -> Result<(), StateError> {
    let Some(inbox) = Inbox::open_read_only(&settings.state_path)? else { return Ok(()) };
    if let Some(id) = inbox.environment_id()? {
        add(id, 0);
    }
    for delivery in inbox.pending(DELIVERIES_MAX, Memory::of(&settings.warehouse).bodies)? {
        if let Some(id) = summarize_body(&delivery.body).environment_id {
            add(id, 1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_that_look_like_ids_are_shown() {
        for id in ["production", "0b7a-4c55", "12", "env:prod_2.1"] {
            assert!(is_id(id), "{id}");
        }
        for other in ["zoe@example.com", "Zoë", "a b", &"x".repeat(65)] {
            assert!(!is_id(other), "{other}");
        }
    }
}
