//! Notifies by a webhook: one POST of JSON.

use reqwest::{Client, StatusCode, header::CONTENT_TYPE, redirect::Policy};

use crate::{config::Settings, source::install_crypto};

use super::message::Message;

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
    /// Classifies a refusal by its status.
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

/// Posts the message. No error contains the URL, because everybody who knows the URL can post. Does nothing if no
/// webhook is configured.
pub(super) async fn post(settings: &Settings, message: &Message) -> Result<(), SendError> {
    let misconfigured = |why: String| SendError { why, kind: FailureKind::Configuration };
    let url = settings.notify.url().map_err(|error| misconfigured(error.to_string()))?;
    let Some(url) = url else { return Ok(()) };
    install_crypto();
    let client = Client::builder()
        .user_agent(concat!("studysync/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .timeout(settings.notify.timeout)
        .build()
        .map_err(|error| misconfigured(format!("cannot post to the webhook: {}", error.without_url())))?;
    let request = client.post(url.expose()).header(CONTENT_TYPE, "application/json").body(message.body().to_string());
    match request.send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => {
            let status = answer.status();
            Err(SendError { why: format!("the webhook answered with {status}"), kind: FailureKind::of(status) })
        }
        Err(error) if error.is_timeout() => {
            let why = format!("the webhook did not answer within {} s", settings.notify.timeout.as_secs());
            Err(SendError { why, kind: FailureKind::Transient })
        }
        Err(error) => {
            let kind = if error.is_builder() { FailureKind::Configuration } else { FailureKind::Transient };
            let why = format!("cannot reach the webhook: {}", crate::pipeline::chain(&error.without_url()));
            Err(SendError { why, kind })
        }
    }
}
