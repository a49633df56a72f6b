//! What `serve` shows people of itself at `/`: whether it is healthy and why, how far the run under way is, which days
//! are complete, the last runs. Read-only. The page is whole without a script; with one it follows `/events`.
//! No person and no secret is in it.
//!
//! In reading order: [`access`] (who may see it), [`stored`] (what the checkpoints hold), [`facts`] (everything that is
//! shown, as values), [`view`] with [`calendar`] and [`run_table`] (the same as markup), [`shown`] (made once for all
//! who look), [`events`] (what changed since).

mod access;
mod calendar;
mod events;
mod facts;
mod moment;
mod run_table;
mod shown;
mod stored;
mod view;

use std::{sync::Arc, time::Duration};

use axum::{
    Form, Json, Router,
    extract::{DefaultBodyLimit, FromRequest as _, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use tokio::time::timeout;

use access::Refusal;

pub(super) use access::Access;
pub(super) use shown::StatusPage;

/// What a form may send, and how long it may take.
const FORM_BYTES_MAX: usize = 4 * 1024;
const FORM_WAIT: Duration = Duration::from_secs(10);

/// Nothing is loaded but the page's own style sheet and script.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The same for the page that asks for the token: it has a form, and no script.
const LOGIN_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The paths of the page.
pub(super) fn router(page: StatusPage) -> Router {
    let page = Arc::new(page);
    let guarded = Router::new()
        .route("/", get(show))
        .route("/events", get(events::events))
        .route("/api/status", get(as_json))
        .route_layer(from_fn_with_state(Arc::clone(&page), guard));
    let open = Router::new()
        .route("/login", post(sign_in).layer(DefaultBodyLimit::max(FORM_BYTES_MAX)))
        .route("/status.css", get(style))
        .route("/status.js", get(script));
    guarded.merge(open).layer(from_fn(with_headers)).with_state(page)
}

/// The page.
async fn show(State(page): State<Arc<StatusPage>>) -> Response {
    let shown = page.shown().await;
    Html(view::page(&shown.facts, &shown.parts).into_string()).into_response()
}

/// The same as JSON.
async fn as_json(State(page): State<Arc<StatusPage>>) -> Response {
    Json(&*page.shown().await.facts).into_response()
}

async fn style() -> Response {
    let css = format!("{}{STYLE}", crate::report::BASE_STYLE);
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], css).into_response()
}

async fn script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT).into_response()
}

/// Lets those through who may see the page.
async fn guard(State(page): State<Arc<StatusPage>>, request: Request, next: Next) -> Response {
    // There is nothing but GET here: the route itself refuses the others.
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match page.access.check(request.headers()) {
        _ if !is_read => next.run(request).await,
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(refusal, request.uri().path() == "/"),
    }
}

/// What the form of the login page sends.
#[derive(Deserialize)]
struct LoginForm {
    token: String,
}

/// Gives a browser that has the token a cookie, since it cannot send a header.
async fn sign_in(State(page): State<Arc<StatusPage>>, request: Request) -> Response {
    let is_secure = is_by_tls(request.headers());
    let Ok(Ok(Form(form))) = timeout(FORM_WAIT, Form::<LoginForm>::from_request(request, &())).await else {
        return (StatusCode::BAD_REQUEST, "the form has one field: token\n").into_response();
    };
    match page.access.sign_in(&form.token, is_secure) {
        // Relative: a proxy may have put the page below a path of its own.
        Ok(cookie) => {
            (StatusCode::SEE_OTHER, [(header::LOCATION, "./".to_owned()), (header::SET_COOKIE, cookie)]).into_response()
        }
        Err(refusal) => refused(refusal, true),
    }
}

/// Whether a proxy says that the browser reached it by TLS.
fn is_by_tls(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}

/// The answer to who may not see the page. `is_page`: a person looks at it.
fn refused(refusal: Refusal, is_page: bool) -> Response {
    let text = view::refusal_text(refusal);
    let mut response = match (refusal, is_page) {
        (Refusal::OtherHost, _) => (StatusCode::FORBIDDEN, format!("{text}\n")).into_response(),
        (_, true) => {
            let policy = [(header::CONTENT_SECURITY_POLICY, LOGIN_POLICY)];
            (StatusCode::UNAUTHORIZED, policy, Html(view::login(&text).into_string())).into_response()
        }
        (_, false) => (StatusCode::UNAUTHORIZED, format!("{text}\n")).into_response(),
    };
    match refusal {
        Refusal::OtherHost => {}
        Refusal::NoToken => {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Refusal::TooManyGuesses { secs } => {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert(header::RETRY_AFTER, secs.into());
        }
    }
    response
}

/// Adds what keeps a browser from doing anything else with the page.
async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
