//! One notification, as text for people and as JSON for programs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    config::{NotifyEvent, Settings},
    model::{Outcome, format_ms, is_display_control},
    sync_status::{Health, RunSummary},
};

/// One notification. A notification names no person, because a run's JSON names none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Message {
    pub event: NotifyEvent,
    pub outcome: String,
    pub exit_code: Option<i64>,
    /// One line on how the run ended.
    pub summary: String,
    /// The text for a chat: what happened and what to do.
    pub text: String,
    pub health: Value,
    /// The run's JSON.
    pub run: Value,
}

impl Message {
    /// Builds the message about an event of a run. `run` is the run's JSON.
    pub fn new(event: NotifyEvent, summary: &RunSummary, health: &Health, run: Value, settings: &Settings) -> Message {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let command = &summary.command;
        let sentence = on_one_line(&summary.sentence());
        let headline = match event {
            NotifyEvent::Failed => format!("studysync {command} failed on {host}: {sentence}"),
            NotifyEvent::NeedsALook => format!("studysync {command} on {host} needs a look: {sentence}"),
            NotifyEvent::Recovered => format!("studysync {command} on {host} works again"),
            NotifyEvent::Report => format!("studysync on {host} wrote the report {sentence}"),
            NotifyEvent::Test => format!("studysync on {host} can notify you: this is a test"),
        };
        let mut text = headline;
        if let Some(hint) = summary.hint.as_ref().filter(|_| event == NotifyEvent::Failed) {
            text.push_str(&format!("\nWhat to do: {}", on_one_line(hint)));
        }
        let (environment, ended) = (&settings.service.environment, format_ms(summary.ended_ms()));
        if !summary.run_id.is_empty() {
            text.push_str(&format!("\nEnvironment {environment}, run {} ended {ended}", summary.run_id));
        }
        Message {
            event,
            outcome: summary.outcome.clone(),
            exit_code: summary.exit_code,
            summary: sentence,
            text,
            health: json!(health),
            run,
        }
    }

    /// Builds the message that tests the configured channels.
    pub fn test(settings: &Settings, now_ms: i64) -> Message {
        let summary = without_run("check", Ok("this is a test".to_owned()), now_ms);
        Message::new(NotifyEvent::Test, &summary, &Health::default(), json!({}), settings)
    }

    /// Builds the message about an event of a report that was written to this path, or could not be written.
    pub fn report(event: NotifyEvent, settings: &Settings, written: &Result<PathBuf, String>, now_ms: i64) -> Message {
        let mut health = Health::default();
        if let Err(why) = written {
            health.add_report_failed(why);
        }
        let written = written.as_ref().map_err(String::clone).map(|path| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            path.to_string_lossy().into_owned()
        });
        let hint = health.reasons.first().and_then(|reason| reason.hint.clone());
        let summary = RunSummary { hint, ..without_run("report", written, now_ms) };
        Message::new(event, &summary, &health, json!({}), settings)
    }

    /// Returns the environment variables for the notification command. `STUDYSYNC_EXIT_CODE` is empty for a run without
    /// an exit code.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("STUDYSYNC_EVENT", self.event.name().to_owned()),
            ("STUDYSYNC_OUTCOME", self.outcome.clone()),
            ("STUDYSYNC_EXIT_CODE", self.exit_code.map(|code| code.to_string()).unwrap_or_default()),
            ("STUDYSYNC_SUMMARY", self.summary.clone()),
        ]
    }
}

/// Describes something that is no run, by the sentence about how it ended.
fn without_run(command: &str, ended: Result<String, String>, now_ms: i64) -> RunSummary {
    let (outcome, exit_code) = if ended.is_ok() { (Outcome::Done, 0) } else { (Outcome::Failed, 1) };
    RunSummary {
        command: command.to_owned(),
        started_ms: now_ms,
        finished_ms: Some(now_ms),
        outcome: outcome.name().to_owned(),
        exit_code: Some(exit_code),
        why: Some(ended.unwrap_or_else(|why| why)),
        ..RunSummary::default()
    }
}

/// Replaces characters that control the display by blanks. A sentence may contain a text of the service, and becomes a
/// line of a mail, a chat or an environment variable.
fn on_one_line(text: &str) -> String {
    text.replace(is_display_control, " ")
}
