//! How the service answers: its habits where the contract leaves them open, and the faults it shows. All of it may
//! change while the sandbox runs.
//!
//! Only data: what a fault does stands in `service`.

use serde::{Deserialize, Serialize};

use super::{filtered_by::FilteredBy, media::Media, record_faults::BrokenRecords};

/// When a fault strikes. The ways add up; none is set by default, so it never strikes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// Share of requests, 0.0 to 1.0; chosen by `Faults::seed` and the number of the request.
    pub probability: f64,
    /// Every n-th request; 0 is never.
    pub every: u64,
    /// The next so many requests; counts down.
    pub count: u64,
    /// Requests that are spared first; counts down.
    pub skip: u64,
    /// Only requests to paths that begin with this.
    pub path: String,
}

/// The form of a `Retry-After` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfterForm {
    /// No header.
    Absent,
    /// Whole seconds, rounded up.
    #[default]
    Seconds,
    /// Seconds with a fraction.
    Fraction,
    /// An HTTP date by the service's clock, rounded up to a second.
    HttpDate,
    /// The moment in epoch seconds by the service's clock, rounded up.
    EpochSeconds,
    /// The moment in epoch milliseconds by the service's clock.
    EpochMillis,
    /// `0`
    Zero,
    /// `-5`
    Negative,
    /// An HTTP date an hour ago.
    PastDate,
    /// `soon`
    Garbage,
}

/// A `Retry-After` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryAfter {
    /// How it is spelled.
    pub form: RetryAfterForm,
    /// The wait that it tells, in milliseconds. Default 1000.
    pub wait_ms: u64,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { form: RetryAfterForm::default(), wait_ms: 1000 }
    }
}

/// A real rate limit: a bucket of tokens, filled in real time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimit {
    /// Tokens a second; 0 is no limit.
    pub per_second: f64,
    /// Tokens that the bucket holds; at least 1 is used.
    pub burst: u32,
    /// The form of `Retry-After`. The wait told is the time until the next token, and at least `min_wait_ms`.
    pub form: RetryAfterForm,
    /// The least wait told, in milliseconds.
    pub min_wait_ms: u64,
    /// The most requests at once, the others get a 429 as well; 0 is no limit.
    pub in_flight_max: u32,
}

/// 429 or 503 instead of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Refusal {
    /// When.
    pub when: When,
    /// When the client may come back.
    pub retry_after: RetryAfter,
}

/// A failure instead of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerError {
    /// When.
    pub when: When,
    /// The status. Default 500.
    pub status: u16,
}

impl Default for ServerError {
    fn default() -> Self {
        Self { when: When::default(), status: 500 }
    }
}

/// A body that is not sent whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokenBody {
    /// When.
    pub when: When,
    /// Share of the body that is sent, 0.0 to 1.0. Default a half.
    pub sent_share: f64,
    /// How long the connection stays open in silence before it is closed, in milliseconds.
    /// Only for hung bodies; default a minute.
    pub silent_ms: u64,
}

impl Default for BrokenBody {
    fn default() -> Self {
        Self { when: When::default(), sent_share: 0.5, silent_ms: 60_000 }
    }
}

/// A fault without a choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plain {
    /// When.
    pub when: When,
}

/// Rows of the page before, sent again at the beginning of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RepeatedRows {
    /// When.
    pub when: When,
    /// How many rows. Default 3.
    pub rows: usize,
}

impl Default for RepeatedRows {
    fn default() -> Self {
        Self { when: When::default(), rows: 3 }
    }
}

/// Page tokens that die.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadTokens {
    /// Which requests with a token are refused whatever its age.
    pub when: When,
    /// Real time after which a token is dead, in milliseconds; 0 is never.
    pub after_ms: u64,
    /// Pages of one list after which its tokens are dead; 0 is never.
    pub after_pages: u64,
    /// What a dead token is answered with. Default 400.
    pub status: u16,
}

impl Default for DeadTokens {
    fn default() -> Self {
        Self { when: When::default(), after_ms: 0, after_pages: 0, status: 400 }
    }
}

/// Time that a request takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    /// Each request, in milliseconds.
    pub ms: u64,
    /// Up to so much more, in milliseconds.
    pub jitter_ms: u64,
    /// Each row asked for, in microseconds.
    pub per_row_us: u64,
}

/// Pages that are too large to be made in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlowPages {
    /// Pages with more rows asked for are slow; 0 is never.
    pub above_rows: usize,
    /// For how long, in milliseconds. Default 2000.
    pub wait_ms: u64,
    /// The status after the wait; 0 answers as usual. Default 504.
    pub status: u16,
}

impl Default for SlowPages {
    fn default() -> Self {
        Self { above_rows: 0, wait_ms: 2000, status: 504 }
    }
}

/// The order of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The newest row first.
    #[default]
    NewestFirst,
    /// The oldest row first.
    OldestFirst,
    /// No order of time, but always the same.
    Shuffled,
}

/// Rows of one millisecond at a page edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// The page token names a row: each row is sent once.
    #[default]
    Kept,
    /// The token is a millisecond, and its rows are sent again. A page full of one millisecond loops for ever.
    Repeated,
    /// The token is a millisecond, and its other rows are never sent.
    Lost,
}

/// What marks the last page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndMark {
    /// `"cursor":null`
    #[default]
    Null,
    /// No `cursor`.
    Missing,
    /// `"cursor":""`
    Empty,
    /// None: `cursor` and `data` are never empty.
    /// The token of the last page is answered with 404, and so is an empty list.
    NotFound,
}

/// How several values of `status` are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusSpelling {
    /// `status=A,B`
    Comma,
    /// `status[]=A&status[]=B`
    Brackets,
    /// `status=A&status=B`
    Repeated,
}

/// Which forms of `Authorization` are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// Both forms everywhere.
    #[default]
    Both,
    /// Bearer on export and purge, API-Key on users.
    Strict,
}

/// Under which names the list of surveys is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SurveysAt {
    /// `/v1/surveys` and `/v1/studies`
    #[default]
    Both,
    /// `/v1/surveys`
    Surveys,
    /// `/v1/studies`
    Studies,
}

/// How the service answers. The default is a service without faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Seed of everything that strikes by probability.
    pub seed: u64,

    /// Order of lists.
    pub order: Order,
    /// Rows of one millisecond at page edges.
    pub ties: Ties,
    /// What marks the last page.
    pub end_mark: EndMark,
    /// The same of themes, where it is another one.
    pub themes_end_mark: Option<EndMark>,
    /// A list ends with an empty page: the last page with rows still has a token.
    pub trailing_empty_page: bool,
    /// An empty list is answered with 404.
    pub not_found_when_empty: bool,
    /// Rows created at `start` are left out.
    pub exclusive_start: bool,
    /// Rows created at `end` are left out.
    pub exclusive_end: bool,
    /// `start` and `end` of themes mean the creation of the answer, which came so long before the theme, in
    /// milliseconds; 0: they mean that of the theme.
    pub theme_lag_ms: i64,
    /// What `start` and `end` of responses mean.
    pub responses_filtered_by: FilteredBy,
    /// What `start` and `end` of surveys mean.
    pub surveys_filtered_by: FilteredBy,
    /// Without `status` only surveys in these states are listed; empty: all.
    pub default_statuses: Vec<String>,
    /// The one spelling of several values of `status` that is understood. Another spelling is refused with 400.
    pub status_spelling: Option<StatusSpelling>,
    /// What is spelled otherwise is ignored, not refused.
    pub ignore_other_spellings: bool,
    /// Rows of a page when no `limit` is given. Default 100.
    pub default_page_rows: usize,
    /// Parameters that the contract does not know are ignored, not refused with 400.
    pub ignore_unknown_parameters: bool,
    /// Accepted forms of `Authorization`.
    pub auth: Auth,
    /// Paths of the list of surveys.
    pub surveys_at: SurveysAt,
    /// Attributes of users may have any JSON value, not texts, integers and true or false alone.
    pub any_attribute_values: bool,
    /// Bodies are compressed for clients that accept gzip.
    pub gzip: bool,
    /// Real time until an upserted user can be read, in milliseconds.
    pub user_delay_ms: u64,
    /// Times of users are ISO 8601 texts, not epoch milliseconds.
    pub iso_user_times: bool,
    /// Times of users are epoch seconds, not milliseconds.
    pub user_times_in_seconds: bool,
    /// Bodies begin with a byte order mark.
    pub byte_order_mark: bool,
    /// `requestId` of a purge is wrapped in typographic quotes.
    pub quoted_request_id: bool,

    /// Recordings, and the links to them.
    pub media: Media,

    /// A real rate limit.
    pub rate_limit: RateLimit,
    /// 429 out of the blue.
    pub too_many_requests: Refusal,
    /// A failure of the server.
    pub server_error: ServerError,
    /// An upserted user is taken, and the answer is a failure all the same.
    pub lost_answer: ServerError,
    /// 503 out of the blue.
    pub unavailable: Refusal,
    /// `Content-Length` promises more than is sent, then the connection closes.
    pub cut_body: BrokenBody,
    /// The body stops, and the connection stays open.
    pub hung_body: BrokenBody,
    /// An HTML page with status 200.
    pub html: Plain,
    /// 200 with an object that has no `data`.
    pub no_data: Plain,
    /// Rows of the page before are sent again.
    pub repeated_rows: RepeatedRows,
    /// The token in the answer is the one of the request (on a first page: the one that leads back to it).
    pub looping_cursor: Plain,
    /// A page without rows and with a token that goes on where this page would have begun.
    pub empty_page: Plain,
    /// Tokens that die.
    pub dead_tokens: DeadTokens,
    /// Time that requests take.
    pub latency: Latency,
    /// Pages that are too large.
    pub slow_pages: SlowPages,
    /// Records that never come, or come broken.
    pub broken_records: BrokenRecords,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            seed: 1,
            order: Order::default(),
            ties: Ties::default(),
            end_mark: EndMark::default(),
            themes_end_mark: None,
            trailing_empty_page: false,
            not_found_when_empty: false,
            exclusive_start: false,
            exclusive_end: false,
            theme_lag_ms: 0,
            responses_filtered_by: FilteredBy::default(),
            surveys_filtered_by: FilteredBy::default(),
            default_statuses: Vec::new(),
            status_spelling: None,
            ignore_other_spellings: false,
            default_page_rows: 100,
            ignore_unknown_parameters: false,
            auth: Auth::default(),
            surveys_at: SurveysAt::default(),
            any_attribute_values: false,
            gzip: false,
            user_delay_ms: 0,
            iso_user_times: false,
            user_times_in_seconds: false,
            byte_order_mark: false,
            quoted_request_id: false,
            media: Media::default(),
            rate_limit: RateLimit::default(),
            too_many_requests: Refusal::default(),
            server_error: ServerError::default(),
            lost_answer: ServerError::default(),
            unavailable: Refusal::default(),
            cut_body: BrokenBody::default(),
            hung_body: BrokenBody::default(),
            html: Plain::default(),
            no_data: Plain::default(),
            repeated_rows: RepeatedRows::default(),
            looping_cursor: Plain::default(),
            empty_page: Plain::default(),
            dead_tokens: DeadTokens::default(),
            latency: Latency::default(),
            slow_pages: SlowPages::default(),
            broken_records: BrokenRecords::default(),
        }
    }
}

impl Faults {
    /// The faults with some changed: a JSON merge patch (objects merge, null is the default).
    pub fn merged(&self, patch: serde_json::Value) -> Result<Faults, serde_json::Error> {
        let mut whole = serde_json::to_value(self)?;
        merge(&mut whole, patch);
        serde_json::from_value(whole)
    }

    /// What is wrong with the numbers, if anything.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let statuses = [
            ("server_error", self.server_error.status),
            ("lost_answer", self.lost_answer.status),
            ("dead_tokens", self.dead_tokens.status),
        ];
        if let Some((name, status)) = statuses.iter().find(|(_, status)| !(400..=599).contains(status)) {
            return Err(format!("{name}.status is {status}; it must be 400 to 599"));
        }
        if self.slow_pages.status != 0 && !(400..=599).contains(&self.slow_pages.status) {
            return Err("slow_pages.status must be 0 or 400 to 599".into());
        }
        if !(1..=1000).contains(&self.default_page_rows) {
            return Err("default_page_rows must be 1 to 1000".into());
        }
        if !self.rate_limit.per_second.is_finite() || self.rate_limit.per_second < 0.0 {
            return Err("rate_limit.per_second must be 0 or more".into());
        }
        Ok(())
    }
}

fn merge(target: &mut serde_json::Value, patch: serde_json::Value) {
    match (target, patch) {
        (serde_json::Value::Object(target), serde_json::Value::Object(patch)) => {
            for (name, value) in patch {
                match value {
                    serde_json::Value::Null => drop(target.remove(&name)),
                    value => merge(target.entry(name).or_insert(serde_json::Value::Null), value),
                }
            }
        }
        (target, patch) => *target = patch,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_changes_only_what_it_names() {
        let before = Faults { gzip: true, ..Faults::default() };
        let after = before.merged(json!({"html": {"when": {"count": 2}}, "order": "oldest_first"})).unwrap();
        assert_eq!(after.html.when.count, 2);
        assert_eq!(after.order, Order::OldestFirst);
        assert_eq!(Faults { html: Plain::default(), order: Order::NewestFirst, ..after.clone() }, before);
        assert!(!after.merged(json!({"gzip": null})).unwrap().gzip, "null is the default");
        assert!(before.merged(json!({"gizp": true})).unwrap_err().to_string().contains("gizp"));
    }

    #[test]
    fn a_status_that_is_none_is_refused() {
        let faults = Faults::default().merged(json!({"server_error": {"status": 200}})).unwrap();
        assert!(faults.validate().unwrap_err().contains("server_error"));
        assert_eq!(Faults::default().validate(), Ok(()));
    }
}
