//! How messages go out: each to every channel, with some attempts, in a bounded time.

use std::time::{Duration, Instant};

use crate::config::Settings;

use super::{
    channel::Channel,
    command::{self, Leash},
    ledger::Ledger,
    message::Message,
    webhook::{self, NotPosted, Trouble},
};

/// After a failed attempt the next one waits so long, then twice as long.
const RETRY: Duration = Duration::from_millis(500);
/// Nothing new is begun after this time: what waits then is for the next run.
const TIME_MAX: Duration = Duration::from_secs(60);

/// What became of a test message.
#[derive(Debug)]
pub struct TestSent {
    pub channel: Channel,
    /// Why it did not arrive.
    pub sent: Result<(), String>,
}

/// Delivers what waits. A channel that takes nothing now is not asked for the others; one that refuses a message is.
pub(super) async fn deliver(settings: &Settings, ledger: &mut Ledger) {
    let named = Channel::all(settings);
    let begun = Instant::now();
    let mut broken = Vec::new();
    for one in ledger.waiting() {
        for channel in one.channels {
            // One that is no longer named takes nothing any more.
            let sent = match named.contains(&channel) {
                _ if broken.contains(&channel) || begun.elapsed() > TIME_MAX => continue,
                true => send(settings, channel, &one.message, begun).await,
                false => {
                    ledger.settle(one.id, channel);
                    continue;
                }
            };
            let event = one.message.event.name();
            match sent {
                Ok(()) => {
                    tracing::info!(event, channel = channel.name(), "notified");
                    ledger.settle(one.id, channel);
                }
                Err(NotPosted { why, trouble: Trouble::Message }) => {
                    tracing::warn!(event, channel = channel.name(), why, "cannot notify: this message is given up");
                    ledger.settle(one.id, channel);
                }
                Err(NotPosted { why, trouble }) => {
                    tracing::warn!(event, channel = channel.name(), why, "cannot notify: the next run tries again");
                    if trouble == Trouble::Passing {
                        broken.push(channel);
                    }
                }
            }
        }
    }
}

/// Sends a test message to every channel, once. Returns what became of it.
pub async fn send_test(settings: &Settings, now_ms: i64) -> Vec<TestSent> {
    let message = Message::test(settings, now_ms);
    let mut sent = Vec::new();
    for channel in Channel::all(settings) {
        let tried = send_once(settings, channel, &message).await.map_err(|failed| failed.why);
        sent.push(TestSent { channel, sent: tried });
    }
    sent
}

/// Some attempts, within the time.
async fn send(settings: &Settings, channel: Channel, message: &Message, begun: Instant) -> Result<(), NotPosted> {
    let mut wait = RETRY;
    let mut attempt = 1;
    loop {
        let failed = match send_once(settings, channel, message).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if failed.trouble != Trouble::Passing
            || attempt >= settings.notify.attempts
            || begun.elapsed() + wait > TIME_MAX
        {
            return Err(failed);
        }
        tracing::debug!(channel = channel.name(), why = failed.why, "cannot notify yet");
        tokio::time::sleep(wait).await;
        (wait, attempt) = (wait * 2, attempt + 1);
    }
}

async fn send_once(settings: &Settings, channel: Channel, message: &Message) -> Result<(), NotPosted> {
    match channel {
        Channel::Webhook => webhook::post(settings, message).await,
        Channel::Command => {
            let (settings, message) = (settings.clone(), message.clone());
            // Dropped with this future, when a signal ends the wait.
            let leash = Leash::default();
            let end = leash.end();
            let ran = tokio::task::spawn_blocking(move || command::run(&settings, &message, &end)).await;
            ran.unwrap_or_else(|error| Err(error.to_string()))
                .map_err(|why| NotPosted { why, trouble: Trouble::Passing })
        }
    }
}
