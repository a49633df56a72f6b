//! What only `serve` needs. Whoever does not run it is told so, and nothing fails.

use std::{io, net::TcpListener};

use crate::{config::Settings, serve::check_schedule};

use super::{super::CommandError, finding::Finding};

/// Whether `serve` could start.
pub(super) fn finding(settings: &Settings) -> Finding {
    let serve = &settings.serve;
    if let Err(error) = check_schedule(serve) {
        return Finding::broken("serve", CommandError::Serve(error));
    }
    if serve.webhook.is_some() && serve.token_source.is_unset_default() && serve.token().is_err() {
        return Finding::well("serve", "not set up: it would need the secret of webhooks, or webhook = \"off\"");
    }
    if let Err(error) = serve.webhook.as_ref().map_or(Ok(()), |_| serve.token().map(drop)) {
        return Finding::broken("serve", CommandError::Config(error));
    }
    match TcpListener::bind(serve.listen) {
        Ok(_) => Finding::well("serve", format!("it can listen on {}", serve.listen)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Finding::well("serve", format!("{} is taken: by `serve` itself, or another program", serve.listen))
        }
        Err(error) => {
            Finding::broken("serve", CommandError::failed(format!("cannot listen on {}", serve.listen), error))
        }
    }
}
