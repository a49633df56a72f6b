//! Notifies by a webhook: one POST of JSON, in the form of the receiver.

use reqwest::{Client, Response, StatusCode, header::CONTENT_TYPE, redirect::Policy};
use serde_json::Value;

use crate::{
    config::{ReceiverKind, Settings},
    model::is_display_control,
    pipeline::proxies,
    redact::ApiKey,
    tls::install_crypto,
};

use super::{message::Message, receiver};

/// Maximum bytes that are read of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Maximum characters shown of an answer.
const ANSWER_CHARS_MAX: usize = 300;
/// Minimum length of a part of the URL that is hidden in an answer. Shorter parts are words such as `api`.
const SECRET_PART_MIN: usize = 6;

/// Why a channel could not deliver a message.
#[derive(Debug)]
pub(super) struct SendError {
    pub why: String,
    pub kind: FailureKind,
}

/// What is needed for the delivery to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// A retry may succeed. Until then other messages would fail too.
    Transient,
    /// Somebody has to change the configuration.
    Configuration,
    /// The delivery can never succeed: the receiver rejects this message.
    MessageRejected,
}

impl FailureKind {
    fn of(status: StatusCode) -> FailureKind {
        match status {
            _ if status.is_server_error() => FailureKind::Transient,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => FailureKind::Transient,
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => FailureKind::MessageRejected,
            _ => FailureKind::Configuration,
        }
    }
}

/// Posts the message. A receiver that answers with 400 gets the text alone, once: it may not know the other members. No
/// error contains the URL, because everybody who knows the URL can post. Does nothing if no webhook is configured.
pub(super) async fn post(settings: &Settings, message: &Message) -> Result<(), SendError> {
    let misconfigured = |why: String| SendError { why, kind: FailureKind::Configuration };
    let url = settings.notify.url().map_err(|error| misconfigured(error.to_string()))?;
    let Some(url) = url else { return Ok(()) };
    let proxies = proxies().map_err(|error| misconfigured(crate::pipeline::chain(&error)))?;
    install_crypto();
    let client = proxies
        .apply(Client::builder())
        .user_agent(concat!("studysync/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .timeout(settings.notify.timeout)
        .build()
        .map_err(|error| misconfigured(format!("cannot post to the webhook: {}", error.without_url())))?;
    let kind = settings.notify.kind;
    let complete = receiver::body(message, url.expose(), kind);
    let refused = match post_body(&client, settings, &url, &complete).await {
        Err((error, Some(StatusCode::BAD_REQUEST))) => error,
        outcome => return outcome.map_err(|(error, _)| error),
    };
    let kind = kind.unwrap_or_else(|| ReceiverKind::of_url(url.expose()));
    let smaller = receiver::text_alone(message, kind);
    if smaller == complete {
        return Err(refused);
    }
    tracing::warn!(why = refused.why, "the webhook refused the message: trying its text alone");
    post_body(&client, settings, &url, &smaller).await.map_err(|(error, _)| error)
}

/// Posts one body. An error has the status of the answer; `None` without an answer.
async fn post_body(
    client: &Client,
    settings: &Settings,
    url: &ApiKey,
    body: &Value,
) -> Result<(), (SendError, Option<StatusCode>)> {
    let request = client.post(url.expose()).header(CONTENT_TYPE, "application/json").body(body.to_string());
    match request.send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => {
            let status = answer.status();
            let said = sentence_of(answer, url).await;
            let why = format!("the webhook answered with {status}{said}");
            Err((SendError { why, kind: FailureKind::of(status) }, Some(status)))
        }
        Err(error) if error.is_timeout() => {
            let why = format!("the webhook did not answer within {} s", settings.notify.timeout.as_secs());
            Err((SendError { why, kind: FailureKind::Transient }, None))
        }
        Err(error) => {
            let kind = if error.is_builder() { FailureKind::Configuration } else { FailureKind::Transient };
            let why = format!("cannot reach the webhook: {}", crate::pipeline::chain(&error.without_url()));
            Err((SendError { why, kind }, None))
        }
    }
}

/// Returns `: TEXT` with the sentence in an answer, on one line and without the secrets of the URL; nothing for an
/// empty answer. Reads the beginning of the body only; the time limit is that of the request.
async fn sentence_of(mut answer: Response, url: &ApiKey) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= ANSWER_BYTES_MAX {
            bytes.truncate(ANSWER_BYTES_MAX);
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let found = serde_json::from_slice::<Value>(&bytes).ok().and_then(|value| sentence_in(&value));
    let said = without_secrets(found.as_deref().unwrap_or(&text), url.expose());
    let words: Vec<&str> = said.split(|letter: char| letter.is_whitespace() || is_display_control(letter)).collect();
    let said = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match said.char_indices().nth(ANSWER_CHARS_MAX) {
        _ if said.is_empty() => String::new(),
        Some((end, _)) => format!(": {}…", &said[..end]),
        None => format!(": {said}"),
    }
}

/// Returns the sentence in the JSON of an answer: `error.message` of Google, `message` of Discord, `error` of others.
fn sentence_in(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(members) => {
            ["error", "message", "detail", "title"].into_iter().find_map(|name| sentence_in(members.get(name)?))
        }
        _ => None,
    }
}

/// Hides the URL, and each part of its path and query that may be a secret. The longest are replaced first.
fn without_secrets(text: &str, url: &str) -> String {
    let behind_host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let behind_host = behind_host.find(['/', '?']).map_or("", |at| &behind_host[at..]);
    let parts = behind_host.split(['/', '?', '&', '=', '#']).filter(|part| part.len() >= SECRET_PART_MIN);
    let mut secrets: Vec<&str> = parts.chain([url, behind_host]).filter(|part| part.len() > 1).collect();
    secrets.sort_by_key(|part| std::cmp::Reverse(part.len()));
    secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[address]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p11_an_answer_that_echoes_the_address_hides_it() {
        let url = "https://user:passw0rd@chat.example/v1/spaces/AAAAbbbb/messages?key=k3yk3yk3y&token=t0k3n-t0k3n";
        let echo = format!("no hook at {url}: space AAAAbbbb, key k3yk3yk3y, token t0k3n-t0k3n");
        let shown = without_secrets(&echo, url);
        for secret in ["AAAAbbbb", "k3yk3yk3y", "t0k3n", "passw0rd"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.starts_with("no hook at [address]"), "{shown}");
    }

    #[test]
    fn the_sentence_of_each_receiver_is_found() {
        let google = r#"{"error": {"code": 400, "message": "Unknown name \"event\"", "status": "INVALID_ARGUMENT"}}"#;
        for (json, expected) in [
            (google, Some("Unknown name \"event\"")),
            (r#"{"message": "Cannot send an empty message", "code": 50006}"#, Some("Cannot send an empty message")),
            (r#"{"ok": false, "error": "no_text"}"#, Some("no_text")),
            (r#"{"ok": false}"#, None),
            ("[1]", None),
        ] {
            assert_eq!(sentence_in(&serde_json::from_str(json).unwrap()).as_deref(), expected, "{json}");
        }
    }
}
