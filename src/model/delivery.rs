//! Webhook deliveries: received bodies, their rows, and the kinds of events.

use arrow::record_batch::RecordBatch;

use super::{Stream, named::named};

/// A webhook delivery in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The sequence number in the inbox, which increases with every delivery.
    pub id: i64,
    /// When this machine received the delivery, in epoch milliseconds.
    pub received_ms: i64,
    /// The exact bytes of the request body.
    pub body: Vec<u8>,
}

/// The table rows of a list of deliveries.
#[derive(Clone, Debug)]
pub struct FlatEvents {
    /// Rows of `webhook_events`: one per delivery, in order.
    pub events: RecordBatch,
    /// Rows of `webhook_questions`; `None` if there are none.
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
    /// A test delivery: somebody pressed 'Test Webhook' at the service.
    Test,
    /// The event belongs to another environment of the service than the warehouse.
    OtherEnvironment,
    /// Any other JSON.
    Unknown,
    /// The body is not JSON.
    NotJson,
}

named! {
    /// Returns the name in the column `webhook_events.kind`.
    EventKind {
        AnswerSubmitted => "answer_submitted",
        StudySubmitted => "study_submitted",
        StudySent => "study_sent",
        StudySeen => "study_seen",
        ThemeIdentified => "theme_identified",
        StudyStatusChanged => "study_status_changed",
        Test => "test",
        OtherEnvironment => "other_environment",
        Unknown => "unknown",
        NotJson => "not_json",
    }
}

impl EventKind {
    /// Returns true if a delivery of this kind proves from which environment the webhooks come. Returns false for test
    /// deliveries, for bodies that are unknown or not JSON, and for events of another environment.
    pub fn identifies_environment(self) -> bool {
        !matches!(self, EventKind::Test | EventKind::OtherEnvironment | EventKind::Unknown | EventKind::NotJson)
    }

    /// Returns the stream that has new or changed records after an event of this kind; `None` if no stream has.
    pub fn changed_stream(self) -> Option<Stream> {
        match self {
            EventKind::AnswerSubmitted | EventKind::StudySubmitted => Some(Stream::Responses),
            EventKind::StudyStatusChanged => Some(Stream::Surveys),
            EventKind::ThemeIdentified => Some(Stream::Themes),
            _ => None,
        }
    }
}
