//! Each field in the service's documents lands in the column that `docs/fields.md` names.
//!
//! The list of fields is copied from the documents by hand, with a different value for each field. One record with all
//! fields goes through `flatten`, and each value must be in its column. `docs/fields.md` is the same list;
//! `STUDYSYNC_WRITE=1` writes it.

use arrow::{
    array::{Array as _, RecordBatch},
    util::display::array_value_to_string,
};
use serde_json::{Map, Value, json};
use studysync::{
    flatten::{flatten_deliveries, flatten_page},
    model::{Delivery, DriftRules, Stream},
};

/// A field, a sample value as JSON, its column, and the value in that column.
struct Field {
    path: &'static str,
    sample: &'static str,
    column: &'static str,
    shown: &'static str,
}

const fn field(path: &'static str, sample: &'static str, column: &'static str, shown: &'static str) -> Field {
    Field { path, sample, column, shown }
}

/// Where records come from.
#[derive(Clone, Copy, PartialEq)]
enum From {
    List(Stream),
    Webhook,
}

/// A kind of record.
struct Record {
    title: &'static str,
    from: From,
    /// Members that make a record valid, besides the fields.
    beside: &'static str,
    fields: &'static [Field],
}

const ANSWER: &str = r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z"}"#;
const TIME: &str = r#""2026-01-02T03:04:05.678Z""#;
const SHOWN_TIME: &str = "2026-01-02T03:04:05.678";

const RECORDS: &[Record] = &[
    Record {
        title: "Response: `GET /v1/responses`",
        from: From::List(Stream::Responses),
        beside: "{}",
        fields: &[
            field("createdAt", TIME, "responses.created_at", SHOWN_TIME),
            field("updatedAt", r#""2026-01-02T03:04:06Z""#, "responses.updated_at", "2026-01-02T03:04:06"),
            field("deletedAt", r#""2026-01-02T03:04:07Z""#, "responses.deleted_at", "2026-01-02T03:04:07"),
            field("externalUserId", r#""user a""#, "responses.external_user_id", "user a"),
            field("partnerAnonymousId", r#""partner b""#, "responses.partner_anonymous_id", "partner b"),
            field("questionId", "1001", "responses.question_id", "1001"),
            field("questionText", r#""Why c?""#, "responses.question_text", "Why c?"),
            field("questionType", r#""OPEN""#, "responses.question_type", "OPEN"),
            field("response", r#""answer d""#, "responses.answer_json", r#""answer d""#),
            field("responseGroupUid", r#""session e""#, "responses.response_group_uid", "session e"),
            field("selectedIndexes", "[3, 5]", "responses.selected_indexes", "[3, 5]"),
            field("surveyId", "1002", "responses.survey_id", "1002"),
            field("visitorId", "1003", "responses.visitor_id", "1003"),
            field("visitorUuid", r#""visitor f""#, "responses.visitor_uuid", "visitor f"),
            field("url", r#""https://a.example/g""#, "responses.url", "https://a.example/g"),
            field("meta.browser", r#""browser h""#, "responses.meta_browser", "browser h"),
            field("meta.client.height", "1004", "responses.meta_client_height", "1004"),
            field("meta.client.width", "1005", "responses.meta_client_width", "1005"),
            field("meta.href", r#""https://a.example/i""#, "responses.meta_href", "https://a.example/i"),
            field("meta.language", r#""language j""#, "responses.meta_language", "language j"),
            field("meta.os", r#""os k""#, "responses.meta_os", "os k"),
            field("meta.screen.height", "1006", "responses.meta_screen_height", "1006"),
            field("meta.screen.width", "1007", "responses.meta_screen_width", "1007"),
            field("meta.userAgent", r#""agent l""#, "responses.meta_user_agent", "agent l"),
            field("customMetadata", r#"{"campaign":"m"}"#, "responses.custom_metadata", r#"{"campaign":"m"}"#),
            field("customMetadata.campaign", r#""m""#, "response_custom_metadata.value_text", "m"),
            field("visitorSnapshot.attributes", r#"{"plan":"n"}"#, "visitor_snapshots.attributes", r#"{"plan":"n"}"#),
            field("visitorSnapshot.attributes.plan", r#""n""#, "visitor_snapshot_attributes.value_text", "n"),
            field("visitorSnapshot.eventProperties", r#"{"o":1}"#, "visitor_snapshots.event_properties", r#"{"o":1}"#),
            field("visitorSnapshot.events", r#"{"p":2}"#, "visitor_snapshots.events", r#"{"p":2}"#),
            field(
                "visitorSnapshot.responseGroupUid",
                r#""session e""#,
                "visitor_snapshots.response_group_uid",
                "session e",
            ),
            field("visitorSnapshot.triggeringEvent", r#""event q""#, "visitor_snapshots.triggering_event", "event q"),
            field("visitorSnapshot.visitorId", r#""visitor r""#, "visitor_snapshots.visitor_id", "visitor r"),
            field("visitorSnapshot.externalUserId", r#""user s""#, "visitor_snapshots.external_user_id", "user s"),
        ],
    },
    Record {
        title: "Response with the other spelling of its attributes",
        from: From::List(Stream::Responses),
        beside: ANSWER,
        fields: &[field(
            "visitorSnapshot.attribtues",
            r#"{"plan":"t"}"#,
            "visitor_snapshots.attributes",
            r#"{"plan":"t"}"#,
        )],
    },
    Record {
        title: "Answer to CONSENTLEGAL",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"CONSENTLEGAL"}"#,
        fields: &[field("response.submitted", "true", "responses.answer_bool", "true")],
    },
    Record {
        title: "Answer to LIKERT",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"LIKERT"}"#,
        fields: &[field("response", "4", "responses.answer_number", "4.0")],
    },
    Record {
        title: "Answer to NPS",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"NPS"}"#,
        fields: &[field("response", "9", "responses.answer_number", "9.0")],
    },
    Record {
        title: "Answer to OPEN",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"OPEN"}"#,
        fields: &[field("response", r#""words a""#, "responses.answer_text", "words a")],
    },
    Record {
        title: "Answer to MATRIX, by the label of the row",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"MATRIX"}"#,
        fields: &[field("response.Speed", r#""2 - good""#, "response_matrix_cells.column_label", "2 - good")],
    },
    Record {
        title: "Answer to MULTIPLECHOICE",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"MULTIPLECHOICE"}"#,
        fields: &[
            field("response", r#""option a""#, "response_choices.label", "option a"),
            field("selectedIndexes", "7", "response_choices.selected_index", "7"),
        ],
    },
    Record {
        title: "Answer to MULTIPLESELECT",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"MULTIPLESELECT"}"#,
        fields: &[
            field("response", r#"["option a"]"#, "response_choices.label", "option a"),
            field("selectedIndexes", "[8]", "response_choices.selected_index", "8"),
        ],
    },
    Record {
        title: "TEXTURLPROMPT, which asks nothing",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"TEXTURLPROMPT"}"#,
        fields: &[field("response", "null", "responses.answer_json", "null")],
    },
    Record {
        title: "Answer to VIDEOVOICE",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"VIDEOVOICE"}"#,
        fields: &[
            field(
                "response.downloadUrl",
                r#""https://a.example/a""#,
                "response_media.download_url",
                "https://a.example/a",
            ),
            field("response.duration", "12.5", "response_media.duration_secs", "12.5"),
            field("response.mediaType", r#""video/b""#, "response_media.media_type", "video/b"),
            field("response.transcription", r#""words c""#, "response_media.transcription", "words c"),
            field("response.updatedAt", TIME, "response_media.media_updated_at", SHOWN_TIME),
            field("response.uploadId", r#""upload d""#, "response_media.upload_id", "upload d"),
            field("response.videoUrl", r#""https://a.example/e""#, "response_media.video_url", "https://a.example/e"),
        ],
    },
    Record {
        title: "Answer to MAXDIFF: an item of a round",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"MAXDIFF"}"#,
        fields: &[
            field("response[][].id", "1011", "response_maxdiff_items.item_id", "1011"),
            field("response[][].option", r#""option a""#, "response_maxdiff_items.option", "option a"),
            field("response[][].selected", r#""left""#, "response_maxdiff_items.selected", "left"),
        ],
    },
    Record {
        title: "Answer to RANKORDER, by the label of the option",
        from: From::List(Stream::Responses),
        beside: r#"{"responseGroupUid":"g","questionId":1,"createdAt":"2026-01-01T00:00:00.000Z","questionType":"RANKORDER"}"#,
        fields: &[field("response.Price", "3", "response_ranks.rank", "3")],
    },
    Record {
        title: "Study: `GET /v1/surveys`",
        from: From::List(Stream::Surveys),
        beside: "{}",
        fields: &[
            field("id", "1001", "surveys.id", "1001"),
            field("name", r#""name a""#, "surveys.name", "name a"),
            field("platform", r#""web""#, "surveys.platform", "web"),
            field("type", r#""CONTINUOUS""#, "surveys.type", "CONTINUOUS"),
            field("status", r#""PAUSED""#, "surveys.status", "PAUSED"),
            field("createdAt", TIME, "surveys.created_at", SHOWN_TIME),
            field("updatedAt", r#""2026-01-02T03:04:06Z""#, "surveys.updated_at", "2026-01-02T03:04:06"),
            field("launchedAt", r#""2026-01-02T03:04:07Z""#, "surveys.launched_at", "2026-01-02T03:04:07"),
            field("completedAt", r#""2026-01-02T03:04:08Z""#, "surveys.completed_at", "2026-01-02T03:04:08"),
            field("totalResponseLimit", "1002", "surveys.total_response_limit", "1002"),
            field("constraints[].comparisonType", r#""gte""#, "survey_constraints.comparison_type", "gte"),
            field("constraints[].event", r#""event b""#, "survey_constraints.event", "event b"),
            field("constraints[].type", r#""SESSION_COUNT""#, "survey_constraints.constraint_type", "SESSION_COUNT"),
            field("constraints[].value", "1003", "survey_constraints.value", "1003.0"),
            field("questions[].id", "1004", "survey_questions.question_id", "1004"),
            field("questions[].type", r#""LIKERT""#, "survey_questions.question_type", "LIKERT"),
            field("questions[].questionText", r#""Why c?""#, "survey_questions.question_text", "Why c?"),
            field("questions[].options", r#"["option d"]"#, "survey_questions.options", r#"["option d"]"#),
            field("questions[].options[]", r#""option d""#, "survey_question_options.label", "option d"),
            field("questions[].optionsProperties.introText", r#""intro e""#, "survey_questions.intro_text", "intro e"),
            field("questions[].optionsProperties.labels.left", r#""left f""#, "survey_questions.left_label", "left f"),
            field(
                "questions[].optionsProperties.labels.right",
                r#""right g""#,
                "survey_questions.right_label",
                "right g",
            ),
            field("questions[].routingOptions", r#"{"h":1}"#, "survey_questions.routing_options", r#"{"h":1}"#),
        ],
    },
    Record {
        title: "Theme: `GET /v1/themes`",
        from: From::List(Stream::Themes),
        beside: "{}",
        fields: &[
            field("id", "1001", "themes.id", "1001"),
            field("createdAt", TIME, "themes.created_at", SHOWN_TIME),
            field("updatedAt", r#""2026-01-02T03:04:06Z""#, "themes.updated_at", "2026-01-02T03:04:06"),
            field("questionId", "1002", "themes.question_id", "1002"),
            field("questionText", r#""Why a?""#, "themes.question_text", "Why a?"),
            field("questionType", r#""OPEN""#, "themes.question_type", "OPEN"),
            field("response", r#""answer b""#, "themes.response", "answer b"),
            field("responseGroupUid", r#""session c""#, "themes.response_group_uid", "session c"),
            field("surveyId", "1003", "themes.survey_id", "1003"),
            field("theme", r#""theme d""#, "themes.theme", "theme d"),
            field("themeDescription", r#""about e""#, "themes.theme_description", "about e"),
            field("visitorId", "1004", "themes.visitor_id", "1004"),
        ],
    },
    Record {
        title: "User: `GET /v2/users/{userId}`",
        from: From::List(Stream::Users),
        beside: r#"{"userId":"user b"}"#,
        fields: &[
            field("user.id", r#""id a""#, "users.user_id", "id a"),
            field("user.externalUserId", r#""user b""#, "users.external_user_id", "user b"),
            field("user.createdAt", "1767323045678", "users.created_at", SHOWN_TIME),
            field("user.attributes", r#"{"plan":"c"}"#, "users.attributes", r#"{"plan":"c"}"#),
            field("user.attributes.plan", r#""c""#, "user_attributes.value_text", "c"),
            field("user.events[].event", r#""event d""#, "user_events.event", "event d"),
            field("user.events[].count", "1001", "user_events.count", "1001"),
            field("user.events[].createdAt", "1767323046000", "user_events.created_at", "2026-01-02T03:04:06"),
            field("user.events[].updatedAt", "1767323047000", "user_events.updated_at", "2026-01-02T03:04:07"),
        ],
    },
    Record {
        title: "Webhook: answer submitted",
        from: From::Webhook,
        beside: "{}",
        fields: &[
            field("id", "1001", "webhook_events.webhook_id", "1001"),
            field("environmentId", r#""environment a""#, "webhook_events.environment_id", "environment a"),
            field("createdAt", r#""2026-01-02T03:04:06Z""#, "webhook_events.created_at", "2026-01-02T03:04:06"),
            field("responseGroupUid", r#""session b""#, "webhook_events.response_group_uid", "session b"),
            field("response", r#""[\"c\"]""#, "webhook_events.response_json", r#""[\"c\"]""#),
            field("surveyId", "1002", "webhook_events.survey_id", "1002"),
            field("surveyName", r#""name d""#, "webhook_events.survey_name", "name d"),
            field("question", r#""Why e?""#, "webhook_events.question_text", "Why e?"),
            field("questionType", r#""multipleselect""#, "webhook_events.question_type", "multipleselect"),
            field("visitorId", r#""visitor f""#, "webhook_events.visitor_id", "visitor f"),
            field("oldVisitorId", "1003", "webhook_events.old_visitor_id", "1003"),
            field("userId", r#""user g""#, "webhook_events.user_id", "user g"),
            field("anonymousId", r#""anonymous h""#, "webhook_events.anonymous_id", "anonymous h"),
            field("triggeringEvent", r#""event i""#, "webhook_events.triggering_event", "event i"),
            field("timestamp", "1767323045678", "webhook_events.occurred_at", SHOWN_TIME),
            field("email", r#""j@example.com""#, "webhook_events.email", "j@example.com"),
            field("attributes", r#"{"plan":"k"}"#, "webhook_events.attributes", r#"{"plan":"k"}"#),
            field("href", r#""https://a.example/l""#, "webhook_events.href", "https://a.example/l"),
            field("os", r#""os m""#, "webhook_events.os", "os m"),
            field("browser", r#""browser n""#, "webhook_events.browser", "browser n"),
            field("userAgent", r#""agent o""#, "webhook_events.user_agent", "agent o"),
            field("customMetadata", r#""{\"p\":1}""#, "webhook_events.custom_metadata", r#"{"p":1}"#),
            field("selectedIndexes", r#""[2, 4]""#, "webhook_events.selected_indexes", "[2, 4]"),
            field("eventType", r#""survey_response""#, "webhook_events.event_type", "survey_response"),
            field("eventName", r#""surveyResponse""#, "webhook_events.event_name", "surveyResponse"),
            field("eventProperties", r#"{"q":2}"#, "webhook_events.event_properties", r#"{"q":2}"#),
        ],
    },
    Record {
        title: "Webhook: theme identified",
        from: From::Webhook,
        beside: "{}",
        fields: &[
            field("themename", r#""theme a""#, "webhook_events.theme_name", "theme a"),
            field("updatedAt", TIME, "webhook_events.updated_at", SHOWN_TIME),
            field("productId", r#""17""#, "webhook_events.product_id", "17"),
            field("productName", r#""product b""#, "webhook_events.product_name", "product b"),
            field("environmentId", r#""environment c""#, "webhook_events.environment_id", "environment c"),
            field("questionText", r#""Why d?""#, "webhook_events.question_text", "Why d?"),
            field("questionType", r#""OPEN""#, "webhook_events.export_question_type", "OPEN"),
        ],
    },
    Record {
        title: "Webhook: study submitted",
        from: From::Webhook,
        beside: "{}",
        fields: &[
            field("visitorId", r#""visitor a""#, "webhook_events.visitor_id", "visitor a"),
            field("platform", r#""web""#, "webhook_events.platform", "web"),
            field("surveyId", "1001", "webhook_events.survey_id", "1001"),
            field("timestamp", "1767323045678", "webhook_events.occurred_at", SHOWN_TIME),
            field("environmentId", r#""environment b""#, "webhook_events.environment_id", "environment b"),
            field("eventDate", r#""2026-01-02T03:04:06Z""#, "webhook_events.event_date", "2026-01-02T03:04:06"),
            field("recordType", r#""survey""#, "webhook_events.record_type", "survey"),
            field("action", r#""completed""#, "webhook_events.action", "completed"),
            field("responseGroupUid", r#""session c""#, "webhook_events.response_group_uid", "session c"),
            field("productName", r#""product d""#, "webhook_events.product_name", "product d"),
            field("productId", "17", "webhook_events.product_id", "17"),
            field("eventName", r#""surveySubmitted""#, "webhook_events.event_name", "surveySubmitted"),
            field("questions[].question", r#""Why e?""#, "webhook_questions.question_text", "Why e?"),
            field("questions[].response", r#""answer f""#, "webhook_questions.response_text", "answer f"),
            field("questions[].order", "3", "webhook_questions.question_order", "3"),
            field("eventType", r#""product_message""#, "webhook_events.event_type", "product_message"),
        ],
    },
    Record {
        title: "Webhook: study status changed",
        from: From::Webhook,
        beside: "{}",
        fields: &[
            field("surveyId", "1001", "webhook_events.survey_id", "1001"),
            field("surveyName", r#""name a""#, "webhook_events.survey_name", "name a"),
            field("oldStatus", r#""NEW""#, "webhook_events.old_status", "NEW"),
            field("status", r#""PAUSED""#, "webhook_events.status", "PAUSED"),
            field("environmentId", r#""environment b""#, "webhook_events.environment_id", "environment b"),
            field("productName", r#""product c""#, "webhook_events.product_name", "product c"),
            field("productId", "17", "webhook_events.product_id", "17"),
            field("eventName", r#""surveyStatusChange""#, "webhook_events.event_name", "surveyStatusChange"),
            field("questions[].question", r#""Why d?""#, "webhook_questions.question_text", "Why d?"),
            field("questions[].questionTypeId", r#""nps""#, "webhook_questions.question_type", "nps"),
            field("eventType", r#""product_message""#, "webhook_events.event_type", "product_message"),
        ],
    },
    Record {
        title: "Webhook: study sent, study seen",
        from: From::Webhook,
        beside: "{}",
        fields: &[
            field("isUserInterviews", "true", "webhook_events.is_user_interviews", "true"),
            field("platform", r#""link""#, "webhook_events.platform", "link"),
            field("timestamp", "1767323045678", "webhook_events.occurred_at", SHOWN_TIME),
            field("recordType", r#""survey""#, "webhook_events.record_type", "survey"),
            field("eventDate", r#""2026-01-02T03:04:06Z""#, "webhook_events.event_date", "2026-01-02T03:04:06"),
            field("visitorId", r#""visitor a""#, "webhook_events.visitor_id", "visitor a"),
            field("environmentId", r#""environment b""#, "webhook_events.environment_id", "environment b"),
            field("surveyId", "1001", "webhook_events.survey_id", "1001"),
            field("action", r#""sent""#, "webhook_events.action", "sent"),
            field("responseGroupUid", r#""session c""#, "webhook_events.response_group_uid", "session c"),
            field("productName", r#""product d""#, "webhook_events.product_name", "product d"),
            field("productId", "17", "webhook_events.product_id", "17"),
            field("teamId", "1002", "webhook_events.team_id", "1002"),
            field("eventName", r#""studySent""#, "webhook_events.event_name", "studySent"),
            field("triggeringEvent", r#""event e""#, "webhook_events.triggering_event", "event e"),
            field("surveyName", r#""name f""#, "webhook_events.survey_name", "name f"),
            field("attributes", r#"{"plan":"g"}"#, "webhook_events.attributes", r#"{"plan":"g"}"#),
            field("email", r#""h@example.com""#, "webhook_events.email", "h@example.com"),
            field("oldVisitorId", "1003", "webhook_events.old_visitor_id", "1003"),
            field("userId", r#""user i""#, "webhook_events.user_id", "user i"),
            field("anonymousId", r#""anonymous j""#, "webhook_events.anonymous_id", "anonymous j"),
            field("customMetadata", r#"{"k":1}"#, "webhook_events.custom_metadata", r#"{"k":1}"#),
            field("eventType", r#""product_message""#, "webhook_events.event_type", "product_message"),
        ],
    },
    Record {
        title: "Webhook: test",
        from: From::Webhook,
        beside: "{}",
        fields: &[
            field("id", "1001", "webhook_events.webhook_id", "1001"),
            field("environmentId", r#""environment a""#, "webhook_events.environment_id", "environment a"),
            field("surveyId", "1002", "webhook_events.survey_id", "1002"),
            field("surveyName", r#""name b""#, "webhook_events.survey_name", "name b"),
            field("eventType", r#""TEST""#, "webhook_events.event_type", "TEST"),
        ],
    },
];

/// Puts a value at a path: names between dots, and `[]` after a name whose value is a list of one item. An existing
/// value stays.
fn put(into: &mut Value, path: &str, value: &Value) {
    let Some(name) = path.split(['.', '[']).next().filter(|name| !name.is_empty()) else {
        return put_inside(into, path, value);
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let member = into.as_object_mut().unwrap().entry(name).or_insert(Value::Null);
    put_inside(member, &path[name.len()..], value);
}

fn put_inside(into: &mut Value, rest: &str, value: &Value) {
    if let Some(rest) = rest.strip_prefix("[]") {
        if !into.is_array() {
            *into = json!([null]);
        }
        put_inside(&mut into[0], rest, value);
    } else if let Some(rest) = rest.strip_prefix('.') {
        put(into, rest, value);
    } else {
        *into = value.clone();
    }
}

/// Returns the tables that a record fills.
fn flattened(record: &Record) -> Vec<(&'static str, RecordBatch)> {
    let mut json: Value = serde_json::from_str(record.beside).unwrap();
    for field in record.fields {
        put(&mut json, field.path, &serde_json::from_str(field.sample).unwrap());
    }
    match record.from {
        From::List(stream) => {
            let page = json!({"cursor": null, "data": [json]}).to_string();
            let flat = flatten_page(stream, page.as_bytes(), DriftRules::default()).unwrap();
            assert!(flat.rejects.is_empty() && flat.drift.is_empty(), "{}: {:?}", record.title, flat.drift);
            flat.batches.into_iter().map(|batch| (batch.table, batch.rows)).collect()
        }
        From::Webhook => {
            let delivery = Delivery { id: 1, received_ms: 1, body: json.to_string().into_bytes() };
            let flat = flatten_deliveries(&[delivery], None).unwrap();
            assert!(flat.drift.is_empty(), "{}: {:?}", record.title, flat.drift);
            let questions = flat.flat.questions.map(|rows| ("webhook_questions", rows));
            std::iter::once(("webhook_events", flat.flat.events)).chain(questions).collect()
        }
    }
}

fn cell(tables: &[(&'static str, RecordBatch)], column: &str) -> Option<String> {
    let (table, column) = column.split_once('.').unwrap();
    let (_, rows) = tables.iter().find(|(name, _)| *name == table)?;
    let values = rows.column_by_name(column).unwrap_or_else(|| panic!("{table} has no {column}"));
    (!values.is_null(0)).then(|| array_value_to_string(values, 0).unwrap())
}

#[test]
fn p1_every_documented_field_lands_in_its_column() {
    for record in RECORDS {
        let tables = flattened(record);
        for Field { path, column, shown, .. } in record.fields {
            assert_eq!(cell(&tables, column).as_deref(), Some(*shown), "{}: {path} in {column}", record.title);
        }
        for (table, rows) in &tables {
            if rows.column_by_name("extra").is_some() {
                assert_eq!(cell(&tables, &format!("{table}.extra")), None, "{}: {table}", record.title);
            }
        }
    }
}

fn page() -> String {
    let mut text = String::from(
        "# Every field of the service, and the column that holds it\n\n\
         `tests/contract.rs` generates this page. The column `extra` of a table contains the fields that no document names.\n\
         `responses.answer_json` contains an answer exactly as it was sent, `webhook_events.raw` a webhook. `[]` stands for the items of a list.\n",
    );
    for record in RECORDS {
        text.push_str(&format!("\n## {}\n\n| field | column |\n|---|---|\n", record.title));
        for Field { path, column, .. } in record.fields {
            text.push_str(&format!("| `{path}` | `{column}` |\n"));
        }
    }
    text
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the rule is for the program")]
fn docs_fields_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/fields.md");
    if std::env::var_os("STUDYSYNC_WRITE").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let shipped = std::fs::read_to_string(path).unwrap_or_default();
    assert!(shipped == page(), "write it anew: STUDYSYNC_WRITE=1 cargo test --test tests contract");
}
