//! The clients of the providers.

use std::{sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    multipart::MultipartStore,
};

use crate::{model::BucketAddress, tls::install_crypto};

/// Options of the HTTP client. Those that variables of the provider set, as a proxy, stay. The first is the longest
/// time of one request, with its body.
const CLIENT: [(ClientConfigKey, &str); 2] = [
    (ClientConfigKey::Timeout, "60 seconds"),
    (ClientConfigKey::UserAgent, concat!("studysync/", env!("CARGO_PKG_VERSION"))),
];
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

/// Creates the client of the provider, with the credentials of the usual variables.
pub(super) fn store_of(address: &BucketAddress) -> Result<Arc<dyn Backend>, object_store::Error> {
    install_crypto();
    let retry = RetryConfig {
        backoff: BackoffConfig { init_backoff: FIRST_DELAY, max_backoff: DELAY_MAX, base: 2.0 },
        max_retries: RETRIES_MAX,
        retry_timeout: RETRY_TIMEOUT,
    };
    let url = address.url().as_str();
    if let Some(server) = address.test_server() {
        let backoff =
            BackoffConfig { init_backoff: server.first_delay, max_backoff: server.first_delay * 10, base: 2.0 };
        let builder = AmazonS3Builder::new().with_url(url).with_endpoint(&server.endpoint).with_allow_http(true);
        return Ok(Arc::new(builder.with_skip_signature(true).with_retry(RetryConfig { backoff, ..retry }).build()?));
    }
    let (scheme, _) = ObjectStoreScheme::parse(address.url())?;
    Ok(match scheme {
        ObjectStoreScheme::GoogleCloudStorage => {
            let set = |builder: GoogleCloudStorageBuilder, (key, value)| {
                builder.with_config(GoogleConfigKey::Client(key), value)
            };
            let builder = CLIENT.into_iter().fold(GoogleCloudStorageBuilder::from_env().with_url(url), set);
            Arc::new(builder.with_retry(retry).build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let set =
                |builder: MicrosoftAzureBuilder, (key, value)| builder.with_config(AzureConfigKey::Client(key), value);
            let builder = CLIENT.into_iter().fold(MicrosoftAzureBuilder::from_env().with_url(url), set);
            Arc::new(builder.with_retry(retry).build()?)
        }
        _ => {
            let set =
                |builder: AmazonS3Builder, (key, value)| builder.with_config(AmazonS3ConfigKey::Client(key), value);
            let builder = CLIENT.into_iter().fold(AmazonS3Builder::from_env().with_url(url), set);
            // An endpoint without TLS is on a machine or a network of the user, who named it.
            let endpoints = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
            let endpoint = endpoints.iter().find_map(|key| builder.get_config_value(key));
            let builder = match endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
                true => builder.with_allow_http(true),
                false => builder,
            };
            Arc::new(builder.with_retry(retry).build()?)
        }
    })
}
