//! The ways by which messages go out.

use serde::{Deserialize, Serialize};

use crate::config::Settings;

/// A way by which messages go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Command,
    Webhook,
}

impl Channel {
    /// The channels of the settings.
    pub(super) fn all(settings: &Settings) -> Vec<Channel> {
        let command = (!settings.notify.command.is_empty()).then_some(Channel::Command);
        let webhook = settings.notify.has_webhook().then_some(Channel::Webhook);
        command.into_iter().chain(webhook).collect()
    }

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Channel::Command => "command",
            Channel::Webhook => "webhook",
        }
    }
}
