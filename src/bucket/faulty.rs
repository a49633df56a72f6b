//! A store of objects in memory that counts its requests, and fails those that a test chooses.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures::{StreamExt as _, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    memory::InMemory,
    multipart::{MultipartStore, PartId},
    path::Path,
};

use super::{Bucket, BucketAddress};
use crate::model::Failpoints;

/// What a request of a test meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request succeeds.
    None,
    /// The request has no effect, and fails.
    Refused,
    /// The request takes effect, and its answer is lost.
    AnswerLost,
}

/// Decides what a request meets. The text has the kind of the request and the key: `put a/b`.
type Plan = dyn Fn(&str) -> Fault + Send + Sync;

/// The objects of a test. Clones share them.
#[derive(Clone)]
pub struct Objects {
    objects: Arc<InMemory>,
    plan: Arc<Mutex<Arc<Plan>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Default for Objects {
    /// Creates a store without objects and faults.
    fn default() -> Self {
        let plan: Arc<Plan> = Arc::new(|_| Fault::None);
        Self { objects: Arc::default(), plan: Arc::new(Mutex::new(plan)), requests: Arc::default() }
    }
}

impl Objects {
    /// Returns access to the folder `w` of the store.
    pub fn bucket(&self) -> Bucket {
        let address: BucketAddress = "s3://test/w".parse().unwrap();
        Bucket::over(Arc::new(self.clone()), address, Failpoints::default()).unwrap()
    }

    /// Sets what requests meet from now on.
    pub fn fail(&self, plan: impl Fn(&str) -> Fault + Send + Sync + 'static) {
        *self.plan.lock().unwrap() = Arc::new(plan);
    }

    /// Returns the requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    fn begin(&self, kind: &str, key: &Path) -> Result<Fault> {
        let request = format!("{kind} {key}");
        let plan = Arc::clone(&*self.plan.lock().unwrap());
        self.requests.lock().unwrap().push(request.clone());
        match plan(&request) {
            Fault::Refused => Err(failure(&request)),
            fault => Ok(fault),
        }
    }

    async fn change<T>(&self, kind: &str, key: &Path, change: impl Future<Output = Result<T>>) -> Result<T> {
        let fault = self.begin(kind, key)?;
        let done = change.await;
        if fault == Fault::AnswerLost { Err(failure(kind)) } else { done }
    }
}

fn failure(request: &str) -> Error {
    Error::Generic { store: "test", source: format!("no answer to {request}").into() }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Objects")
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Objects")
    }
}

#[async_trait]
impl ObjectStore for Objects {
    async fn put_opts(&self, key: &Path, body: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.change("put", key, self.objects.put_opts(key, body, options)).await
    }

    async fn put_multipart_opts(&self, key: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(key, options).await
    }

    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.change("get", key, self.objects.get_opts(key, options)).await
    }

    fn delete_stream(&self, keys: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let shared = self.clone();
        let remove = move |key: Result<Path>| {
            let shared = shared.clone();
            async move {
                let key = key?;
                let one = futures::stream::iter([Ok(key.clone())]).boxed();
                let removed = async { shared.objects.delete_stream(one).collect::<Vec<_>>().await.remove(0) };
                shared.change("delete", &key, removed).await
            }
        };
        keys.then(remove).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.begin("list", prefix.unwrap_or(&Path::default())) {
            Ok(_) => self.objects.list(prefix),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.change("copy", to, self.objects.copy_opts(from, to, options)).await
    }
}

#[async_trait]
impl MultipartStore for Objects {
    async fn create_multipart(&self, key: &Path) -> Result<MultipartId> {
        self.change("begin", key, self.objects.create_multipart(key)).await
    }

    async fn put_part(&self, key: &Path, id: &MultipartId, part: usize, body: PutPayload) -> Result<PartId> {
        self.change("part", key, self.objects.put_part(key, id, part, body)).await
    }

    async fn complete_multipart(&self, key: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        self.change("complete", key, self.objects.complete_multipart(key, id, parts)).await
    }

    async fn abort_multipart(&self, key: &Path, id: &MultipartId) -> Result<()> {
        self.change("abort", key, self.objects.abort_multipart(key, id)).await
    }
}
