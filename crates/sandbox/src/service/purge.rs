//! Purges: the named people vanish when the delay of the request has passed on the service's clock.

use std::collections::HashSet;

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{
    super::{
        faults::Faults,
        random::uuid_of,
        world::{Visitor, VisitorSet},
    },
    reply::Reply,
    state::{PendingPurge, Service, lock},
};

/// Maximum identifiers of one request, by the contract: mail addresses, user ids and visitor ids together.
const DELETIONS_MAX: usize = 100;
/// The contract's default delay: ten days.
const DELAY_SECONDS_DEFAULT: u64 = 10 * 86_400;
const PURGE_PURPOSE: u64 = 0x0000_9054;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PurgeRequest {
    delay_seconds: Option<u64>,
    #[serde(default)]
    emails: Vec<String>,
    #[serde(default)]
    user_ids: Vec<String>,
    #[serde(default)]
    visitor_ids: Vec<String>,
}

impl Service {
    /// Answers a purge request: schedules the purge, or refuses an invalid request.
    pub(super) fn request_purge(&self, body: &[u8], faults: &Faults) -> Reply {
        let request: PurgeRequest = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => return Reply::bad_request(&error.to_string()),
        };
        match request.emails.len() + request.user_ids.len() + request.visitor_ids.len() {
            0 => return Reply::bad_request("at least one of 'emails', 'visitorIds', 'userIds' must be non-empty"),
            names if names > DELETIONS_MAX => {
                return Reply::bad_request(&format!("at most {DELETIONS_MAX} visitors per request"));
            }
            _ => {}
        }
        let uuids: Result<HashSet<u128>, _> =
            request.visitor_ids.iter().map(|id| Uuid::try_parse(id).map(|id| id.as_u128())).collect();
        let Ok(uuids) = uuids else {
            return Reply::bad_request("'visitorIds' must be UUIDs");
        };
        let (visitors, user_ids) = self.find_people(&request, &uuids);
        if visitors.numbers.is_empty() && visitors.texts.is_empty() && user_ids.is_empty() {
            return Reply::bad_request("no visitors found");
        }
        let delay_ms = request.delay_seconds.unwrap_or(DELAY_SECONDS_DEFAULT).saturating_mul(1000);
        let due_ms = self.clock.now_ms().saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX));
        let mut purges = lock(&self.purges);
        purges.push(PendingPurge { due_ms, visitors, user_ids });
        let id = Uuid::from_u128(uuid_of(PURGE_PURPOSE ^ due_ms as u64, purges.len() as u64));
        let id = if faults.quoted_request_id { format!("“{id}”") } else { id.to_string() };
        Reply::json(StatusCode::OK, json!({ "requestId": id }).to_string())
    }

    /// Finds those people of the request who exist. Returns the visitors of generated and planted rows, and the ids of
    /// upserted users.
    fn find_people(&self, request: &PurgeRequest, uuids: &HashSet<u128>) -> (VisitorSet, Vec<String>) {
        let mut named = VisitorSet::default();
        let mut user_ids = Vec::new();
        {
            let users = lock(&self.users);
            user_ids.extend(request.user_ids.iter().filter(|id| users.contains(id)).cloned());
            user_ids.extend(request.emails.iter().flat_map(|email| users.ids_of_email(email)));
        }
        let world = self.world();
        let by_id = request.user_ids.iter().chain(&user_ids);
        let by_id = by_id.filter_map(|id| world.visitor_named(id, Visitor::external_user_id));
        let by_email = request.emails.iter().filter_map(|email| world.visitor_named(email, Visitor::email));
        by_id.chain(by_email).for_each(|visitor| named.add(visitor));
        if !uuids.is_empty() {
            let found = world.visitors().filter(|visitor| uuids.contains(&visitor.uuid));
            found.for_each(|visitor| named.add(visitor));
        }
        let texts = request.visitor_ids.iter().map(|id| id.to_lowercase()).chain(request.user_ids.iter().cloned());
        named.texts.extend(texts.filter(|text| world.has_planted_rows_of(text)));
        (named, user_ids)
    }

    /// Carries out the purges whose delay has passed.
    pub(crate) fn run_due_purges(&self) {
        let now_ms = self.clock.now_ms();
        let mut purges = lock(&self.purges);
        if purges.iter().all(|purge| purge.due_ms > now_ms) {
            return;
        }
        // `purges` stays locked until all rows are removed. A request that arrives meanwhile waits for this lock, so it
        // sees all removals.
        let due: Vec<PendingPurge> = purges.extract_if(.., |purge| purge.due_ms <= now_ms).collect();
        for purge in due {
            self.world_mut().remove_visitors(&purge.visitors);
            lock(&self.users).remove(&purge.user_ids);
        }
    }
}
