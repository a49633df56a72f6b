//! A webhook that is told: one POST of JSON.

use reqwest::{Client, StatusCode, header::CONTENT_TYPE, redirect::Policy};

use crate::{config::Settings, source::install_crypto};

use super::message::Message;

/// Why a webhook does not have a message.
#[derive(Debug)]
pub(super) struct NotPosted {
    pub why: String,
    /// Whether it may help to try again in a moment.
    pub is_passing: bool,
}

/// Posts the message. The address is in no error: whoever knows it can post.
pub(super) async fn post(settings: &Settings, message: &Message) -> Result<(), NotPosted> {
    let lasting = |why: String| NotPosted { why, is_passing: false };
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
            let is_passing = status.is_server_error()
                || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
            Err(NotPosted { why: format!("the webhook answered with {status}"), is_passing })
        }
        Err(error) if error.is_timeout() => {
            let why = format!("the webhook did not answer within {} s", settings.notify.timeout.as_secs());
            Err(NotPosted { why, is_passing: true })
        }
        Err(error) => {
            let is_passing = !error.is_builder();
            let why = format!("the webhook cannot be reached: {}", crate::pipeline::chain(&error.without_url()));
            Err(NotPosted { why, is_passing })
        }
    }
}
