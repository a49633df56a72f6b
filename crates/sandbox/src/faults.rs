//! The settings of how the service answers: behaviours that the contract leaves open, and faults. The settings may
//! change while the sandbox runs. The module `service` implements them.

use serde::{Deserialize, Serialize};

use super::media::Media;

with_defaults! {
    /// The schedule of a fault: which requests the fault strikes. A fault strikes a request if `probability`, `every`
    /// or `count` selects the request. The default selects no request.
    pub struct When {
        /// Share of requests that the fault strikes, 0.0 to 1.0. `Faults::seed` and the number of a request decide if
        /// the request is struck.
        probability: f64,
        /// The fault strikes every n-th request; 0 selects none. Requests that `skip` or `count` counted do not count
        /// here.
        every: u64,
        /// The fault strikes this many of the next requests. Each struck request reduces the number by one.
        count: u64,
        /// Spares this many requests first; each reduces the number by one. Needs `probability`, `every` or `count`.
        skip: u64,
        /// The fault strikes and counts only requests whose path begins with this text; the empty text selects every
        /// path.
        path: String,
    }
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

with_defaults! {
    /// A `Retry-After` header.
    #[derive(Copy, Eq)]
    pub struct RetryAfter {
        /// The form of the header.
        form: RetryAfterForm,
        /// The wait that the header states, in milliseconds. Default 1000.
        wait_ms: u64 = 1000,
    }

    /// A rate limit with a token bucket that fills in real time.
    pub struct RateLimit {
        /// Tokens per second; 0 for no limit.
        per_second: f64,
        /// Maximum tokens in the bucket; 0 counts as 1.
        burst: u32,
        /// The form of `Retry-After`. The header states the time until the next token, but at least `min_wait_ms`.
        form: RetryAfterForm,
        /// The shortest wait that `Retry-After` states, in milliseconds.
        min_wait_ms: u64,
        /// Maximum concurrent requests. A further request gets a 429 that states `min_wait_ms`. 0 for no limit.
        in_flight_max: u32,
    }

    /// A 429 or 503 in place of the usual answer.
    pub struct Refusal {
        /// When the fault strikes.
        when: When,
        /// The `Retry-After` of the answer.
        retry_after: RetryAfter,
    }

    /// A server error in place of the usual answer.
    pub struct ServerError {
        /// When the fault strikes.
        when: When,
        /// The status of the answer. Default 500.
        status: u16 = 500,
    }

    /// A body that is not sent completely.
    pub struct BrokenBody {
        /// When the fault strikes.
        when: When,
        /// Share of the body that is sent, 0.0 to 1.0. Default 0.5.
        sent_share: f64 = 0.5,
        /// How long the connection stays open without data before it is closed, in milliseconds. Only for `hung_body`.
        /// Default 60,000.
        silent_ms: u64 = 60_000,
    }

    /// A fault without other settings than its schedule.
    pub struct Plain {
        /// When the fault strikes.
        when: When,
    }

    /// The last rows of the previous page, sent again at the beginning of a page.
    pub struct RepeatedRows {
        /// When the fault strikes.
        when: When,
        /// Number of repeated rows. Default 3.
        rows: usize = 3,
    }

    /// Page tokens that expire.
    pub struct DeadTokens {
        /// The requests with a token that are refused, whatever the age of the token.
        when: When,
        /// Real time after which a token is dead, in milliseconds; 0 for never.
        after_ms: u64,
        /// Tokens that were sent on a later page of a list than this one are dead; pages count from 1. 0 for never.
        after_pages: u64,
        /// The status of the answer to a dead token. Default 400.
        status: u16 = 400,
    }

    /// Additional time that a request takes.
    pub struct Latency {
        /// Time of each request, in milliseconds.
        ms: u64,
        /// Maximum of a random additional time, in milliseconds.
        jitter_ms: u64,
        /// Additional time for each row of the requested page size, in microseconds.
        per_row_us: u64,
    }

    /// Pages that are too large to be answered in time.
    pub struct SlowPages {
        /// Requests for pages of more rows than this are slow; 0 for no slow requests.
        above_rows: usize,
        /// How long a slow request waits, in milliseconds. Default 2000.
        wait_ms: u64 = 2000,
        /// The status of the answer after the wait; 0 for the usual answer. Default 504.
        status: u16 = 504,
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

/// The time of a row that `start` and `end` of a list call filter by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilteredBy {
    /// The creation of the row.
    #[default]
    Created,
    /// The last change of the row.
    Updated,
    /// The creation of the first answer in the session of the row. For responses only; like `Nothing` for surveys.
    Session,
    /// The launch of the survey. For surveys only; like `Nothing` for responses.
    Launched,
    /// No time: `start` and `end` are ignored.
    Ignored,
    /// A time that no row has: a request with `start` or `end` gets no rows, and any other request gets all.
    Nothing,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordFault {
    /// A request for a page with the record is answered with 500, whatever the page size.
    #[default]
    ServerError,
    /// A page with the record is truncated JSON.
    NoPage,
    /// A member of the record is `NaN`.
    Nan,
    /// A text in the record has an unescaped line break.
    RawNewline,
    /// A text in the record has an unescaped control character.
    ControlCharacter,
    /// A text in the record has a byte that is not UTF-8.
    BadUtf8,
    /// The last third of the record is missing.
    Truncated,
}

with_defaults! {
    /// Records that the service cannot deliver, or delivers broken, in every request.
    pub struct BrokenRecords {
        /// The creation times of the broken records, epoch milliseconds.
        created_ms: Vec<i64>,
        /// What is wrong with the records.
        fault: RecordFault,
        /// The fault applies only to lists whose path begins with this text.
        path: String,
    }

    /// How the service answers. The default is a service without faults.
    pub struct Faults {
        /// The seed of all random choices of faults.
        seed: u64 = 1,

        /// The order of lists.
        order: Order,
        /// What happens to rows of one millisecond at page boundaries.
        ties: Ties,
        /// How the service marks the last page of a list.
        end_mark: EndMark,
        /// How the service marks the last page of themes; `None` for `end_mark`.
        themes_end_mark: Option<EndMark>,
        /// True if a list ends with an empty page, because the last page with rows has a token.
        trailing_empty_page: bool,
        /// True if an empty list is answered with 404.
        not_found_when_empty: bool,
        /// The lists (`responses`, `surveys`, `themes`) that answer every request with 404, as for a key that may not
        /// read them.
        missing_lists: Vec<String>,
        /// The status of the response to an invalid query. Default 400.
        invalid_query_status: u16 = 400,
        /// True if rows whose filtered time equals `start` are left out.
        exclusive_start: bool,
        /// True if rows whose filtered time equals `end` are left out.
        exclusive_end: bool,
        /// `start` and `end` of themes filter by a time that is this many milliseconds before the creation of the
        /// theme. An answer may be created that long before its theme. 0 filters by the creation of the theme.
        theme_lag_ms: i64,
        /// The time that `start` and `end` of responses filter by.
        responses_filtered_by: FilteredBy,
        /// The time that `start` and `end` of surveys filter by.
        surveys_filtered_by: FilteredBy,
        /// True if the list of surveys is empty, as in a new environment.
        has_no_surveys: bool,
        /// The statuses of the surveys that are listed without a `status` parameter; empty for all.
        default_statuses: Vec<String>,
        /// The only accepted spelling of several `status` values; any other spelling is refused with 400. `None`
        /// accepts all.
        status_spelling: Option<StatusSpelling>,
        /// True if `status` in another spelling than `status_spelling` is ignored instead of refused.
        ignore_other_spellings: bool,
        /// Rows of a page if the request has no `limit`. Default 100.
        default_page_rows: usize = 100,
        /// True if query parameters outside the contract are ignored instead of refused with 400.
        ignore_unknown_parameters: bool,
        /// Accepted forms of `Authorization`.
        auth: Auth,
        /// Paths of the list of surveys.
        surveys_at: SurveysAt,
        /// True if attributes of users may have any JSON value. Otherwise only strings, integers and booleans.
        any_attribute_values: bool,
        /// True if bodies are compressed for clients that accept gzip.
        gzip: bool,
        /// Real time from the first upsert of a user until the user can be read, in milliseconds.
        user_delay_ms: u64,
        /// True if times of users are ISO 8601 texts instead of epoch milliseconds.
        iso_user_times: bool,
        /// True if times of users are epoch seconds instead of milliseconds. Ignored if `iso_user_times` is true.
        user_times_in_seconds: bool,
        /// True if bodies begin with a byte order mark.
        byte_order_mark: bool,
        /// True if the `requestId` of a purge is wrapped in typographic quotes.
        quoted_request_id: bool,

        /// Recordings, and the links to recordings.
        media: Media,

        /// The rate limit.
        rate_limit: RateLimit,
        /// A 429 by schedule, whatever the rate of requests.
        too_many_requests: Refusal,
        /// A server error by schedule.
        server_error: ServerError,
        /// An upsert that is accepted, although its answer is an error.
        lost_answer: ServerError,
        /// A 503 by schedule.
        unavailable: Refusal,
        /// A body that is shorter than its `Content-Length`, because the connection closes.
        cut_body: BrokenBody,
        /// A body that stops while the connection stays open.
        hung_body: BrokenBody,
        /// An HTML page with status 200.
        html: Plain,
        /// A JSON object without `data`, with status 200.
        no_data: Plain,
        /// A page that begins with the last rows of the previous page.
        repeated_rows: RepeatedRows,
        /// A page whose token leads to the same page again.
        looping_cursor: Plain,
        /// A page without rows, whose token leads to the rows that the page should have. `every` selects no page that
        /// follows an empty page.
        empty_page: Plain,
        /// Page tokens that expire.
        dead_tokens: DeadTokens,
        /// Additional time that requests take.
        latency: Latency,
        /// Pages that are too large to be answered in time.
        slow_pages: SlowPages,
        /// Records that cannot be delivered, or are delivered broken.
        broken_records: BrokenRecords,
    }
}

impl Faults {
    /// Returns the schedules of all faults, with the names of the faults.
    pub(crate) fn schedules(&mut self) -> [(&'static str, &mut When); 12] {
        [
            ("too_many_requests", &mut self.too_many_requests.when),
            ("server_error", &mut self.server_error.when),
            ("lost_answer", &mut self.lost_answer.when),
            ("unavailable", &mut self.unavailable.when),
            ("cut_body", &mut self.cut_body.when),
            ("hung_body", &mut self.hung_body.when),
            ("html", &mut self.html.when),
            ("no_data", &mut self.no_data.when),
            ("repeated_rows", &mut self.repeated_rows.when),
            ("looping_cursor", &mut self.looping_cursor.when),
            ("empty_page", &mut self.empty_page.when),
            ("dead_tokens", &mut self.dead_tokens.when),
        ]
    }

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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_changes_only_what_it_names() {
        let before = Faults { gzip: true, ..Faults::default() };
        let after = before.merged(json!({"html": {"when": {"count": 2}}, "order": "oldest_first"})).unwrap();
        assert_eq!((after.html.when.count, after.order), (2, Order::OldestFirst));
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
