//! Who carries a request to the service and its answer back: the HTTP client, or a test that stands in for it. Knows
//! neither the gate nor what an answer means.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use reqwest::{Client, Request};

use super::{
    cause::cause,
    connection::{failure_to_connect, not_http},
    error::Failure,
};

/// An answer whose body is not read yet.
pub type Reply = reqwest::Response;

type Stand = dyn Fn(Request) -> BoxFuture<'static, Result<Reply, Failure>> + Send + Sync;

/// Who carries requests. The default is the network. Cheap to clone.
#[derive(Clone, Default)]
pub struct Transport(Option<Arc<Stand>>);

impl Transport {
    /// Hands each request to `answer` in place of the network. The request carries no headers: those are the client's,
    /// and with them the key. Nothing decompresses the body.
    pub fn handed_to(
        answer: impl Fn(Request) -> BoxFuture<'static, Result<Reply, Failure>> + Send + Sync + 'static,
    ) -> Transport {
        Transport(Some(Arc::new(answer)))
    }

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
        f.write_str(if self.0.is_some() { "Transport(handed)" } else { "Transport" })
    }
}

fn failure_to_send(error: reqwest::Error, timeout: Duration) -> Failure {
    if error.is_connect() {
        failure_to_connect(error)
    } else if error.is_timeout() {
        Failure::timed_out(timeout)
    } else {
        let detail = cause(error);
        not_http(&detail).unwrap_or(Failure::Cut { bytes: 0, detail })
    }
}
