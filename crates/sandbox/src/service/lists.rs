//! The list calls: a window, an order, a position, a page.

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

/// Windows whose shuffled order is kept.
const SHUFFLES_MAX: usize = 64;

/// A window of a list in one version.
type ShuffleKey = (List, Range<i64>, Option<i64>, u64);

/// Orders of the windows asked for last.
#[derive(Debug, Default)]
pub(crate) struct ShuffleCache {
    held: Vec<(ShuffleKey, Arc<Vec<u32>>)>,
}

/// A page before it is JSON text.
struct Page {
    body: Vec<u8>,
    rows: usize,
    next: Option<PageToken>,
    /// What is wrong with a record on it.
    record_fault: Option<RecordFault>,
}

impl Service {
    pub(super) async fn list(&self, list: List, uri: &Uri, faults: &Faults) -> Reply {
        let query = match ListQuery::parse(list, uri, faults) {
            Ok(query) => query,
            Err(message) => return Reply::bad_request(&message),
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

    /// The token of the request, if it has one and that is alive.
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

    fn dispatch(&self, query: &ListQuery, token: Option<PageToken>, faults: &Faults, path: &str) -> Reply {
        let is_empty_page = self.strikes("empty_page", path);
        let repeated =
            if token.is_some() && self.strikes("repeated_rows", path) { faults.repeated_rows.rows } else { 0 };
        let plan = PagePlan { query, token, faults, is_empty_page, repeated, service: self, path };
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
                    |row| (query.statuses.is_empty() || has_status(row)) && is_within(row),
                    |out, row| world.write_survey(out, row),
                )
            }
        };
        let fault = match (is_empty_page, repeated) {
            (true, _) => Some("empty_page"),
            (_, 1..) => Some("repeated_rows"),
            _ => None,
        };
        let reply = self.finish(page, query, faults, path);
        Reply { fault: reply.fault.or(fault), ..reply }.or_fault_of(self.spoil(path, faults))
    }

    /// Adds the end mark or the token, and makes the reply.
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
            let start = PageToken { position: Position::Start, empties: 0 }.encode(query.binding());
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
            // Of such a list, an empty page alone has no token.
            (None, EndMark::Missing | EndMark::NotFound) => body.push(b'}'),
        }
        let reply = Reply { rows: page.rows as u32, ..Reply::json(StatusCode::OK, body) };
        if is_looping { reply.struck_by("looping_cursor") } else { reply }
    }

    /// What becomes of a good page on its way, if a fault strikes.
    pub(super) fn spoil(&self, path: &str, faults: &Faults) -> Option<Spoilt> {
        let delivered = |name, delivery| Some(Spoilt { name, content: None, delivery });
        let content = |name, content_type, text: &'static str| {
            Some(Spoilt { name, content: Some((content_type, text)), delivery: Delivery::Whole })
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

    fn shuffled<R: Record>(&self, query: &ListQuery, created_ms: &Range<i64>, rows: &Timeline<R>) -> Arc<Vec<u32>> {
        let key = (query.list, created_ms.clone(), query.survey_id, rows.version());
        let mut cache = lock(&self.shuffles);
        if let Some((_, order)) = cache.held.iter().find(|(held, _)| *held == key) {
            return order.clone();
        }
        let order = Arc::new(shuffled_order(&rows.span(created_ms.clone(), query.survey_id)));
        if cache.held.len() >= SHUFFLES_MAX {
            cache.held.remove(0);
        }
        cache.held.push((key, order.clone()));
        order
    }
}

/// A page that was spoilt on its way.
pub(super) struct Spoilt {
    name: &'static str,
    content: Option<(&'static str, &'static str)>,
    delivery: Delivery,
}

impl Reply {
    pub(super) fn or_fault_of(mut self, spoilt: Option<Spoilt>) -> Reply {
        let Some(spoilt) = spoilt else { return self };
        self.fault = Some(spoilt.name);
        self.delivery = spoilt.delivery;
        if let Some((content_type, text)) = spoilt.content {
            self.status = StatusCode::OK;
            self.content_type = Some(content_type);
            self.body = text.into();
            self.rows = 0;
        }
        self
    }
}

/// All that decides which rows a page has.
struct PagePlan<'a> {
    query: &'a ListQuery,
    token: Option<PageToken>,
    faults: &'a Faults,
    is_empty_page: bool,
    repeated: usize,
    service: &'a Service,
    path: &'a str,
}

impl PagePlan<'_> {
    /// Renders the page up to the end of `data`.
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
        let token = self.token.unwrap_or(PageToken { position: Position::Start, empties: 0 });
        let first = ordered.seek(token.position).saturating_sub(self.repeated);
        let mut visible = (first..ordered.len()).filter_map(|at| ordered.get(at)).filter(|row| is_visible(row));
        if self.is_empty_page {
            let next = PageToken { empties: token.empties + 1, ..token };
            return Page { body: br#"{"data":[]"#.to_vec(), rows: 0, next: Some(next), record_fault: None };
        }
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
        let is_open = self.faults.trailing_empty_page || self.query.end_mark(self.faults) == EndMark::NotFound;
        let has_more = visible.next().is_some() || (is_open && count > 0);
        let next = last.filter(|_| has_more).map(|(ms, serial)| PageToken::after(ms, serial, self.faults.ties));
        Page { body, rows: count, next, record_fault }
    }
}

impl RecordFault {
    /// Breaks the record that begins here, and is the last of the body.
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
