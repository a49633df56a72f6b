//! Shows the proxy and the certificate authorities that environment variables set. The request to the service shows
//! whether they work.

use std::{fs::File, io::Read as _, path::Path};

use crate::{
    config::{Settings, network_variables},
    pipeline,
};

use super::finding::Finding;

const CERTIFICATE_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Returns a finding for the proxy and one for the certificates, if variables set them.
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    let base_url = settings.service.base_url.as_deref().unwrap_or_default();
    let proxy = match pipeline::proxies() {
        Ok(proxies) => proxies.describe(base_url).map(|way| Finding::ok("proxy", way)),
        Err(error) => Some(Finding::error("proxy", error)),
    };
    let certificates = network_variables().certificates.map(|path| certificates_in(&path));
    proxy.into_iter().chain(certificates).collect()
}

/// Checks that the file of trusted authorities can be read and has certificates.
fn certificates_in(path: &Path) -> Finding {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    let shown = path.display();
    let problem = |found: String| {
        let hint =
            "set SSL_CERT_FILE to a PEM file with all trusted authorities, or unset it to trust those of this machine";
        Finding::problem("certs", found, hint, 2)
    };
    match (read, text.matches(CERTIFICATE_BEGIN).count()) {
        (Err(error), _) => problem(format!("{shown} cannot be read: {error}")),
        (Ok(_), 0) => problem(format!("{shown} has no certificate")),
        (Ok(_), count) => Finding::ok("certs", format!("only the {count} authorities of {shown} are trusted")),
    }
}
