//! Lookups of single users at the service, by the caller's own user id.

/// Maximum length of a user id that is requested, in bytes. The id must fit into a URL even with every byte escaped.
pub const USER_ID_BYTES_MAX: usize = 256;

/// The result of a lookup of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonLookup {
    /// The user id that was requested.
    pub user_id: String,
    /// The time of the request, in epoch milliseconds of the service's clock.
    pub asked_ms: i64,
    /// Status of the response: 200, 404 if the service does not know the user, or another refusal.
    pub status: u16,
}

/// Returns true if the service can be asked for this user id. An id that is empty or too long cannot be requested. The
/// ids `.` and `..` cannot be requested either: clients and servers treat them as folders of a URL's path, even if they
/// are escaped.
pub fn can_request_user(user_id: &str) -> bool {
    !matches!(user_id, "" | "." | "..") && user_id.len() <= USER_ID_BYTES_MAX
}
