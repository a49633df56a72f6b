//! Asks the service to delete people, with `POST /v2/purge/visitors`. The caller chooses the batch size and interprets
//! the answer.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    address,
    error::{Failure, SourceError, Trouble},
    service::Source,
};
use crate::text::bytes_without_mark;

/// Maximum visitors of one request, by the contract.
pub const PURGE_DELETIONS_MAX: usize = 100;
/// Quotation marks that services put around request ids.
const QUOTES: [char; 8] = ['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}', '\u{ab}', '\u{bb}', '"'];
/// Maximum characters kept of a request id.
const ID_CHARS_MAX: usize = 128;

/// The people to purge, by three kinds of identifiers. The service needs at least one identifier.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeRequest {
    /// Delay before the service purges, in seconds. `None` leaves the delay to the service: ten days by its contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub emails: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user_ids: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub visitor_ids: Vec<String>,
}

impl std::fmt::Debug for PurgeRequest {
    /// Prints only the number of identifiers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PurgeRequest(of {})", self.len())
    }
}

impl PurgeRequest {
    /// Returns the number of emails, user ids and visitor ids together.
    pub fn len(&self) -> usize {
        self.emails.len() + self.user_ids.len() + self.visitor_ids.len()
    }

    /// Returns true if all three lists are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The service's answer to a purge request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeAnswer {
    /// The service will purge the people. `service_now_ms` is the service's time when it answered; `None` without a
    /// `Date`.
    Accepted { request_id: String, service_now_ms: Option<i64> },
    /// 400, 404 or 422, for example for unknown people. `message` is the service's text and may name people.
    Refused { status: u16, message: String },
}

impl Source {
    /// Asks the service to purge people. The request is idempotent, so it is repeated after a lost answer.
    pub async fn purge(&self, request: &PurgeRequest) -> Result<PurgeAnswer, SourceError> {
        let body = serde_json::to_vec(request).map(Bytes::from).unwrap_or_default();
        let call = address::of_purge(&self.inner.base_url, body);
        let answer = match self.fetch_checked(&call, false).await {
            Ok(answer) => answer,
            Err(Trouble::Rejected(rejection)) if rejection.is_missing() || rejection.is_invalid() => {
                // A request to a wrong base URL is answered with 404 too. The probe fails if the base URL is wrong.
                if rejection.is_missing() {
                    self.probe().await?;
                }
                return Ok(PurgeAnswer::Refused { status: rejection.status, message: rejection.message });
            }
            Err(trouble) => return Err(trouble.into_error(call.shown)),
        };
        match request_id(&answer.body) {
            Some(request_id) => Ok(PurgeAnswer::Accepted { request_id, service_now_ms: answer.service_now_ms }),
            None => {
                let came = format!("{} bytes without a requestId", answer.body.len());
                let problem = crate::page::PageError::NoData;
                Err(Failure::NoPage { problem, came }.give_up(call.shown, 1))
            }
        }
    }
}

/// Returns the `requestId` of an answer, without surrounding quotation marks. `None` if the answer has none.
fn request_id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "requestId")]
        request_id: String,
    }
    let answer: Answer = serde_json::from_slice(bytes_without_mark(body)).ok()?;
    let id = answer.request_id.trim().trim_matches(&QUOTES[..]).trim();
    (!id.is_empty()).then(|| id.chars().filter(|letter| !letter.is_control()).take(ID_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_out_of_its_quotes() {
        let id = |text: &str| request_id(text.as_bytes());
        assert_eq!(id("{\"requestId\":\"\u{201c}a-1\u{201d}\"}").as_deref(), Some("a-1"));
        assert_eq!(id(r#"{"requestId":"a-1","more":1}"#).as_deref(), Some("a-1"));
        assert_eq!(id("\u{feff}{\"requestId\":\"a-1\"}").as_deref(), Some("a-1"));
        for none in ["", "{}", r#"{"requestId":""}"#, r#"{"requestId":7}"#, "[]"] {
            assert_eq!(id(none), None, "{none}");
        }
    }

    #[test]
    fn lists_without_names_are_left_out_and_nobody_is_printed() {
        let request = PurgeRequest { emails: vec!["a@b".into()], ..PurgeRequest::default() };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"emails":["a@b"]}"#);
        assert!(!format!("{request:?}").contains("a@b"));
    }
}
