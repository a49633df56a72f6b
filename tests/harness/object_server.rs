//! A server of objects in memory that speaks the part of S3's protocol which the program uses. It does not check
//! signatures.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::Response,
};
use chrono::{DateTime, Utc};
use tokio::runtime::Runtime;

/// Largest body of a request.
const BODY_MAX: usize = 256 << 20;
/// Number of objects in one answer to a list.
const LIST_MAX: usize = 1000;
/// Time until a delayed answer.
const MOMENT: Duration = Duration::from_millis(5);

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    tag: String,
    written: DateTime<Utc>,
}

/// What a request of a test meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// The request succeeds.
    Success,
    /// The server answers 503 and does nothing.
    Refusal,
    /// The request takes effect, and the answer is 500.
    LostAnswer,
    /// The server closes the connection and does nothing.
    Drop,
    /// The request takes effect, and the server closes the connection.
    DroppedAnswer,
    /// The request succeeds after a moment.
    Delay,
    /// The server answers 403 and does nothing: a client does not repeat the request.
    Denial,
    /// The server does nothing, and never answers.
    Silence,
}

type Plan = dyn Fn(usize, &str) -> Meets + Send + Sync;

#[derive(Default)]
struct Shared {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
    /// Method, key and query of each request.
    requests: Vec<String>,
    delay: Duration,
    plan: Option<Arc<Plan>>,
    keeps_versions: bool,
    ignores_conditions: bool,
    writes: u64,
}

/// A running server. Dropping it closes the connections. A test may start and drop it on a thread of a runtime.
pub struct ObjectServer {
    shared: Arc<Mutex<Shared>>,
    address: std::net::SocketAddr,
    /// `None` only while this value is dropped.
    runtime: Option<Runtime>,
}

/// All objects and unfinished writes at one time.
pub struct Snapshot {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl ObjectServer {
    pub fn start() -> ObjectServer {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Mutex<Shared>>::default();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router).await });
        ObjectServer { shared, address, runtime: Some(runtime) }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the variables that lead the program to this server.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "key-of-tests".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "s3cret-of-tests".to_owned()),
            ("AWS_REGION", "eu-central-1".to_owned()),
        ]
    }

    /// Returns the content of each object, by `bucket/key`.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        let shared = self.shared.lock().unwrap();
        shared.objects.iter().map(|(key, object)| (key.clone(), object.bytes.clone())).collect()
    }

    /// Removes an object; returns whether there was one.
    pub fn remove(&self, key: &str) -> bool {
        self.shared.lock().unwrap().objects.remove(key).is_some()
    }

    pub fn snapshot(&self) -> Snapshot {
        let shared = self.shared.lock().unwrap();
        Snapshot { objects: shared.objects.clone(), uploads: shared.uploads.clone() }
    }

    /// Makes the objects those of the snapshot, with their versions.
    pub fn restore(&self, snapshot: Snapshot) {
        let mut shared = self.shared.lock().unwrap();
        (shared.objects, shared.uploads) = (snapshot.objects, snapshot.uploads);
    }

    /// Replaces the text of an object, if there is one, as if it had been written that long ago.
    pub fn edit(&self, key: &str, edit: impl FnOnce(&str) -> (String, Duration)) {
        let mut shared = self.shared.lock().unwrap();
        let Some(object) = shared.objects.get(key) else { return };
        let (text, ago) = edit(std::str::from_utf8(&object.bytes).unwrap());
        drop(shared.write(key, text.into()));
        shared.objects.get_mut(key).unwrap().written -= ago;
    }

    /// Returns the requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().unwrap().requests)
    }

    /// Returns the number of requests since the last [`ObjectServer::take_requests`].
    pub fn requests(&self) -> usize {
        self.shared.lock().unwrap().requests.len()
    }

    /// Makes these the only objects.
    pub fn replace_all(&self, objects: &BTreeMap<String, Bytes>) {
        let mut shared = self.shared.lock().unwrap();
        shared.objects.clear();
        for (key, bytes) in objects {
            drop(shared.write(key, bytes.clone()));
        }
    }

    /// Number of writes in parts that are neither complete nor aborted.
    pub fn uploads(&self) -> usize {
        self.shared.lock().unwrap().uploads.len()
    }

    /// Sets what requests meet from now on, by their number since the last [`ObjectServer::take_requests`] and their
    /// text.
    pub fn meet(&self, plan: impl Fn(usize, &str) -> Meets + Send + Sync + 'static) {
        self.shared.lock().unwrap().plan = Some(Arc::new(plan));
    }

    pub fn set_delay(&self, delay: Duration) {
        self.shared.lock().unwrap().delay = delay;
    }

    pub fn keep_versions(&self) {
        self.shared.lock().unwrap().keeps_versions = true;
    }

    pub fn ignore_conditions(&self) {
        self.shared.lock().unwrap().ignores_conditions = true;
    }

    /// Writes the files of readers and of the archive below `bucket/prefix` to a folder, for readers of files.
    pub fn mirror(&self, below: &str, folder: &std::path::Path) {
        for (key, bytes) in self.objects() {
            let Some(name) = key.strip_prefix(below).and_then(|rest| rest.strip_prefix('/')) else { continue };
            if !name.ends_with(".parquet") && !name.ends_with(".pages") {
                continue;
            }
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
}

async fn answer(State(shared): State<Arc<Mutex<Shared>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_MAX).await else { return status(StatusCode::BAD_REQUEST, "Body") };
    let path = decoded(parts.uri.path().trim_start_matches('/'));
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let text = format!("{} {path}?{}", parts.method, parts.uri.query().unwrap_or_default());
    let (number, delay, plan) = {
        let mut shared = shared.lock().unwrap();
        shared.requests.push(text.clone());
        (shared.requests.len() - 1, shared.delay, shared.plan.clone())
    };
    // A plan may read the objects.
    let meets = plan.map_or(Meets::Success, |plan| plan(number, &text));
    tokio::time::sleep(delay).await;
    match meets {
        Meets::Refusal => return status(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
        Meets::Denial => return status(StatusCode::FORBIDDEN, "AccessDenied"),
        Meets::Silence => std::future::pending::<()>().await,
        Meets::Drop => close(),
        Meets::Delay => tokio::time::sleep(MOMENT).await,
        Meets::Success | Meets::LostAnswer | Meets::DroppedAnswer => {}
    }
    let answer = shared.lock().unwrap().answer(&parts.method, &path, &query, &parts.headers, body);
    match meets {
        Meets::LostAnswer => status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        Meets::DroppedAnswer => close(),
        _ => answer,
    }
}

/// Closes the connection without an answer: ends its task, and prints nothing.
fn close() -> ! {
    std::panic::resume_unwind(Box::new("the connection is closed"))
}

impl Shared {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: &BTreeMap<String, String>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Response {
        let upload = query.get("uploadId");
        match (method.as_str(), upload) {
            ("GET", _) if query.contains_key("list-type") => self.list(path, query),
            ("GET" | "HEAD", _) => self.read(method, path, headers),
            ("PUT", Some(upload)) => {
                let number = query["partNumber"].parse().unwrap();
                let Some(parts) = self.uploads.get_mut(upload) else {
                    return status(StatusCode::NOT_FOUND, "NoSuchUpload");
                };
                parts.insert(number, body);
                tagged(&format!("part-{number}"))
            }
            ("PUT", None) => match self.refusal(path, headers) {
                Some(refusal) => refusal,
                None => self.write(path, body),
            },
            ("POST", _) if query.contains_key("uploads") => {
                self.writes += 1;
                let id = format!("upload-{}", self.writes);
                self.uploads.insert(id.clone(), BTreeMap::new());
                xml(&format!(
                    "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>{path}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            ("POST", Some(upload)) => {
                let Some(parts) = self.uploads.remove(upload) else {
                    return status(StatusCode::NOT_FOUND, "NoSuchUpload");
                };
                let bytes: Vec<u8> = parts.into_values().flatten().collect();
                self.write(path, bytes.into());
                let tag = &self.objects[path].tag;
                xml(&format!(
                    "<CompleteMultipartUploadResult><Location>l</Location><Bucket>b</Bucket><Key>{path}</Key><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
                ))
            }
            ("POST", None) => self.remove_listed(path, &body),
            ("DELETE", Some(upload)) => {
                self.uploads.remove(upload);
                status(StatusCode::NO_CONTENT, "")
            }
            ("DELETE", None) => {
                self.objects.remove(path);
                status(StatusCode::NO_CONTENT, "")
            }
            _ => status(StatusCode::NOT_IMPLEMENTED, "NotImplemented"),
        }
    }

    fn refusal(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        if self.ignores_conditions {
            return None;
        }
        let found = self.objects.get(path).map(|object| object.tag.as_str());
        let wanted = headers.get(header::IF_MATCH).map(|tag| tag.to_str().unwrap());
        let refused =
            (headers.contains_key(header::IF_NONE_MATCH) && found.is_some()) || (wanted.is_some() && wanted != found);
        refused.then(|| status(StatusCode::PRECONDITION_FAILED, "PreconditionFailed"))
    }

    #[expect(clippy::disallowed_methods, reason = "a server has its own clock")]
    fn write(&mut self, path: &str, bytes: Bytes) -> Response {
        self.writes += 1;
        let tag = format!("\"{:032x}\"", self.writes);
        self.objects.insert(path.to_owned(), Object { bytes, tag: tag.clone(), written: Utc::now() });
        let mut answer = tagged(&tag);
        if self.keeps_versions {
            answer.headers_mut().insert("x-amz-version-id", format!("v{}", self.writes).parse().unwrap());
        }
        answer
    }

    fn read(&self, method: &Method, path: &str, headers: &HeaderMap) -> Response {
        let Some(object) = self.objects.get(path) else { return status(StatusCode::NOT_FOUND, "NoSuchKey") };
        if headers.get(header::IF_MATCH).is_some_and(|tag| tag != object.tag.as_str()) {
            return status(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
        }
        let size = object.bytes.len();
        let range =
            headers.get(header::RANGE).and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-'));
        let range = range.map(|(start, end)| match (start.parse::<usize>(), end.parse::<usize>()) {
            (Ok(start), Ok(end)) => start..(end + 1).min(size),
            (Ok(start), Err(_)) => start..size,
            (Err(_), Ok(last)) => size.saturating_sub(last)..size,
            _ => 0..size,
        });
        let mut answer = Response::builder()
            .header(header::ETAG, &object.tag)
            .header(header::LAST_MODIFIED, object.written.format("%a, %d %b %Y %H:%M:%S GMT").to_string());
        let bytes = match range {
            Some(range) => {
                let shown = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
                answer = answer.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, shown);
                object.bytes.slice(range)
            }
            None => object.bytes.clone(),
        };
        answer = answer.header(header::CONTENT_LENGTH, bytes.len());
        answer.body(if method == Method::HEAD { Body::empty() } else { Body::from(bytes) }).unwrap()
    }

    fn list(&self, bucket: &str, query: &BTreeMap<String, String>) -> Response {
        let bucket = format!("{}/", bucket.trim_end_matches('/'));
        let prefix = query.get("prefix").map_or("", String::as_str);
        let after = query.get("continuation-token").or(query.get("start-after")).map_or("", String::as_str);
        let keys = self.objects.iter().filter_map(|(key, object)| Some((key.strip_prefix(&bucket)?, object)));
        let found: Vec<_> =
            keys.filter(|(key, _)| key.starts_with(prefix) && *key > after).take(LIST_MAX + 1).collect();
        let mut text = "<ListBucketResult>".to_owned();
        for (key, Object { bytes, tag, written }) in found.iter().take(LIST_MAX) {
            let written = written.format("%Y-%m-%dT%H:%M:%S%.3fZ");
            text.push_str(&format!(
                "<Contents><Key>{key}</Key><LastModified>{written}</LastModified><ETag>{tag}</ETag><Size>{}</Size></Contents>",
                bytes.len()
            ));
        }
        if found.len() > LIST_MAX {
            let last = found[LIST_MAX - 1].0;
            text.push_str(&format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>"
            ));
        }
        xml(&(text + "</ListBucketResult>"))
    }

    fn remove_listed(&mut self, bucket: &str, body: &[u8]) -> Response {
        let body = std::str::from_utf8(body).unwrap();
        let mut text = "<DeleteResult>".to_owned();
        for key in body.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>")).map(|(key, _)| key) {
            self.objects.remove(&format!("{}/{key}", bucket.trim_end_matches('/')));
            text.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
        }
        xml(&(text + "</DeleteResult>"))
    }
}

/// Returns a path of a URL without its escapes.
fn decoded(path: &str) -> String {
    // These stand for themselves in a path, and not in a form.
    let path = path.replace('+', "%2B").replace('=', "%3D").replace('&', "%26");
    url::form_urlencoded::parse(path.as_bytes()).map(|(name, value)| format!("{name}{value}")).collect()
}

fn tagged(tag: &str) -> Response {
    Response::builder().header(header::ETAG, tag).body(Body::empty()).unwrap()
}

fn xml(text: &str) -> Response {
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{text}");
    Response::builder().header(header::CONTENT_TYPE, "application/xml").body(Body::from(text)).unwrap()
}

fn status(status: StatusCode, code: &str) -> Response {
    let text = if code.is_empty() {
        String::new()
    } else {
        format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>")
    };
    Response::builder().status(status).body(Body::from(text)).unwrap()
}
