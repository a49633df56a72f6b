//! What stands between this machine and the service: a proxy, and certificates of one's own.
//! Whether they work shows when the service is asked.

use std::{fs::File, io::Read as _, path::Path};

use crate::config::{NetworkVariables, network_variables};

use super::finding::Finding;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Findings about what the environment says; none where it says nothing.
pub(super) fn findings() -> Vec<Finding> {
    let NetworkVariables { proxy, no_proxy, certificates } = network_variables();
    let proxy = proxy.map(|(variable, address)| {
        let except = no_proxy.map(|hosts| format!(", but for {hosts}")).unwrap_or_default();
        Finding::well("proxy", format!("requests go through {address} ({variable}){except}"))
    });
    let certificates = certificates.map(|path| certificates_in(&path));
    proxy.into_iter().chain(certificates).collect()
}

fn certificates_in(path: &Path) -> Finding {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    let shown = path.display();
    let wrong = |found: String| {
        let hint = "SSL_CERT_FILE names a PEM file with every authority that is trusted; without it, those of this machine are";
        Finding::wrong("certs", found, hint.to_owned(), 2)
    };
    match (read, text.matches(BEGIN).count()) {
        (Err(error), _) => wrong(format!("{shown} cannot be read: {error}")),
        (Ok(_), 0) => wrong(format!("{shown} has no certificate")),
        (Ok(_), count) => Finding::well("certs", format!("{count} authorities of {shown} are trusted, and no others")),
    }
}
