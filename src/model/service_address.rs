//! Compares base URLs of services, and finds the host in a URL. One service can have several URLs.

use std::borrow::Cow;

/// Returns true if two base URLs name the same service. Ignores the case of the host, a final dot, the default port,
/// and slashes at the end. `localhost`, `127.0.0.1` and `[::1]` are the same host.
pub fn is_same_service(left: &str, right: &str) -> bool {
    left == right || canonical(left) == canonical(right)
}

/// Returns the form in which a base URL is compared. A text that is not a URL is returned unchanged.
fn canonical(address: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = address.split_once("://") else { return Cow::Borrowed(address) };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host_end = match authority.rfind(']') {
        Some(at) => at + 1,
        None => authority.rfind(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    let scheme = scheme.to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let host = if matches!(host.as_str(), "127.0.0.1" | "[::1]") { "localhost" } else { &host };
    let port = match (scheme.as_str(), port) {
        ("http", ":80") | ("https", ":443") | (_, ":") => "",
        (_, port) => port,
    };
    Cow::Owned(format!("{scheme}://{host}{port}{}", path.trim_end_matches('/')))
}

/// Returns the host and port in a URL, without a user and a password.
pub fn host_and_port(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_one_service_are_recognized() {
        for (left, right) in [
            ("http://localhost:8787", "http://127.0.0.1:8787"),
            ("http://localhost:8787/a", "http://[::1]:8787/a"),
            ("https://API.example.com", "https://api.example.com.:443/"),
            ("http://localhost", "HTTP://127.0.0.1:80"),
        ] {
            assert!(is_same_service(left, right), "{left} {right}");
        }
        for (left, right) in [
            ("http://localhost:8787", "http://localhost:8788"),
            ("http://127.0.0.1:1", "http://127.0.0.2:1"),
            ("https://a.example", "http://a.example"),
            ("https://a.example/x", "https://a.example/X"),
            ("https://a.example", "https://b.example"),
            ("", "https://b.example"),
        ] {
            assert!(!is_same_service(left, right), "{left} {right}");
        }
    }
}
