//! The channels that carry notifications.

use serde::{Deserialize, Serialize};

use crate::config::Settings;

/// A channel that carries notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Command,
    Webhook,
}

impl Channel {
    /// Returns the configured channels.
    pub(super) fn configured(settings: &Settings) -> Vec<Channel> {
        let command = (!settings.notify.command.is_empty()).then_some(Channel::Command);
        let webhook = settings.notify.has_webhook().then_some(Channel::Webhook);
        command.into_iter().chain(webhook).collect()
    }

    /// Returns the name in logs and outputs.
    pub fn name(self) -> &'static str {
        match self {
            Channel::Command => "command",
            Channel::Webhook => "webhook",
        }
    }
}
