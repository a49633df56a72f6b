//! Sends pending messages to every channel, with retries, in a limited time.

use std::time::{Duration, Instant};

use crate::config::Settings;

use super::{
    command::{self, KillOnDrop},
    message::Message,
    outbox::{Channel, Outbox},
    webhook::{self, FailureKind, SendError},
};

/// Delay before the first retry; each further delay is twice as long.
const RETRY: Duration = Duration::from_millis(500);
/// Time after which no further message is sent; the next run sends the rest.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The result of a test message.
#[derive(Debug)]
pub struct TestResult {
    pub channel: Channel,
    /// `Err` is the error text if the message did not arrive.
    pub result: Result<(), String>,
}

/// Sends the pending messages and removes them from the outbox. A message stays for the next run if its delivery may
/// succeed later. After a transient failure, the channel gets no further message in this call.
pub(super) async fn deliver(settings: &Settings, outbox: &mut Outbox) {
    let configured = Channel::configured(settings);
    let started = Instant::now();
    let mut unreachable = Vec::new();
    for pending in outbox.pending() {
        for channel in pending.channels {
            if unreachable.contains(&channel) || started.elapsed() > TIME_MAX {
                continue;
            }
            if !configured.contains(&channel) {
                outbox.remove(pending.id, channel);
                continue;
            }
            let event = pending.message.event.name();
            match send(settings, channel, &pending.message, started).await {
                Ok(()) => {
                    tracing::info!(event, channel = channel.name(), "notified");
                    outbox.remove(pending.id, channel);
                }
                Err(SendError { why, kind: FailureKind::MessageRejected }) => {
                    tracing::warn!(event, channel = channel.name(), why, "cannot notify: this message is given up");
                    outbox.remove(pending.id, channel);
                }
                Err(SendError { why, kind }) => {
                    tracing::warn!(event, channel = channel.name(), why, "cannot notify: the next run tries again");
                    if kind == FailureKind::Transient {
                        unreachable.push(channel);
                    }
                }
            }
        }
    }
}

/// Sends a test message to every configured channel, without retries.
pub async fn send_test(settings: &Settings, now_ms: i64) -> Vec<TestResult> {
    let message = Message::test(settings, now_ms);
    let mut results = Vec::new();
    for channel in Channel::configured(settings) {
        let result = send_once(settings, channel, &message).await.map_err(|error| error.why);
        results.push(TestResult { channel, result });
    }
    results
}

/// Sends a message by one channel. Retries transient failures, until the attempts are used up or [`TIME_MAX`] after
/// `started` would pass.
async fn send(settings: &Settings, channel: Channel, message: &Message, started: Instant) -> Result<(), SendError> {
    let (mut delay, mut attempt) = (RETRY, 1);
    loop {
        let Err(error) = send_once(settings, channel, message).await else { return Ok(()) };
        let is_last = attempt >= settings.notify.attempts || started.elapsed() + delay > TIME_MAX;
        if error.kind != FailureKind::Transient || is_last {
            return Err(error);
        }
        tracing::debug!(channel = channel.name(), why = error.why, "cannot notify yet");
        tokio::time::sleep(delay).await;
        (delay, attempt) = (delay * 2, attempt + 1);
    }
}

/// Sends a message by one channel, without retries. Every failure of a command counts as transient.
async fn send_once(settings: &Settings, channel: Channel, message: &Message) -> Result<(), SendError> {
    match channel {
        Channel::Webhook => webhook::post(settings, message).await,
        Channel::Command => {
            let (settings, message) = (settings.clone(), message.clone());
            // A signal drops this future, which kills the command.
            let kill_on_drop = KillOnDrop::default();
            let guard = kill_on_drop.guard();
            let result = tokio::task::spawn_blocking(move || command::run(&settings, &message, &guard)).await;
            result
                .unwrap_or_else(|error| Err(error.to_string()))
                .map_err(|why| SendError { why, kind: FailureKind::Transient })
        }
    }
}
