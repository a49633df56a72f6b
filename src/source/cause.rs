//! What an error of the HTTP client says without the address.

/// What lies behind an error of the HTTP client.
/// Its own text names the address with the page token in it, and little else.
pub(super) fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut texts = Vec::new();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        texts.push(inner.to_string());
        source = inner.source();
    }
    match texts.is_empty() {
        true => error.to_string(),
        false => texts.join(": "),
    }
}
