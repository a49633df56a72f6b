//! The list calls: reads the query and the page token, renders a page, and applies the faults of lists.

use std::{ops::Range, sync::Arc};

use axum::http::{StatusCode, Uri};

use super::{
    super::{
        faults::{EndMark, Faults, Order},
        record_faults::RecordFault,
        world::{Ordered, Position, Record, SurveyRow, Timeline, World, shuffled_order},
    },
    List, Reply, Service, lock,
    page_token::PageToken,
    query::ListQuery,
    reply::Delivery,
};

/// Maximum windows whose shuffled order is cached.
const SHUFFLES_MAX: usize = 64;

/// What a shuffled order depends on: a list, a range of creation time, a survey, and the version of the list's rows.
type ShuffleKey = (List, Range<i64>, Option<i64>, u64);

/// The shuffled orders of the windows that were last requested.
#[derive(Debug, Default)]
pub(crate) struct ShuffleCache {
    orders: Vec<(ShuffleKey, Arc<Vec<u32>>)>,
}

/// A rendered page before the page token or the end mark is added.
struct Page {
    body: Vec<u8>,
    rows: usize,
    next: Option<PageToken>,
    /// The fault of a broken record on the page; `None` if there is none.
    record_fault: Option<RecordFault>,
}

impl Service {
    /// Answers a list call.
    pub(super) async fn list(&self, list: List, uri: &Uri, faults: &Faults) -> Reply {
        if faults.missing_lists.iter().any(|name| uri.path().ends_with(name.as_str())) {
            return Reply::error(StatusCode::NOT_FOUND, "not found").struck_by("missing_lists");
        }
        let query = match ListQuery::parse(list, uri, faults) {
            Ok(query) => query,
            Err(message) => {
                let status = StatusCode::from_u16(faults.invalid_query_status).unwrap_or(StatusCode::BAD_REQUEST);
                return Reply::error(status, &message);
            }
        };
        self.pause((faults.latency.per_row_us * query.page_rows as u64).div_ceil(1000)).await;
        if faults.slow_pages.above_rows > 0 && query.page_rows > faults.slow_pages.above_rows {
            self.pause(faults.slow_pages.wait_ms).await;
            if let Ok(status) = StatusCode::from_u16(faults.slow_pages.status) {
                return Reply::error(status, "the request took too long").struck_by("slow_pages");
            }
        }
        let token = match self.read_token(&query, faults, uri.path()) {
            Ok(token) => token,
            Err(refusal) => return *refusal,
        };
        self.dispatch(&query, token, faults, uri.path())
    }

    /// Reads the page token of the request; `None` if the request has none. `Err` is the reply to an expired or
    /// unreadable token.
    fn read_token(&self, query: &ListQuery, faults: &Faults, path: &str) -> Result<Option<PageToken>, Box<Reply>> {
        let Some(text) = query.token.as_deref() else { return Ok(None) };
        let is_dead = lock(&self.tokens).is_dead(text, &faults.dead_tokens, self.clock.elapsed_us());
        if is_dead || self.strikes("dead_tokens", path) {
            // The settings allow only 400 to 599.
            let status = StatusCode::from_u16(faults.dead_tokens.status).unwrap_or(StatusCode::BAD_REQUEST);
            return Err(Box::new(Reply::error(status, "'cursor' has expired").struck_by("dead_tokens")));
        }
        let token = PageToken::decode(text, query.binding());
        token.map(Some).map_err(|message| Box::new(Reply::bad_request(message)))
    }

    /// Renders the page that the query and the token ask for, and makes the reply. Applies the faults that strike.
    fn dispatch(&self, query: &ListQuery, token: Option<PageToken>, faults: &Faults, path: &str) -> Reply {
        let is_empty_page = self.strikes("empty_page", path);
        let repeated_rows =
            if token.is_some() && self.strikes("repeated_rows", path) { faults.repeated_rows.rows } else { 0 };
        let plan = PagePlan { query, token, faults, is_empty_page, repeated_rows, service: self, path };
        let world: &World = &self.world();
        let (filtered_by, asked_ms) = (query.filtered_by(faults), query.asked_ms(faults));
        let page = match query.list {
            List::Responses => {
                let is_within = world.responses_within(filtered_by, asked_ms);
                plan.page(
                    &world.responses,
                    |row| (query.flags.deleted || !row.is_deleted()) && is_within(row),
                    |out, row| world.write_response(out, row, query.flags),
                )
            }
            List::Themes => plan.page(&world.themes, |_| true, |out, row| world.write_theme(out, row)),
            List::Surveys => {
                let is_within = world.surveys_within(filtered_by, asked_ms);
                let has_status = |row: &SurveyRow| row.status().is_some_and(|status| query.statuses.contains(&status));
                plan.page(
                    &world.surveys,
                    |row| !faults.has_no_surveys && (query.statuses.is_empty() || has_status(row)) && is_within(row),
                    |out, row| world.write_survey(out, row),
                )
            }
        };
        let fault = match (is_empty_page, repeated_rows) {
            (true, _) => Some("empty_page"),
            (_, 1..) => Some("repeated_rows"),
            _ => None,
        };
        let reply = self.finish(page, query, faults, path);
        Reply { fault: reply.fault.or(fault), ..reply }.with_fault(self.spoil(path, faults))
    }

    /// Adds the page token or the end mark to the page, and makes the reply. An empty page may become a 404. A page
    /// with a broken record becomes a 500 (`ServerError`) or truncated JSON (`NoPage`); other broken records are
    /// already in the page.
    fn finish(&self, page: Page, query: &ListQuery, faults: &Faults, path: &str) -> Reply {
        match page.record_fault {
            Some(RecordFault::ServerError) => {
                return Reply::error(StatusCode::INTERNAL_SERVER_ERROR, "internal error").struck_by("broken_records");
            }
            Some(RecordFault::NoPage) => {
                return Reply::json(StatusCode::OK, br#"{"data":[{"#.to_vec()).struck_by("broken_records");
            }
            _ => {}
        }
        let mut body = page.body;
        let end_mark = query.end_mark(faults);
        let is_not_found = faults.not_found_when_empty || end_mark == EndMark::NotFound;
        if page.rows == 0 && page.next.is_none() && is_not_found {
            return Reply::error(StatusCode::NOT_FOUND, "not found").struck_by("not_found_when_empty");
        }
        let mut next = page.next.map(|token| token.encode(query.binding()));
        let is_looping = self.strikes("looping_cursor", path);
        if is_looping {
            let start = PageToken { position: Position::Start, empty_pages_sent: 0 }.encode(query.binding());
            next = Some(query.token.clone().unwrap_or(start));
        }
        match (&next, end_mark) {
            (Some(token), _) => {
                if faults.dead_tokens.after_ms > 0 || faults.dead_tokens.after_pages > 0 {
                    lock(&self.tokens).issue(token, query.token.as_deref(), self.clock.elapsed_us());
                }
                // Base64 needs no escaping.
                body.extend_from_slice(format!(r#","cursor":"{token}"}}"#).as_bytes());
            }
            (None, EndMark::Null) => body.extend_from_slice(br#","cursor":null}"#),
            (None, EndMark::Empty) => body.extend_from_slice(br#","cursor":""}"#),
            // With `NotFound` only an empty page has no token: every page with rows has one.
            (None, EndMark::Missing | EndMark::NotFound) => body.push(b'}'),
        }
        let reply = Reply { rows: page.rows as u32, ..Reply::json(StatusCode::OK, body) };
        if is_looping { reply.struck_by("looping_cursor") } else { reply }
    }

    /// Returns the fault that replaces the content of a reply or breaks its delivery; `None` if none strikes.
    pub(super) fn spoil(&self, path: &str, faults: &Faults) -> Option<ReplyFault> {
        let delivered = |name, delivery| Some(ReplyFault { name, content: None, delivery });
        let content = |name, content_type, text: &'static str| {
            Some(ReplyFault { name, content: Some((content_type, text)), delivery: Delivery::Whole })
        };
        if self.strikes("html", path) {
            content("html", "text/html", "<!doctype html><title>Sign in</title><p>Please sign in.")
        } else if self.strikes("no_data", path) {
            content("no_data", "application/json", r#"{"cursor":null}"#)
        } else if self.strikes("cut_body", path) {
            delivered("cut_body", Delivery::Cut { sent_share: faults.cut_body.sent_share })
        } else if self.strikes("hung_body", path) {
            let fault = &faults.hung_body;
            delivered("hung_body", Delivery::Hung { sent_share: fault.sent_share, silent_ms: fault.silent_ms })
        } else {
            None
        }
    }

    /// Returns the shuffled order of a window, from the cache if the rows have not changed.
    fn shuffled<R: Record>(&self, query: &ListQuery, created_ms: &Range<i64>, rows: &Timeline<R>) -> Arc<Vec<u32>> {
        let key = (query.list, created_ms.clone(), query.survey_id, rows.version());
        let mut cache = lock(&self.shuffles);
        if let Some((_, order)) = cache.orders.iter().find(|(cached, _)| *cached == key) {
            return order.clone();
        }
        let order = Arc::new(shuffled_order(&rows.span(created_ms.clone(), query.survey_id)));
        if cache.orders.len() >= SHUFFLES_MAX {
            cache.orders.remove(0);
        }
        cache.orders.push((key, order.clone()));
        order
    }
}

/// A fault that replaces the content of a reply, or breaks the delivery of its body.
pub(super) struct ReplyFault {
    name: &'static str,
    /// The content type and the text that replace the body of the reply; `None` keeps the body.
    content: Option<(&'static str, &'static str)>,
    delivery: Delivery,
}

impl Reply {
    /// Applies a fault to the reply; `None` returns the reply unchanged.
    pub(super) fn with_fault(mut self, fault: Option<ReplyFault>) -> Reply {
        let Some(fault) = fault else { return self };
        self.fault = Some(fault.name);
        self.delivery = fault.delivery;
        if let Some((content_type, text)) = fault.content {
            self.status = StatusCode::OK;
            self.content_type = Some(content_type);
            self.body = text.into();
            self.rows = 0;
        }
        self
    }
}

/// Everything that decides which rows a page has.
struct PagePlan<'a> {
    query: &'a ListQuery,
    token: Option<PageToken>,
    faults: &'a Faults,
    /// True if the fault `empty_page` strikes.
    is_empty_page: bool,
    /// Number of rows of the previous page to send again.
    repeated_rows: usize,
    service: &'a Service,
    path: &'a str,
}

impl PagePlan<'_> {
    /// Renders the page's JSON up to the closing bracket of `data`. The caller adds the page token and the closing
    /// brace. `is_visible` selects rows, and `write` appends the JSON of one row.
    fn page<R: Record>(
        &self,
        rows: &Timeline<R>,
        is_visible: impl Fn(&R) -> bool,
        write: impl Fn(&mut Vec<u8>, &R),
    ) -> Page {
        let created_ms = self.query.created_ms(self.faults);
        let order = self.faults.order;
        let shuffled = match order {
            Order::Shuffled => self.service.shuffled(self.query, &created_ms, rows),
            _ => Arc::default(),
        };
        let ordered = Ordered::new(rows.span(created_ms, self.query.survey_id), order, shuffled);
        let token = self.token.unwrap_or(PageToken { position: Position::Start, empty_pages_sent: 0 });
        if self.is_empty_page {
            let next = PageToken { empty_pages_sent: token.empty_pages_sent + 1, ..token };
            return Page { body: br#"{"data":[]"#.to_vec(), rows: 0, next: Some(next), record_fault: None };
        }
        let first = ordered.seek(token.position).saturating_sub(self.repeated_rows);
        let mut visible = (first..ordered.len()).filter_map(|index| ordered.get(index)).filter(|row| is_visible(row));
        let mut body =
            Vec::with_capacity(self.query.flags.record_bytes_hint() * self.query.page_rows.min(ordered.len()) + 64);
        body.extend_from_slice(br#"{"data":["#);
        let (mut count, mut last, mut record_fault) = (0, None, None);
        let broken = &self.faults.broken_records;
        for row in visible.by_ref().take(self.query.page_rows) {
            if count > 0 {
                body.push(b',');
            }
            let begin = body.len();
            write(&mut body, row);
            if broken.created_ms.contains(&row.created_ms()) && self.path.starts_with(&broken.path) {
                record_fault = Some(broken.fault);
                broken.fault.strike(&mut body, begin);
            }
            count += 1;
            last = Some((row.created_ms(), row.serial()));
        }
        body.push(b']');
        let last_page_has_token =
            self.faults.trailing_empty_page || self.query.end_mark(self.faults) == EndMark::NotFound;
        let has_more = visible.next().is_some() || (last_page_has_token && count > 0);
        let next = last.filter(|_| has_more).map(|(ms, serial)| PageToken::after(ms, serial, self.faults.ties));
        Page { body, rows: count, next, record_fault }
    }
}

impl RecordFault {
    /// Breaks the last record of the body, which begins at `begin`.
    fn strike(self, body: &mut Vec<u8>, begin: usize) {
        let member: &[u8] = match self {
            RecordFault::ServerError | RecordFault::NoPage => return,
            RecordFault::Truncated => return body.truncate(begin + (body.len() - begin) * 2 / 3),
            RecordFault::Nan => b",\"score\":NaN}",
            RecordFault::RawNewline => b",\"note\":\"two\nlines\"}",
            RecordFault::ControlCharacter => b",\"note\":\"a \x07 bell\"}",
            RecordFault::BadUtf8 => b",\"note\":\"caf\xe9\"}",
        };
        body.pop();
        body.extend_from_slice(member);
    }
}
