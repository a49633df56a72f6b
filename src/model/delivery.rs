//! Webhook deliveries: received bodies, and their rows.

use arrow::record_batch::RecordBatch;

/// A delivery that waits in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The sequence number in the inbox, which grows with every delivery.
    pub id: i64,
    /// When it was received by this machine, epoch milliseconds.
    pub received_ms: i64,
    /// The exact bytes.
    pub body: Vec<u8>,
}

/// Deliveries as rows.
#[derive(Clone, Debug)]
pub struct FlatEvents {
    /// Rows of `webhook_events`, one for each delivery, in order.
    pub events: RecordBatch,
    /// Their rows of `webhook_questions`, if there are any.
    pub questions: Option<RecordBatch>,
}

/// The kind of event that a delivery reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// One question was answered.
    AnswerSubmitted,
    /// A study was completed.
    StudySubmitted,
    /// A study was delivered.
    StudySent,
    /// A study was seen.
    StudySeen,
    /// A theme was found.
    ThemeIdentified,
    /// A study's status changed.
    StudyStatusChanged,
    /// Somebody pressed 'Test Webhook'.
    Test,
    /// The event is of another environment of the service than the warehouse.
    OtherEnvironment,
    /// JSON that is none of these, be it an object, a list, a text or a number.
    Unknown,
    /// No JSON.
    NotJson,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 10] = [
        EventKind::AnswerSubmitted,
        EventKind::StudySubmitted,
        EventKind::StudySent,
        EventKind::StudySeen,
        EventKind::ThemeIdentified,
        EventKind::StudyStatusChanged,
        EventKind::Test,
        EventKind::OtherEnvironment,
        EventKind::Unknown,
        EventKind::NotJson,
    ];

    /// The name in `webhook_events.kind`.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::AnswerSubmitted => "answer_submitted",
            EventKind::StudySubmitted => "study_submitted",
            EventKind::StudySent => "study_sent",
            EventKind::StudySeen => "study_seen",
            EventKind::ThemeIdentified => "theme_identified",
            EventKind::StudyStatusChanged => "study_status_changed",
            EventKind::Test => "test",
            EventKind::OtherEnvironment => "other_environment",
            EventKind::Unknown => "unknown",
            EventKind::NotJson => "not_json",
        }
    }

    /// Whether such a delivery tells which environment's webhooks come here. Anybody may try a webhook.
    pub fn identifies_environment(self) -> bool {
        !matches!(self, EventKind::Test | EventKind::OtherEnvironment | EventKind::Unknown | EventKind::NotJson)
    }

    /// The stream in which there is something new; `None` where nothing is to be read.
    pub fn changed_stream(self) -> Option<super::Stream> {
        match self {
            EventKind::AnswerSubmitted | EventKind::StudySubmitted => Some(super::Stream::Responses),
            EventKind::StudyStatusChanged => Some(super::Stream::Surveys),
            EventKind::ThemeIdentified => Some(super::Stream::Themes),
            _ => None,
        }
    }
}
