//! The cryptography of TLS connections.

use std::sync::Once;

/// Installs the cryptography provider of rustls, once per process.
pub fn install_crypto() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // An error means that an embedding program has installed a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
