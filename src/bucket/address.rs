//! Addresses of buckets, and the stores that they name.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder,
    multipart::MultipartStore,
    path::Path,
};
use url::Url;

use crate::tls::install_crypto;

/// Schemes that the program takes for an address of a bucket.
const SCHEMES: [&str; 4] = ["s3", "gs", "az", "abfss"];
/// Longest time of one request, with its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time of a request with its repetitions.
const RETRY_TIMEOUT: Duration = Duration::from_secs(180);
/// Delay before the first repetition; each further delay is longer.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Longest delay between repetitions.
const DELAY_MAX: Duration = Duration::from_secs(15);
const RETRIES_MAX: usize = 10;

/// What a store of objects must be able to do.
pub trait Backend: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Backend for T {}

/// The address of a folder of a bucket: `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder` or
/// `abfss://container@account.dfs.core.windows.net/folder`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketAddress {
    url: Url,
    /// The folder without slashes at its ends; empty for the whole bucket.
    prefix: String,
}

impl BucketAddress {
    /// Returns true if a text names a bucket, and not a path.
    pub fn is_address(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
    }

    /// Returns the folder without slashes at its ends; empty for the whole bucket.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Creates the client of the provider, with the credentials of the usual variables.
    pub(super) fn store(&self) -> Result<Arc<dyn Backend>, object_store::Error> {
        install_crypto();
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff: FIRST_DELAY, max_backoff: DELAY_MAX, base: 2.0 },
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY_TIMEOUT,
        };
        let client = ClientOptions::new()
            .with_timeout(REQUEST_TIMEOUT)
            .with_user_agent(http::HeaderValue::from_static(concat!("studysync/", env!("CARGO_PKG_VERSION"))));
        let (scheme, _) = ObjectStoreScheme::parse(&self.url)?;
        let url = self.url.as_str();
        Ok(match scheme {
            ObjectStoreScheme::GoogleCloudStorage => {
                let builder = GoogleCloudStorageBuilder::from_env().with_url(url);
                Arc::new(builder.with_retry(retry).with_client_options(client).build()?)
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let builder = MicrosoftAzureBuilder::from_env().with_url(url);
                Arc::new(builder.with_retry(retry).with_client_options(client).build()?)
            }
            _ => {
                let builder = AmazonS3Builder::from_env().with_url(url);
                // An endpoint without TLS is on a machine or a network of the user, who named it.
                let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
                let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
                Arc::new(builder.with_retry(retry).with_client_options(client.with_allow_http(is_plain)).build()?)
            }
        })
    }
}

impl FromStr for BucketAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !Self::is_address(text) {
            return Err(format!("'{text}' does not begin with s3://, gs://, az:// or abfss://"));
        }
        let refused = |why: &str| format!("'{text}' is no address of a bucket: {why}");
        let url = Url::parse(text).map_err(|error| refused(&error.to_string()))?;
        if url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(refused("credentials and other parameters do not belong into it"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(refused("it names no bucket"));
        }
        let (_, path) = ObjectStoreScheme::parse(&url).map_err(|error| refused(&error.to_string()))?;
        let prefix = Path::parse(path.as_ref().trim_matches('/')).map_err(|error| refused(&error.to_string()))?;
        Ok(Self { prefix: prefix.to_string(), url })
    }
}

impl fmt::Display for BucketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}
