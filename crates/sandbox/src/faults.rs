//! The settings of how the service answers: behaviours that the contract leaves open, and faults. The settings may
//! change while the sandbox runs. The module `service` implements them.

use serde::{Deserialize, Serialize};

use super::{filtered_by::FilteredBy, media::Media, record_faults::BrokenRecords};

/// The schedule of a fault: which requests the fault strikes. A fault strikes a request if `probability`, `every` or
/// `count` selects the request. The default selects no request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// Share of requests that the fault strikes, 0.0 to 1.0. `Faults::seed` and the number of a request decide if the
    /// request is struck.
    pub probability: f64,
    /// The fault strikes every n-th request; 0 selects none. Requests that `skip` or `count` counted do not count here.
    pub every: u64,
    /// The fault strikes this many of the next requests. Each struck request reduces the number by one.
    pub count: u64,
    /// Spares this many requests first; each reduces the number by one. Needs `probability`, `every` or `count`.
    pub skip: u64,
    /// The fault strikes and counts only requests whose path begins with this text; the empty text selects every path.
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
    /// The end of the wait by the service's clock as an HTTP date: the first full second after it.
    HttpDate,
    /// The end of the wait by the service's clock in epoch seconds: the first full second after it.
    EpochSeconds,
    /// The end of the wait by the service's clock in epoch milliseconds.
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
    /// The form of the header.
    pub form: RetryAfterForm,
    /// The wait that the header states, in milliseconds. Default 1000.
    pub wait_ms: u64,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { form: RetryAfterForm::default(), wait_ms: 1000 }
    }
}

/// A rate limit with a token bucket that fills in real time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimit {
    /// Tokens per second; 0 for no limit.
    pub per_second: f64,
    /// Maximum tokens in the bucket; 0 counts as 1.
    pub burst: u32,
    /// The form of `Retry-After`. The header states the time until the next token, but at least `min_wait_ms`.
    pub form: RetryAfterForm,
    /// The shortest wait that `Retry-After` states, in milliseconds.
    pub min_wait_ms: u64,
    /// Maximum concurrent requests. A further request gets a 429 that states `min_wait_ms`. 0 for no limit.
    pub in_flight_max: u32,
}

/// A 429 or 503 in place of the usual answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Refusal {
    /// When the fault strikes.
    pub when: When,
    /// The `Retry-After` of the answer.
    pub retry_after: RetryAfter,
}

/// A server error in place of the usual answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerError {
    /// When the fault strikes.
    pub when: When,
    /// The status of the answer. Default 500.
    pub status: u16,
}

impl Default for ServerError {
    fn default() -> Self {
        Self { when: When::default(), status: 500 }
    }
}

/// A body that is not sent completely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokenBody {
    /// When the fault strikes.
    pub when: When,
    /// Share of the body that is sent, 0.0 to 1.0. Default 0.5.
    pub sent_share: f64,
    /// How long the connection stays open without data before it is closed, in milliseconds. Only for `hung_body`.
    /// Default 60,000.
    pub silent_ms: u64,
}

impl Default for BrokenBody {
    fn default() -> Self {
        Self { when: When::default(), sent_share: 0.5, silent_ms: 60_000 }
    }
}

/// A fault without other settings than its schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plain {
    /// When the fault strikes.
    pub when: When,
}

/// The last rows of the previous page, sent again at the beginning of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RepeatedRows {
    /// When the fault strikes.
    pub when: When,
    /// Number of repeated rows. Default 3.
    pub rows: usize,
}

impl Default for RepeatedRows {
    fn default() -> Self {
        Self { when: When::default(), rows: 3 }
    }
}

/// Page tokens that expire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadTokens {
    /// The requests with a token that are refused, whatever the age of the token.
    pub when: When,
    /// Real time after which a token is dead, in milliseconds; 0 for never.
    pub after_ms: u64,
    /// Tokens that were sent on a later page of a list than this one are dead; pages count from 1. 0 for never.
    pub after_pages: u64,
    /// The status of the answer to a dead token. Default 400.
    pub status: u16,
}

impl Default for DeadTokens {
    fn default() -> Self {
        Self { when: When::default(), after_ms: 0, after_pages: 0, status: 400 }
    }
}

/// Additional time that a request takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    /// Time of each request, in milliseconds.
    pub ms: u64,
    /// Maximum of a random additional time, in milliseconds.
    pub jitter_ms: u64,
    /// Additional time for each row of the requested page size, in microseconds.
    pub per_row_us: u64,
}

/// Pages that are too large to be answered in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlowPages {
    /// Requests for pages of more rows than this are slow; 0 for no slow requests.
    pub above_rows: usize,
    /// How long a slow request waits, in milliseconds. Default 2000.
    pub wait_ms: u64,
    /// The status of the answer after the wait; 0 for the usual answer. Default 504.
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
    /// An order unrelated to time, which is the same in each request.
    Shuffled,
}

/// What happens to rows of one millisecond at a page boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// Each row is sent once, because the page token names a row.
    #[default]
    Kept,
    /// The page token names the millisecond of the last row. The next page sends all rows of this millisecond again. If
    /// all rows of a page are of one millisecond, its token leads to the same page again.
    Repeated,
    /// The page token names a millisecond. The rows of this millisecond that were not on the page are never sent.
    Lost,
}

/// How the service marks the last page of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndMark {
    /// `"cursor":null`
    #[default]
    Null,
    /// The member `cursor` is missing.
    Missing,
    /// `"cursor":""`
    Empty,
    /// Every page with rows has a `cursor`. A request with the token of the last page is answered with 404. An empty
    /// list is answered with 404 too.
    NotFound,
}

/// How several values of the query parameter `status` are written.
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

/// The accepted forms of the `Authorization` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// `Bearer` and `API-Key` for every path.
    #[default]
    Both,
    /// `API-Key` for users, `Bearer` for every other path.
    Strict,
}

/// The paths at which the list of surveys is served.
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
    /// The seed of all random choices of faults.
    pub seed: u64,

    /// The order of lists.
    pub order: Order,
    /// What happens to rows of one millisecond at page boundaries.
    pub ties: Ties,
    /// How the service marks the last page of a list.
    pub end_mark: EndMark,
    /// How the service marks the last page of themes; `None` for `end_mark`.
    pub themes_end_mark: Option<EndMark>,
    /// True if a list ends with an empty page, because the last page with rows has a token.
    pub trailing_empty_page: bool,
    /// True if an empty list is answered with 404.
    pub not_found_when_empty: bool,
    /// The lists (`responses`, `surveys`, `themes`) that answer every request with 404, as for a key that may not read
    /// them.
    pub missing_lists: Vec<String>,
    /// The status of the response to an invalid query. Default 400.
    pub invalid_query_status: u16,
    /// True if rows whose filtered time equals `start` are left out.
    pub exclusive_start: bool,
    /// True if rows whose filtered time equals `end` are left out.
    pub exclusive_end: bool,
    /// `start` and `end` of themes filter by a time that is this many milliseconds before the creation of the theme. An
    /// answer may be created that long before its theme. 0 filters by the creation of the theme.
    pub theme_lag_ms: i64,
    /// The time that `start` and `end` of responses filter by.
    pub responses_filtered_by: FilteredBy,
    /// The time that `start` and `end` of surveys filter by.
    pub surveys_filtered_by: FilteredBy,
    /// True if the list of surveys is empty, as in a new environment.
    pub has_no_surveys: bool,
    /// The statuses of the surveys that are listed without a `status` parameter; empty for all.
    pub default_statuses: Vec<String>,
    /// The only accepted spelling of several `status` values; any other spelling is refused with 400. `None` accepts
    /// all.
    pub status_spelling: Option<StatusSpelling>,
    /// True if `status` in another spelling than `status_spelling` is ignored instead of refused.
    pub ignore_other_spellings: bool,
    /// Rows of a page if the request has no `limit`. Default 100.
    pub default_page_rows: usize,
    /// True if query parameters outside the contract are ignored instead of refused with 400.
    pub ignore_unknown_parameters: bool,
    /// Accepted forms of `Authorization`.
    pub auth: Auth,
    /// Paths of the list of surveys.
    pub surveys_at: SurveysAt,
    /// True if attributes of users may have any JSON value. Otherwise only strings, integers and booleans.
    pub any_attribute_values: bool,
    /// True if bodies are compressed for clients that accept gzip.
    pub gzip: bool,
    /// Real time from the first upsert of a user until the user can be read, in milliseconds.
    pub user_delay_ms: u64,
    /// True if times of users are ISO 8601 texts instead of epoch milliseconds.
    pub iso_user_times: bool,
    /// True if times of users are epoch seconds instead of milliseconds. Ignored if `iso_user_times` is true.
    pub user_times_in_seconds: bool,
    /// True if bodies begin with a byte order mark.
    pub byte_order_mark: bool,
    /// True if the `requestId` of a purge is wrapped in typographic quotes.
    pub quoted_request_id: bool,

    /// Recordings, and the links to recordings.
    pub media: Media,

    /// The rate limit.
    pub rate_limit: RateLimit,
    /// A 429 by schedule, whatever the rate of requests.
    pub too_many_requests: Refusal,
    /// A server error by schedule.
    pub server_error: ServerError,
    /// An upsert that is accepted, although its answer is an error.
    pub lost_answer: ServerError,
    /// A 503 by schedule.
    pub unavailable: Refusal,
    /// A body that is shorter than its `Content-Length`, because the connection closes.
    pub cut_body: BrokenBody,
    /// A body that stops while the connection stays open.
    pub hung_body: BrokenBody,
    /// An HTML page with status 200.
    pub html: Plain,
    /// A JSON object without `data`, with status 200.
    pub no_data: Plain,
    /// A page that begins with the last rows of the previous page.
    pub repeated_rows: RepeatedRows,
    /// A page whose token leads to the same page again.
    pub looping_cursor: Plain,
    /// A page without rows, whose token leads to the rows that the page should have.
    pub empty_page: Plain,
    /// Page tokens that expire.
    pub dead_tokens: DeadTokens,
    /// Additional time that requests take.
    pub latency: Latency,
    /// Pages that are too large to be answered in time.
    pub slow_pages: SlowPages,
    /// Records that cannot be delivered, or are delivered broken.
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
            missing_lists: Vec::new(),
            invalid_query_status: 400,
            exclusive_start: false,
            exclusive_end: false,
            theme_lag_ms: 0,
            responses_filtered_by: FilteredBy::default(),
            surveys_filtered_by: FilteredBy::default(),
            has_no_surveys: false,
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
    /// Returns the faults after a JSON merge patch: objects are merged, and null sets the default. Fails for unknown
    /// names and wrong types.
    pub fn merged(&self, patch: serde_json::Value) -> Result<Faults, serde_json::Error> {
        let mut merged = serde_json::to_value(self)?;
        merge(&mut merged, patch);
        serde_json::from_value(merged)
    }

    /// Fails if a status, `default_page_rows` or `rate_limit.per_second` is out of range. The error names the value.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let statuses = [
            ("invalid_query", self.invalid_query_status),
            ("server_error", self.server_error.status),
            ("lost_answer", self.lost_answer.status),
            ("dead_tokens", self.dead_tokens.status),
        ];
        if let Some((name, status)) = statuses.iter().find(|(_, status)| !(400..=599).contains(status)) {
            return Err(format!("the status of {name} is {status}; it must be 400 to 599"));
        }
        let slow = self.slow_pages.status;
        let checks = [
            (slow == 0 || (400..=599).contains(&slow), "slow_pages.status must be 0 or 400 to 599"),
            ((1..=1000).contains(&self.default_page_rows), "default_page_rows must be 1 to 1000"),
            ((0.0..f64::INFINITY).contains(&self.rate_limit.per_second), "rate_limit.per_second must be 0 or more"),
            (self.media.bytes <= 1 << 30, "media.bytes must be at most 1 GiB"),
        ];
        checks.into_iter().find(|(is_valid, _)| !is_valid).map_or(Ok(()), |(_, problem)| Err(problem.to_owned()))
    }
}

/// Applies a JSON merge patch to `target`.
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
mod tests;
