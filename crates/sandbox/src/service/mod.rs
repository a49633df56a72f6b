//! The service: answers one request with one reply.

mod delivery;
mod lists;
mod media;
mod page_token;
mod purge;
mod query;
mod rate_limit;
mod reply;
mod strikes;
mod users;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::Response,
};
use tokio_util::sync::CancellationToken;

pub use self::users::UpsertedUser;
use self::{
    lists::ShuffleCache, page_token::IssuedTokens, purge::PendingPurge, rate_limit::Bucket, reply::Reply,
    strikes::Strikes, users::UserTable,
};
use super::{
    clock::Clock,
    faults::{Auth, Faults, SurveysAt},
    request_log::{RequestLog, Visit},
    settings::Settings,
    world::World,
};

/// Maximum bytes of a request's body.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// The lists that the service exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum List {
    Responses,
    Surveys,
    Themes,
}

/// The state of the service, which all requests share.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) clock: Clock,
    pub(crate) log: RequestLog,
    pub(crate) stop: CancellationToken,
    api_key: Mutex<String>,
    world: RwLock<World>,
    faults: Mutex<Arc<Faults>>,
    strikes: Mutex<Strikes>,
    bucket: Mutex<Bucket>,
    tokens: Mutex<IssuedTokens>,
    shuffles: Mutex<ShuffleCache>,
    users: Mutex<UserTable>,
    purges: Mutex<Vec<PendingPurge>>,
}

/// Locks a mutex, even if another thread panicked while it had the lock. Each change of the state is small, so the
/// state stays valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    pub(crate) fn new(settings: Settings, world: World) -> Self {
        Self {
            clock: Clock::new(settings.now_ms, settings.frozen_clock),
            log: RequestLog::new(settings.log_entries_max),
            stop: CancellationToken::new(),
            api_key: Mutex::new(settings.api_key),
            world: RwLock::new(world),
            faults: Mutex::new(Arc::new(settings.faults)),
            strikes: Mutex::default(),
            bucket: Mutex::default(),
            tokens: Mutex::default(),
            shuffles: Mutex::default(),
            users: Mutex::default(),
            purges: Mutex::default(),
        }
    }

    pub(crate) fn world(&self) -> RwLockReadGuard<'_, World> {
        self.world.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn world_mut(&self) -> RwLockWriteGuard<'_, World> {
        self.world.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> Arc<Faults> {
        lock(&self.faults).clone()
    }

    /// Replaces the faults. A schedule that differs from the old one counts from the beginning. A changed rate limit
    /// starts with a full bucket.
    pub(crate) fn set_faults(&self, faults: Faults) {
        let mut current = lock(&self.faults);
        lock(&self.strikes).forget_changed(&current, &faults);
        lock(&self.bucket).reset_if_changed(&current.rate_limit, &faults.rate_limit);
        *current = Arc::new(faults);
    }

    /// Returns true if the request has the key, in a form that is accepted for the path.
    fn is_authorised(&self, headers: &HeaderMap, path: &str, auth: Auth) -> bool {
        let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let Some((form, key)) = value.split_once(' ') else { return false };
        let is_user_path = path.starts_with("/v2/users");
        let is_form_right = match (form.to_ascii_lowercase().as_str(), auth) {
            ("bearer" | "api-key", Auth::Both) => true,
            ("bearer", Auth::Strict) => !is_user_path,
            ("api-key", Auth::Strict) => is_user_path,
            _ => false,
        };
        is_form_right && key.trim() == *lock(&self.api_key)
    }

    /// Accepts this key instead of the current one.
    pub(crate) fn set_api_key(&self, key: &str) {
        *lock(&self.api_key) = key.to_owned();
    }

    /// Makes the reply to a request. Applies in this order: latency, due purges, authorization, rate limit, scheduled
    /// faults, and the contract. Requests for recordings skip authorization and rate limit.
    async fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: Body) -> Reply {
        let faults = self.faults();
        let wait_ms = lock(&self.strikes).latency_ms(&faults);
        self.pause(wait_ms).await;
        self.run_due_purges();
        if let Some(upload) = media::upload_at(uri.path()).filter(|_| faults.media.is_served) {
            let struck = self.strike(&faults, uri.path());
            let reply = struck.unwrap_or_else(|| media::answer(upload, method, uri, headers, &faults.media));
            return reply.with_fault(self.spoil(uri.path(), &faults));
        }
        if !self.is_authorised(headers, uri.path(), faults.auth) {
            return Reply::empty(StatusCode::FORBIDDEN);
        }
        if let Some(refusal) = self.refuse(&faults, uri.path()) {
            return refusal;
        }
        let Ok(body) = to_bytes(body, REQUEST_BYTES_MAX).await else {
            return Reply::error(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
        };
        self.route(method, uri, body, &faults).await
    }

    /// Answers a request by its path and method.
    async fn route(&self, method: &Method, uri: &Uri, body: Bytes, faults: &Faults) -> Reply {
        let list = match uri.path() {
            "/v1/responses" => Some(List::Responses),
            "/v1/surveys" if faults.surveys_at != SurveysAt::Studies => Some(List::Surveys),
            "/v1/studies" if faults.surveys_at != SurveysAt::Surveys => Some(List::Surveys),
            "/v1/themes" => Some(List::Themes),
            _ => None,
        };
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        match (list, uri.path()) {
            (Some(list), _) if is_read => self.list(list, uri, faults).await,
            (Some(_), _) => Reply::not_allowed("GET, HEAD"),
            (None, "/v2/users") if method == Method::POST => self.upsert_user(&body, faults),
            (None, "/v2/users") => Reply::not_allowed("POST"),
            (None, "/v2/purge/visitors") if method == Method::POST => self.request_purge(&body, faults),
            (None, "/v2/purge/visitors") => Reply::not_allowed("POST"),
            (None, path) => match path.strip_prefix("/v2/users/").filter(|id| !id.is_empty()) {
                Some(id) if is_read => self.read_user(id, faults),
                Some(_) => Reply::not_allowed("GET, HEAD"),
                None => Reply::error(StatusCode::NOT_FOUND, "no such path"),
            },
        }
    }

    /// Waits for `wait_ms` of real time, or until the sandbox stops.
    async fn pause(&self, wait_ms: u64) {
        if wait_ms > 0 {
            let _ = tokio::time::timeout(Duration::from_millis(wait_ms), self.stop.cancelled()).await;
        }
    }
}

/// Answers and logs a request to the service. If recordings are served, the links in responses lead to the sandbox.
pub(crate) async fn handle(State(service): State<Arc<Service>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let seq = service.log.arrive(parts.method.as_str(), target, service.clock.elapsed_us());
    // Created before the reply, so that the log entry is completed even if the client hangs up meanwhile.
    let visit = Visit { service: service.clone(), seq };
    let mut reply = service.answer(&parts.method, &parts.uri, &parts.headers, body).await;
    let media = &service.faults().media;
    if media.is_served && media.host != media::HOST && parts.uri.path() == "/v1/responses" {
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        reply.body = media::with_links(&reply.body, media, host.or(parts.uri.host()).unwrap_or_default());
    }
    delivery::respond(reply, visit, &parts.method, &parts.headers)
}
