//! The sandbox follows the contract: parameters, records, statuses and authentication.

use std::{collections::BTreeSet, io::Read as _};

use studysync_sandbox::{Auth, EndMark, Faults, Settings};

use super::*;

#[tokio::test]
async fn limits_are_1_to_1000() {
    let service = start(small()).await;
    for limit in ["0", "1001", "-1", "many", ""] {
        let (status, error) = service.refusal(&format!("/v1/responses?limit={limit}")).await;
        assert_eq!((status, error.contains("limit")), (400, true), "{limit}");
        assert_eq!(service.status(&format!("/v1/surveys?limit={limit}")).await, 400);
    }
    for limit in [1, 7, 1000] {
        assert_eq!(service.page(&format!("/v1/responses?limit={limit}")).await.rows.len(), limit);
    }
}

#[tokio::test]
async fn ill_typed_and_unknown_parameters_are_refused() {
    let service = start(small()).await;
    for query in
        ["start=x", "end=1.5", "sid=abc", "with_meta=1", "with_url=true", "start=5&end=4", "cursor=%25", "status=NEW"]
    {
        let (status, error) = service.refusal(&format!("/v1/responses?{query}")).await;
        assert_eq!((status, error.is_empty()), (400, false), "{query}");
    }
    assert_eq!(service.status("/v1/themes?limit=5").await, 400, "the contract knows no limit of themes");
    service.control("faults", serde_json::json!({"ignore_unknown_parameters": true})).await;
    assert_eq!(service.status("/v1/responses?with_url=true").await, 200);
}

#[tokio::test]
async fn both_ends_of_a_window_are_inside_unless_set_otherwise() {
    let service = start(small()).await;
    let truth = service.truth("responses").await;
    let at_ms = created_ms(&truth[700]);
    let to_ms = created_ms(&truth[900]);
    let path = format!("/v1/responses?start={at_ms}&end={to_ms}&limit=1000&with_deleted_responses=true");
    let count = |from: i64, to: i64| truth.iter().filter(|row| (from..=to).contains(&created_ms(row))).count();
    assert_eq!(service.rows(&path).await.len(), count(at_ms, to_ms));
    service.control("faults", serde_json::json!({"exclusive_end": true})).await;
    assert_eq!(service.rows(&path).await.len(), count(at_ms, to_ms - 1));
    service.control("faults", serde_json::json!({"exclusive_end": false, "exclusive_start": true})).await;
    assert_eq!(service.rows(&path).await.len(), count(at_ms + 1, to_ms));
    let one_ms = format!("/v1/responses?start={at_ms}&end={at_ms}&with_deleted_responses=true");
    service.control("faults", serde_json::json!({"exclusive_start": false})).await;
    assert_eq!(service.rows(&one_ms).await.len(), count(at_ms, at_ms));
}

#[tokio::test]
async fn optional_fields_need_their_flags() {
    let service = start(Settings { deleted_share: 0.2, ..small() }).await;
    let surveys = service.rows("/v1/surveys?limit=1000").await;
    let links: BTreeSet<i64> =
        surveys.iter().filter(|row| row["platform"] == "link").map(|row| row["id"].as_i64().unwrap()).collect();
    let plain = service.rows("/v1/responses?limit=1000").await;
    let parts = ["deletedAt", "url", "meta", "customMetadata", "visitorSnapshot"];
    assert!(plain.iter().all(|row| parts.iter().all(|part| row.get(part).is_none())));

    let full = service.rows(&format!("/v1/responses?limit=1000&{ALL_FLAGS}")).await;
    let (mut spellings, mut link_rows) = (BTreeSet::new(), 0);
    for row in &full {
        assert!(row["url"].is_string() && row["meta"]["screen"]["width"].is_i64(), "{row}");
        assert!(row.get("deletedAt").is_some_and(|at| at.is_null() || at.is_string()));
        let is_link = links.contains(&row["surveyId"].as_i64().unwrap());
        assert_eq!(row.get("customMetadata").is_some(), is_link);
        link_rows += usize::from(is_link);
        let snapshot = row["visitorSnapshot"].as_object().unwrap();
        spellings.extend(["attributes", "attribtues"].into_iter().filter(|name| snapshot.contains_key(*name)));
        assert_eq!(snapshot["visitorId"], row["visitorUuid"]);
    }
    assert_eq!(spellings.len(), 2);
    assert!(link_rows > 0 && link_rows < full.len());
    let deleted = full.iter().filter(|row| is_deleted(row)).count();
    assert!((200..400).contains(&deleted), "{deleted}");
    assert_eq!(plain.len() + deleted, 1500);
}

#[tokio::test]
async fn every_question_type_has_its_own_shape() {
    let service = start(Settings { responses: 20_000, ..small() }).await;
    let mut shapes: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for row in service.rows("/v1/responses?limit=1000").await {
        let response = &row["response"];
        let shape = match response {
            Value::Null => "null",
            Value::String(text) if text.is_empty() => "empty text",
            Value::String(text) if text.starts_with("[\"") => "list in a text",
            Value::String(_) => "text",
            Value::Number(number) if number.is_i64() => "integer",
            Value::Array(items) if items.is_empty() => "empty list",
            Value::Array(items) if items[0].is_array() => "list of lists",
            Value::Array(_) => "list",
            Value::Object(_) => "object",
            _ => "other",
        };
        let kind = row["questionType"].as_str().unwrap().to_owned();
        match (kind.as_str(), response) {
            ("MULTIPLECHOICE", Value::String(_)) => assert!(row["selectedIndexes"].is_i64(), "{row}"),
            ("MULTIPLESELECT", Value::String(_) | Value::Array(_)) => {
                assert!(row["selectedIndexes"].is_array(), "{row}")
            }
            ("VIDEOVOICE", Value::Object(video)) => {
                assert!(video["duration"].is_number() && video["uploadId"].is_string())
            }
            ("CONSENTLEGAL", consent) => assert!(consent["submitted"].is_boolean()),
            ("NPS", Value::Number(score)) => assert!((0..=10).contains(&score.as_i64().unwrap())),
            _ => {}
        }
        shapes.entry(kind).or_default().insert(shape);
    }
    let expected: [(&str, &[&str]); 11] = [
        ("CONSENTLEGAL", &["object"]),
        ("LIKERT", &["integer", "null"]),
        ("MATRIX", &["object"]),
        ("MAXDIFF", &["list of lists"]),
        ("MULTIPLECHOICE", &["null", "text"]),
        ("MULTIPLESELECT", &["empty list", "list", "list in a text", "null", "text"]),
        ("NPS", &["integer", "null"]),
        ("OPEN", &["empty text", "null", "text"]),
        ("RANKORDER", &["object"]),
        ("TEXTURLPROMPT", &["null"]),
        ("VIDEOVOICE", &["null", "object"]),
    ];
    // A MULTIPLESELECT without a choice can also be the text "[]".
    let found: Vec<(String, Vec<&str>)> =
        shapes.into_iter().map(|(kind, shapes)| (kind, shapes.into_iter().collect())).collect();
    let expected: Vec<(String, Vec<&str>)> = expected.map(|(kind, shapes)| (kind.to_owned(), shapes.to_vec())).to_vec();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn sessions_share_a_group_and_visitors_come_back() {
    let service = start(Settings { responses: 5000, ..small() }).await;
    let truth = service.truth("responses").await;
    assert_eq!(truth.len(), 5000);
    by_key(&truth);
    let mut groups: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    truth.iter().for_each(|row| groups.entry(row["responseGroupUid"].as_str().unwrap()).or_default().push(row));
    let mut sessions_of: BTreeMap<&str, usize> = BTreeMap::new();
    for rows in groups.values() {
        assert!(rows.len() <= 6);
        assert!(
            rows.iter()
                .all(|row| row["visitorUuid"] == rows[0]["visitorUuid"] && row["surveyId"] == rows[0]["surveyId"])
        );
        let (first, last) = (created_ms(rows[0]), created_ms(rows[rows.len() - 1]));
        assert!(last - first <= 240_000, "answers of one session lie seconds apart");
        *sessions_of.entry(rows[0]["visitorUuid"].as_str().unwrap()).or_default() += 1;
    }
    assert!(sessions_of.values().any(|sessions| *sessions > 2));
    assert!(truth.iter().any(|row| row["externalUserId"] == ""));
    assert!(truth.iter().any(|row| row["externalUserId"].is_null()));
    assert!(truth.iter().any(|row| row["partnerAnonymousId"].is_string()));
    assert!(truth.iter().all(|row| (NOW_MS - 10 * 86_400_000..=NOW_MS).contains(&created_ms(row))));
}

#[tokio::test]
async fn statuses_are_read_in_three_spellings() {
    let service = start(small()).await;
    let all = service.rows("/v1/surveys?limit=1000").await;
    let count = |names: &[&str]| all.iter().filter(|row| names.contains(&row["status"].as_str().unwrap())).count();
    let expected = count(&["PAUSED", "DRAFT"]);
    assert!(expected > 0 && expected < all.len());
    for query in [
        "status=PAUSED,DRAFT",
        "status[]=PAUSED&status[]=DRAFT",
        "status%5B%5D=PAUSED&status%5B%5D=DRAFT",
        "status=PAUSED&status=DRAFT",
    ] {
        assert_eq!(service.rows(&format!("/v1/surveys?{query}")).await.len(), expected, "{query}");
    }
    for status in ["NEW", "IN_PROGRESS", "PAUSED", "COMPLETED", "DRAFT", "ARCHIVED"] {
        assert!(count(&[status]) > 0, "{status}");
        assert_eq!(service.rows(&format!("/v1/surveys?status={status}")).await.len(), count(&[status]));
    }
    assert_eq!(service.refusal("/v1/surveys?status=GONE").await.0, 400);
    assert_eq!(service.rows("/v1/studies?limit=1000").await, all, "a study is a survey");
}

#[tokio::test]
async fn one_survey_can_be_requested() {
    let service = start(small()).await;
    let truth = service.truth("responses").await;
    let id = truth[10]["surveyId"].as_i64().unwrap();
    let expected = truth.iter().filter(|row| row["surveyId"] == id).count();
    for name in ["sid", "surveyId", "studyId"] {
        let rows = service.rows(&format!("/v1/responses?{name}={id}&limit=20&with_deleted_responses=true")).await;
        assert_eq!(rows.len(), expected);
        assert!(rows.iter().all(|row| row["surveyId"] == id));
    }
    assert_eq!(service.rows("/v1/responses?sid=1&limit=20").await.len(), 0);
    let themes = service.truth("themes").await;
    let id = themes[0]["surveyId"].as_i64().unwrap();
    let expected = themes.iter().filter(|row| row["surveyId"] == id).count();
    assert_eq!(service.rows(&format!("/v1/themes?sid={id}")).await.len(), expected);
}

#[tokio::test]
async fn a_missing_or_wrong_key_gets_403_without_a_body() {
    let service = start(small()).await;
    let url = service.url("/v1/responses");
    for value in [None, Some("Bearer wrong"), Some("Basic sandbox-key"), Some("sandbox-key"), Some("Bearer")] {
        let request = service.client.get(&url);
        let request = value.into_iter().fold(request, |request, value| request.header("authorization", value));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 403, "{value:?}");
        assert_eq!(response.bytes().await.unwrap().len(), 0);
    }
    let status = |path: &'static str, form: &'static str| {
        let request = service.client.get(service.url(path)).header("authorization", format!("{form} {KEY}"));
        async move { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!([status("/v1/surveys", "Bearer").await, status("/v1/surveys", "API-Key").await], [200, 200]);
    let strict = Faults { auth: Auth::Strict, ..Faults::default() };
    service.running.control().set_faults(strict).unwrap();
    assert_eq!([status("/v1/surveys", "Bearer").await, status("/v1/surveys", "API-Key").await], [200, 403]);
    assert_eq!([status("/v2/users/x", "Bearer").await, status("/v2/users/x", "API-Key").await], [403, 404]);
}

#[tokio::test]
async fn unknown_methods_and_paths_are_refused_and_date_is_sent() {
    let service = start(small()).await;
    let head = service.client.head(service.url("/v1/responses?limit=5")).bearer_auth(KEY).send().await.unwrap();
    let length: usize = head.headers()["content-length"].to_str().unwrap().parse().unwrap();
    assert_eq!(head.headers()["date"], "Sat, 31 Jan 2026 08:00:00 GMT");
    assert_eq!(head.bytes().await.unwrap().len(), 0);
    assert_eq!(service.get("/v1/responses?limit=5").await.bytes().await.unwrap().len(), length);
    let post = service.client.post(service.url("/v1/responses")).bearer_auth(KEY).send().await.unwrap();
    assert_eq!((post.status().as_u16(), post.headers()["allow"].to_str().unwrap()), (405, "GET, HEAD"));
    assert_eq!(service.refusal("/v1/answers").await.0, 404);
}

#[tokio::test]
async fn the_end_of_results_has_three_forms() {
    let service = start(small()).await;
    let path = "/v1/responses?start=1&end=2";
    for (mark, expected) in [
        (EndMark::Null, r#"{"data":[],"cursor":null}"#),
        (EndMark::Missing, r#"{"data":[]}"#),
        (EndMark::Empty, r#"{"data":[],"cursor":""}"#),
    ] {
        service.running.control().set_faults(Faults { end_mark: mark, ..Faults::default() }).unwrap();
        assert_eq!(service.get(path).await.text().await.unwrap(), expected);
    }
    service.running.control().set_faults(Faults { not_found_when_empty: true, ..Faults::default() }).unwrap();
    assert_eq!(service.status(path).await, 404);
    assert_eq!(service.status("/v1/responses").await, 200);
}

#[tokio::test]
async fn bodies_are_compressed_when_client_and_server_agree() {
    let service = start(small()).await;
    let path = "/v1/responses?limit=100";
    let plain = service.get(path).await.text().await.unwrap();
    service.control("faults", serde_json::json!({"gzip": true})).await;
    // The sandbox does not compress for a client that does not accept gzip.
    assert_eq!(service.get(path).await.text().await.unwrap(), plain);
    let asked = service.client.get(service.url(path)).bearer_auth(KEY).header("accept-encoding", "gzip");
    let packed = asked.send().await.unwrap().bytes().await.unwrap();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain);
    let sent = service.running.control().log_since(0).last().unwrap().bytes as usize;
    assert!(sent == packed.len() && sent * 2 < plain.len(), "{sent} of {}", plain.len());
}

#[tokio::test]
async fn equal_settings_give_equal_bytes() {
    let settings = || Settings { hostile_share: 0.05, ties_per_ms: 3, ..small() };
    let (one, two) = (start(settings()).await, start(settings()).await);
    let other = start(Settings { seed: 2, ..settings() }).await;
    let path = format!("/v1/responses?limit=1000&{ALL_FLAGS}");
    let text = one.get(&path).await.bytes().await.unwrap();
    assert_eq!(text, two.get(&path).await.bytes().await.unwrap());
    assert_ne!(text, other.get(&path).await.bytes().await.unwrap());
    for list in ["surveys", "themes"] {
        assert_eq!(one.truth(list).await, two.truth(list).await);
    }
    // If this digest changes, each bug report that names a seed loses its data.
    let digest = xxhash_rust::xxh3::xxh3_64(&text);
    assert_eq!(format!("{digest:016x}"), "b3d2694be50f9608");
}
