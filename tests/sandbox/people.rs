//! Users and purges.

use std::time::{Duration, Instant};

use serde_json::json;
use studysync_sandbox::Faults;

use super::*;

impl Service {
    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.client.post(self.url(path)).bearer_auth(KEY).json(body).send().await.unwrap();
        let status = response.status().as_u16();
        (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
    }

    async fn purge(&self, body: Value) -> (u16, Value) {
        self.post("/v2/purge/visitors", &body).await
    }
}

#[tokio::test]
async fn a_purged_visitor_leaves_every_list_after_the_delay() {
    let service = start(small()).await;
    let themes = service.truth("themes").await;
    let responses = service.truth("responses").await;
    let group = &themes[0]["responseGroupUid"];
    let person = responses.iter().find(|row| row["responseGroupUid"] == *group).unwrap().clone();
    let rows_of = |rows: &[Value]| rows.iter().filter(|row| row["visitorId"] == person["visitorId"]).count();
    let (theirs, their_themes) = (rows_of(&responses), rows_of(&themes));
    assert!(theirs > 0 && their_themes > 0);
    let (status, body) = service.purge(json!({"visitorIds": [person["visitorUuid"]], "delaySeconds": 60})).await;
    assert_eq!((status, body["requestId"].as_str().unwrap().len()), (200, 36));

    service.control("clock", json!({"advance_ms": 59_000})).await;
    assert_eq!(rows_of(&service.truth("responses").await), theirs, "not before its time");
    service.control("clock", json!({"advance_ms": 1_000})).await;
    let listed = service.rows("/v1/responses?limit=1000&with_deleted_responses=true").await;
    assert_eq!((listed.len(), rows_of(&listed)), (1500 - theirs, 0));
    let listed = service.rows("/v1/themes?start=0").await;
    assert_eq!((listed.len(), rows_of(&listed)), (themes.len() - their_themes, 0));
    let again = service.purge(json!({"visitorIds": [person["visitorUuid"]]})).await;
    assert_eq!(again.0, 400, "nobody is left to purge");
    let changes = json!({"new_answers": 3000});
    service.control("changes", changes).await;
    assert_eq!(rows_of(&service.truth("responses").await), 0, "who is forgotten does not come back");
}

#[tokio::test]
async fn a_purge_names_one_to_a_hundred_people_who_exist() {
    let service = start(small()).await;
    let many: Vec<String> = (0..101).map(|number| format!("user-{number:06}")).collect();
    for (body, reason) in [
        (json!({}), "non-empty"),
        (json!({"emails": [], "userIds": [], "visitorIds": []}), "non-empty"),
        (json!({"userIds": many}), "100"),
        (json!({"userIds": &many[..51], "emails": &many[..50]}), "100"),
        (json!({"userIds": ["nobody"]}), "no visitors"),
        (json!({"visitorIds": ["not-a-uuid"]}), "UUID"),
        (json!({"userIds": ["x"], "delaySeconds": "soon"}), "delaySeconds"),
    ] {
        let (status, answer) = service.purge(body.clone()).await;
        let error = answer["error"].as_str().unwrap();
        assert_eq!(status, 400, "{body}");
        assert!(error.contains(reason) || reason == "delaySeconds", "{error}");
    }
    let (status, _) = service.purge(json!({"userIds": &many[..100]})).await;
    assert_eq!(status, 200, "some of them exist");
}

#[tokio::test]
async fn people_are_purged_by_user_id_and_by_mail_address() {
    let service = start_with(Faults { quoted_request_id: true, ..Faults::default() }).await;
    let truth = service.truth("responses").await;
    let people: Vec<&Value> =
        truth.iter().filter(|row| row["externalUserId"].as_str().is_some_and(|id| id.starts_with("user-"))).collect();
    let (one, two) = (people[0], people.iter().find(|row| row["visitorId"] != people[0]["visitorId"]).unwrap());
    let email = format!("person{}@example.com", two["visitorId"]);
    let (status, body) =
        service.purge(json!({"userIds": [one["externalUserId"]], "emails": [email], "delaySeconds": 0})).await;
    assert_eq!(status, 200);
    let id = body["requestId"].as_str().unwrap();
    assert!(id.starts_with('“') && id.ends_with('”'), "{id}");
    let left = service.truth("responses").await;
    let gone = [&one["visitorId"], &two["visitorId"]];
    assert_eq!(left.len(), truth.iter().filter(|row| !gone.contains(&&row["visitorId"])).count());
    assert!(left.iter().all(|row| !gone.contains(&&row["visitorId"])));
}

#[tokio::test]
async fn an_upserted_user_becomes_readable_after_a_delay() {
    const DELAY: Duration = Duration::from_millis(150);
    let service = start_with(Faults { user_delay_ms: DELAY.as_millis() as u64, ..Faults::default() }).await;
    let user = json!({
        "userId": "new person/1", "email": "new@example.com", "attributes": {"plan": "pro", "seats": 3, "vip": true},
        "events": [{"event": "login", "timestamp": 2000}, {"event": "login", "timestamp": 1000}],
    });
    let began = Instant::now();
    assert_eq!(service.post("/v2/users", &user).await.0, 202);
    let path = "/v2/users/new%20person%2F1";
    while service.status(path).await == 404 {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    assert!(began.elapsed() >= DELAY, "it is asynchronous");
    service.post("/v2/users", &json!({"userId": "new person/1", "attributes": {"plan": "free"}})).await;
    let read = service.json(path).await;
    assert_eq!(read["externalUserId"], "new person/1");
    assert_eq!(read["attributes"], json!({"plan": "free", "seats": 3, "vip": true, "email": "new@example.com"}));
    assert_eq!(read["events"], json!([{"event": "login", "count": 2, "createdAt": 1000, "updatedAt": 2000}]));
    assert_eq!(read["createdAt"], NOW_MS);
    assert_eq!(service.purge(json!({"emails": ["new@example.com"], "delaySeconds": 0})).await.0, 200);
    assert_eq!(service.status(path).await, 404);
}

#[tokio::test]
async fn invalid_users_are_refused() {
    let service = start(small()).await;
    let many: serde_json::Map<String, Value> = (0..101).map(|at| (format!("a{at}"), json!(1))).collect();
    for body in [
        json!({}),
        json!({"userId": ""}),
        json!({"userId": 5}),
        json!({"userId": "x", "email": "nowhere"}),
        json!({"userId": "x", "attributes": many}),
        json!({"userId": "x", "attributes": {"a": [1]}}),
        json!({"userId": "x", "events": [{"event": "e"}]}),
        json!([]),
    ] {
        assert_eq!(service.post("/v2/users", &body).await.0, 400, "{body}");
    }
    assert_eq!(service.status("/v2/users/x").await, 404);
}

#[tokio::test]
async fn generated_visitors_with_a_user_id_are_also_users() {
    let service = start(small()).await;
    let truth = service.truth("responses").await;
    let row =
        truth.iter().find(|row| row["externalUserId"].as_str().is_some_and(|id| id.starts_with("user-"))).unwrap();
    let user = service.json(&format!("/v2/users/{}", row["externalUserId"].as_str().unwrap())).await;
    assert_eq!(user["id"], row["visitorUuid"]);
    assert!(user["attributes"]["seats"].is_i64() && user["createdAt"].is_i64());
}
