//! Shows the proxy and the certificate authorities that environment variables set. The request to the service shows
//! whether they work.

use std::{fs::File, io::Read as _, path::Path};

use crate::config::{NetworkVariables, network_variables};

use super::finding::Finding;

const CERTIFICATE_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Returns a finding for the proxy and one for the certificates, if variables set them.
pub(super) fn findings() -> Vec<Finding> {
    let NetworkVariables { proxy, no_proxy, certificates } = network_variables();
    let proxy = proxy.map(|(variable, address)| {
        let except = no_proxy.map(|hosts| format!(", except for {hosts}")).unwrap_or_default();
        Finding::ok("proxy", format!("requests go through {address} ({variable}){except}"))
    });
    let certificates = certificates.map(|path| certificates_in(&path));
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
