//! Reads a body piece by piece, up to a limit on what comes out of decompression: a small answer can unpack to any size.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use tokio::time::timeout;

use super::{error::Failure, wire::cause};

/// Bounds of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// The most decompressed bytes.
    pub bytes_max: usize,
    /// The longest silence.
    pub idle: Duration,
}

/// The whole body. `read_bytes` is kept up to date so that a caller that gives up knows how far it came.
pub(super) async fn read(
    response: &mut Response,
    limits: BodyLimits,
    read_bytes: &mut usize,
) -> Result<Bytes, Failure> {
    let too_large = Failure::BodyTooLarge { limit_bytes: limits.bytes_max };
    let announced = response.content_length().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if announced.is_some_and(|bytes| bytes > limits.bytes_max) {
        return Err(too_large);
    }
    let mut body = BytesMut::with_capacity(announced.unwrap_or(0));
    loop {
        let piece = match timeout(limits.idle, response.chunk()).await {
            Err(_) => {
                let idle_ms = u64::try_from(limits.idle.as_millis()).unwrap_or(u64::MAX);
                return Err(Failure::Hung { idle_ms, bytes: body.len() });
            }
            Ok(Err(error)) => return Err(Failure::Cut { bytes: body.len(), detail: cause(error) }),
            Ok(Ok(None)) => return Ok(body.freeze()),
            Ok(Ok(Some(piece))) => piece,
        };
        *read_bytes += piece.len();
        if piece.len() > limits.bytes_max.saturating_sub(body.len()) {
            return Err(too_large);
        }
        body.extend_from_slice(&piece);
    }
}
