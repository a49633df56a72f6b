//! Requests for people by the caller's own ids.

/// The longest id of a person that is asked for, in bytes. It is the key of their rows, and has to fit into an address
/// with every byte escaped.
pub const USER_ID_BYTES_MAX: usize = 256;

/// The result of a request for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonLookup {
    /// By which the service was asked.
    pub user_id: String,
    /// By the service's clock, epoch milliseconds.
    pub asked_ms: i64,
    /// Status of the answer: 200, 404 for a person whom the service does not know, or another refusal.
    pub status: u16,
}

/// Whether the service can be asked for a person of this id. `.` and `..` cannot stand in an address, however they are
/// escaped: every client and server takes them for steps between folders.
pub fn can_request_user(user_id: &str) -> bool {
    !matches!(user_id, "" | "." | "..") && user_id.len() <= USER_ID_BYTES_MAX
}
