//! The list calls: reads the query and the page token, renders a page, and applies the faults of lists.

use std::{ops::Range, sync::Arc};

use axum::http::{StatusCode, Uri};

use super::{
    super::{
        faults::{EndMark, Faults, Order, RecordFault},
        world::{ListName, Ordered, Position, Row, World, shuffled_order},
    },
    page_token::PageToken,
    query::ListQuery,
    reply::Reply,
    state::{Service, lock},
};

/// Maximum windows whose shuffled order is cached.
const SHUFFLES_MAX: usize = 64;

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
    pub(super) async fn list(&self, list: ListName, uri: &Uri, faults: &Faults) -> Reply {
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
            if faults.slow_pages.status > 0 {
                return Reply::fault("slow_pages", faults.slow_pages.status, "the request took too long");
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
            let refusal = Reply::fault("dead_tokens", faults.dead_tokens.status, "'cursor' has expired");
            return Err(Box::new(refusal));
        }
        let token = PageToken::decode(text, query.binding());
        token.map(Some).map_err(|message| Box::new(Reply::bad_request(message)))
    }

    /// Renders the page that the query and the token ask for, and makes the reply. Applies the faults that strike.
    fn dispatch(&self, query: &ListQuery, token: Option<PageToken>, faults: &Faults, path: &str) -> Reply {
        // `every` may select each request of one of several parallel walks. That walk must go on all the same.
        let is_after_empty = token.is_some_and(|token| token.empty_pages_sent > 0);
        let is_spared = is_after_empty && faults.empty_page.when.every > 0;
        let is_empty_page = !is_spared && self.strikes("empty_page", path);
        let repeated_rows =
            if token.is_some() && self.strikes("repeated_rows", path) { faults.repeated_rows.rows } else { 0 };
        let plan = PagePlan { query, token, faults, is_empty_page, repeated_rows, service: self, path };
        let page = plan.page(&self.world());
        let fault = match (is_empty_page, repeated_rows) {
            (true, _) => Some("empty_page"),
            (_, 1..) => Some("repeated_rows"),
            _ => None,
        };
        let reply = self.finish(page, query, faults, path);
        self.spoil(Reply { fault: reply.fault.or(fault), ..reply }, path, faults)
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

    /// Returns the shuffled order of a window, from the cache if the rows have not changed.
    fn shuffled(&self, query: &ListQuery, created_ms: &Range<i64>, world: &World) -> Arc<Vec<u32>> {
        let rows = world.rows(query.list);
        let key = (query.list, created_ms.clone(), query.survey_id, rows.version);
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
    /// brace.
    fn page(&self, world: &World) -> Page {
        let query = self.query;
        let created_ms = query.created_ms(self.faults);
        let order = self.faults.order;
        let shuffled = match order {
            Order::Shuffled => self.service.shuffled(query, &created_ms, world),
            _ => Arc::default(),
        };
        let ordered = Ordered::new(world.rows(query.list).span(created_ms, query.survey_id), order, shuffled);
        let token = self.token.unwrap_or(PageToken { position: Position::Start, empty_pages_sent: 0 });
        if self.is_empty_page {
            let next = PageToken { empty_pages_sent: token.empty_pages_sent + 1, ..token };
            return Page { body: br#"{"data":[]"#.to_vec(), rows: 0, next: Some(next), record_fault: None };
        }
        let first = ordered.seek(token.position).saturating_sub(self.repeated_rows);
        let is_within = world.is_within(query.list, query.filtered_by(self.faults), query.asked_ms(self.faults));
        let is_visible = |row: &&Row| self.is_listed(world, row) && is_within(row);
        let mut visible = (first..ordered.len()).filter_map(|index| ordered.get(index)).filter(is_visible);
        let mut body = Vec::with_capacity(query.flags.record_bytes_hint() * query.page_rows.min(ordered.len()) + 64);
        body.extend_from_slice(br#"{"data":["#);
        let (mut count, mut last, mut record_fault) = (0, None, None);
        let broken = &self.faults.broken_records;
        for row in visible.by_ref().take(query.page_rows) {
            if count > 0 {
                body.push(b',');
            }
            let begin = body.len();
            world.write(query.list, &mut body, row, query.flags);
            if broken.created_ms.contains(&row.created_ms) && self.path.starts_with(&broken.path) {
                record_fault = Some(broken.fault);
                broken.fault.strike(&mut body, begin);
            }
            count += 1;
            last = Some((row.created_ms, row.serial));
        }
        body.push(b']');
        let last_page_has_token = self.faults.trailing_empty_page || query.end_mark(self.faults) == EndMark::NotFound;
        let has_more = visible.next().is_some() || (last_page_has_token && count > 0);
        let next = last.filter(|_| has_more).map(|(ms, serial)| PageToken::after(ms, serial, self.faults.ties));
        Page { body, rows: count, next, record_fault }
    }

    /// Returns true if the request lists such rows, whatever their times.
    fn is_listed(&self, world: &World, row: &Row) -> bool {
        let statuses = &self.query.statuses;
        match self.query.list {
            ListName::Responses => self.query.flags.deleted || row.deleted_ms.is_none(),
            ListName::Themes => true,
            ListName::Surveys => {
                let is_asked = || world.status_of(row).is_some_and(|status| statuses.contains(&status));
                !self.faults.has_no_surveys && (statuses.is_empty() || is_asked())
            }
        }
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
