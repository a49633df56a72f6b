//! Sends a request and returns the answer, by the HTTP client or by the handler of a test. The caller has passed the
//! gate.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use reqwest::{Client, Request};

use super::{
    connection::{failure_to_connect, not_http},
    error::Failure,
    error_cause::cause_of,
};

/// An answer whose body has not been read yet.
pub type Reply = reqwest::Response;

type Handler = dyn Fn(Request) -> BoxFuture<'static, Result<Reply, Failure>> + Send + Sync;

/// Sends requests; by default over the network. Cheap to clone.
#[derive(Clone, Default)]
pub struct Transport(Option<Arc<Handler>>);

impl Transport {
    /// Passes each request to `answer` instead of the network. The request has no headers, because the client adds
    /// them, and the key with them. As with the network, the body of the answer is not decompressed here.
    pub fn from_handler(
        answer: impl Fn(Request) -> BoxFuture<'static, Result<Reply, Failure>> + Send + Sync + 'static,
    ) -> Transport {
        Transport(Some(Arc::new(answer)))
    }

    /// Sends the request with this client, or passes its method, address and body to the handler.
    pub(super) async fn send(&self, client: &Client, request: Request, timeout: Duration) -> Result<Reply, Failure> {
        match &self.0 {
            None => client.execute(request).await.map_err(|error| failure_to_send(error, timeout)),
            Some(answer) => {
                let mut bare = Request::new(request.method().clone(), request.url().clone());
                *bare.body_mut() = request.body().and_then(reqwest::Body::as_bytes).map(|body| body.to_vec().into());
                answer(bare).await
            }
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Transport(handler)" } else { "Transport" })
    }
}

/// Classifies the error of a request without an answer.
fn failure_to_send(error: reqwest::Error, timeout: Duration) -> Failure {
    if error.is_connect() {
        failure_to_connect(error)
    } else if error.is_timeout() {
        Failure::timed_out(timeout)
    } else {
        let detail = cause_of(error);
        not_http(&detail).unwrap_or(Failure::Cut { bytes: 0, detail })
    }
}
