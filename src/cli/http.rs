//! A minimal HTTP client for servers on this machine: one request without TLS, and no runtime.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const RESPONSE_BYTES_MAX: u64 = 16 << 20;

/// The response to a request.
pub(super) struct Response {
    /// `None` if the server does not speak HTTP.
    pub status: Option<u16>,
    pub body: String,
}

/// Sends one request and reads the complete response. `method_and_path` is such as `GET /healthz`. `timeout` limits
/// connecting, and each read and each write.
pub(super) fn request(
    address: SocketAddr,
    method_and_path: &str,
    body: &str,
    timeout: Duration,
) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let length = body.len();
    let request = format!(
        "{method_and_path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    Ok(Response { status, body: body.trim().to_owned() })
}
