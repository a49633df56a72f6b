//! A webhook that is told: one POST of JSON.

use reqwest::{Client, StatusCode, header::CONTENT_TYPE, redirect::Policy};

use crate::{config::Settings, source::install_crypto};

use super::message::Message;

/// Why a channel does not have a message.
#[derive(Debug)]
pub(super) struct NotPosted {
    pub why: String,
    pub trouble: Trouble,
}

/// What helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It may help to try again in a moment; until then no message arrives.
    Passing,
    /// Somebody has to change something, and the message can arrive then.
    Lasting,
    /// Nothing: this message is never taken.
    Message,
}

impl Trouble {
    fn of(status: StatusCode) -> Trouble {
        match status {
            _ if status.is_server_error() => Trouble::Passing,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Trouble::Passing,
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Trouble::Message,
            _ => Trouble::Lasting,
        }
    }
}

/// Posts the message. The address is in no error: whoever knows it can post.
pub(super) async fn post(settings: &Settings, message: &Message) -> Result<(), NotPosted> {
    let lasting = |why: String| NotPosted { why, trouble: Trouble::Lasting };
    let url = settings.notify.url().map_err(|error| lasting(error.to_string()))?;
    let Some(url) = url else { return Ok(()) };
    install_crypto();
    let client = Client::builder()
        .user_agent(concat!("studysync/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .timeout(settings.notify.timeout)
        .build()
        .map_err(|error| lasting(format!("the webhook cannot be posted to: {}", error.without_url())))?;
    let request = client.post(url.expose()).header(CONTENT_TYPE, "application/json").body(message.body().to_string());
    match request.send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => {
            let status = answer.status();
            Err(NotPosted { why: format!("the webhook answered with {status}"), trouble: Trouble::of(status) })
        }
        Err(error) if error.is_timeout() => {
            let why = format!("the webhook did not answer within {} s", settings.notify.timeout.as_secs());
            Err(NotPosted { why, trouble: Trouble::Passing })
        }
        Err(error) => {
            let trouble = if error.is_builder() { Trouble::Lasting } else { Trouble::Passing };
            let why = format!("the webhook cannot be reached: {}", crate::pipeline::chain(&error.without_url()));
            Err(NotPosted { why, trouble })
        }
    }
}
