//! The status page of `serve` at `/`: the health, the progress of the current run, the complete days, the last runs.
//! The page is read-only, works without a script, and shows no person and no secret. The script follows `/events`.
//!
//! In reading order: [`access`] (who may see the page), [`page_data`] (the values), [`view`] and [`tables`] (the
//! markup), [`live`] (renders once for all readers, and sends changes).

mod access;
mod live;
mod page_data;
mod tables;
mod trust;
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

use access::AccessDenied;

pub(super) use access::Access;
pub(super) use live::StatusPage;

/// The largest login form, in bytes.
const FORM_BYTES_MAX: usize = 4 * 1024;
// The longest time for the login form to arrive.
const FORM_WAIT: Duration = Duration::from_secs(10);

/// Content security policy: the page loads only its own style sheet and script.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Content security policy of the login page, which has a form and no script.
const LOGIN_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Returns the routes of the page.
pub(super) fn router(page: StatusPage) -> Router {
    let page = Arc::new(page);
    let guarded = Router::new()
        .route("/", get(show))
        .route("/events", get(live::events))
        .route("/api/status", get(as_json))
        .route_layer(from_fn_with_state(Arc::clone(&page), guard));
    let open = Router::new()
        .route("/login", post(sign_in).layer(DefaultBodyLimit::max(FORM_BYTES_MAX)))
        .route("/status.css", get(style))
        .route("/status.js", get(script));
    guarded.merge(open).layer(from_fn(with_headers)).with_state(page)
}

async fn show(State(page): State<Arc<StatusPage>>) -> Response {
    let page = page.rendered().await;
    Html(view::page(&page.data, &page.parts).into_string()).into_response()
}

async fn as_json(State(page): State<Arc<StatusPage>>) -> Response {
    Json(&*page.rendered().await.data).into_response()
}

async fn style() -> Response {
    let css = format!("{}{STYLE}", crate::report::BASE_STYLE);
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], css).into_response()
}

async fn script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT).into_response()
}

/// Passes on requests that may see the page, and refuses all others.
async fn guard(State(page): State<Arc<StatusPage>>, request: Request, next: Next) -> Response {
    // The route refuses every method but GET and HEAD.
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let checked = page.access.check(request.headers()).await;
    match checked {
        Err(reason) if is_read => refused(reason, request.uri().path() == "/"),
        _ => next.run(request).await,
    }
}

/// The fields of the login form.
#[derive(Deserialize)]
struct LoginForm {
    token: String,
}

/// Answers a correct token of the login form with a cookie and a redirect to the page. The cookie is needed because a
/// browser cannot send the token in a header.
async fn sign_in(State(page): State<Arc<StatusPage>>, request: Request) -> Response {
    let is_secure = is_by_tls(request.headers());
    let Ok(Ok(Form(form))) = timeout(FORM_WAIT, Form::<LoginForm>::from_request(request, &())).await else {
        return (StatusCode::BAD_REQUEST, "the form has one field: token\n").into_response();
    };
    match page.access.sign_in(&form.token, is_secure).await {
        // A relative path, because a proxy may serve the page below another path.
        Ok(cookie) => {
            (StatusCode::SEE_OTHER, [(header::LOCATION, "./".to_owned()), (header::SET_COOKIE, cookie)]).into_response()
        }
        Err(reason) => refused(reason, true),
    }
}

/// Returns true if a proxy says that the browser uses TLS.
fn is_by_tls(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}

/// Answers a request that may not see the page. If `is_page`, the answer is the login page, otherwise a text. For
/// [`AccessDenied::OtherHost`] it is always a text, because there is no token.
fn refused(reason: AccessDenied, is_page: bool) -> Response {
    let text = view::denial_text(reason);
    let mut response = match (reason, is_page) {
        (AccessDenied::OtherHost, _) => (StatusCode::FORBIDDEN, format!("{text}\n")).into_response(),
        (_, true) => {
            let policy = [(header::CONTENT_SECURITY_POLICY, LOGIN_POLICY)];
            (StatusCode::UNAUTHORIZED, policy, Html(view::login(&text).into_string())).into_response()
        }
        (_, false) => (StatusCode::UNAUTHORIZED, format!("{text}\n")).into_response(),
    };
    match reason {
        AccessDenied::OtherHost => {}
        AccessDenied::NoToken => {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        AccessDenied::TooManyGuesses { secs } => {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert(header::RETRY_AFTER, secs.into());
        }
    }
    response
}

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
