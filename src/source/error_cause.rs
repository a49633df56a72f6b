//! The cause of an HTTP client error, without the address.

/// Joins the texts of all causes of an HTTP client error. Uses the text of the error itself only if it has no cause.
/// Removes the address, because it contains the page token.
pub(super) fn cause_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut texts = Vec::new();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        texts.push(inner.to_string());
        source = inner.source();
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}
