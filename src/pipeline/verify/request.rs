//! The request for a verify.

/// The range of a verify, and how much of each difference it lists.
#[derive(Clone, Copy, Debug)]
pub struct VerifyRequest {
    pub from_ms: i64,
    /// The end of the range, in epoch milliseconds. `None` for the end of the coverage.
    pub to_ms: Option<i64>,
    /// The maximum number of rows that the report lists for each kind of difference in a window.
    pub keys_max: usize,
}
