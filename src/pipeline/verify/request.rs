//! What a verify is asked to do.

/// The range of a verify, and how much of each difference it lists.
#[derive(Clone, Copy, Debug)]
pub struct VerifyRequest {
    pub from_ms: i64,
    /// The end of the range; `None`: where the coverage ends.
    pub to_ms: Option<i64>,
    /// The most rows that are listed of each kind of difference in a window.
    pub keys_max: usize,
}
