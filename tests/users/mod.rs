//! Users: pulled one by one into the warehouse, and pushed one by one to the service.

mod kills;
mod pull;
mod push;
mod push_kills;
mod rate;
mod results;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use studysync_sandbox::{ListName, LogEntry};

use crate::harness::{ALL_FLAGS, Place, Service};

/// A configuration that requests everything, including users.
pub fn with_people() -> String {
    format!("{ALL_FLAGS}[streams.users]\nenabled = true\n")
}

/// Returns the service's answer records that name a user, by user.
pub fn people_of(service: &Service) -> BTreeMap<String, Value> {
    let records = service.truth(ListName::Responses);
    let records = records.iter().map(|record| serde_json::from_str::<Value>(record).unwrap());
    let named = records.filter_map(|record| {
        let user_id = record["externalUserId"].as_str().filter(|user_id| !user_id.is_empty())?.to_owned();
        Some((user_id, record))
    });
    named.collect()
}

/// Returns the requests for users.
pub fn asked(log: &[LogEntry]) -> Vec<&LogEntry> {
    log.iter().filter(|entry| entry.method == "GET" && entry.path.starts_with("/v2/users/")).collect()
}

/// Returns the first column of a query over each warehouse of a place.
pub fn each(place: &Place, sql: &str) -> Vec<Vec<Option<String>>> {
    let of = |tables: &crate::harness::Tables| -> Vec<Option<String>> {
        tables.rows_of(sql).into_iter().map(|row| row.into_iter().next().flatten()).collect()
    };
    place.warehouses().iter().map(|(_, tables)| of(tables)).collect()
}

/// Asserts that `users` has exactly these users, in every warehouse.
pub fn assert_users_equal(place: &Place, expected: &BTreeSet<String>, condition: &str) {
    let sql = format!("SELECT external_user_id FROM users WHERE {condition} ORDER BY 1");
    for found in each(place, &sql) {
        let found: BTreeSet<String> = found.into_iter().flatten().collect();
        assert!(found == *expected, "{condition}: {} people, expected {}", found.len(), expected.len());
    }
}
