//! Reads the key of the requests once more, after the service has refused it.

use std::{fmt, sync::Arc};

use crate::redact::ApiKey;

/// Reads the key from its file or command. Blocks the thread.
#[derive(Clone)]
pub struct KeyReader(Arc<dyn Fn() -> Option<ApiKey> + Send + Sync>);

impl KeyReader {
    /// Creates a reader. `read` returns `None` if the key cannot be read.
    pub fn new(read: impl Fn() -> Option<ApiKey> + Send + Sync + 'static) -> KeyReader {
        KeyReader(Arc::new(read))
    }

    /// Returns the key; `None` if it cannot be read.
    pub(super) fn read(&self) -> Option<ApiKey> {
        (self.0)()
    }
}

impl fmt::Debug for KeyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyReader")
    }
}
