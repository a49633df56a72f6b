//! Checks the settings that `serve` needs. If `serve` is not set up, the check does not fail.

use std::{io, net::TcpListener};

use crate::{
    config::Settings,
    serve::{check_schedule, check_status_page},
};

use super::{super::CommandError, finding::Finding};

/// Returns a finding about the schedule, the secret of webhooks, the status page and the address of `serve`.
pub(super) fn finding(settings: &Settings) -> Finding {
    let serve = &settings.serve;
    if let Err(error) = check_schedule(serve) {
        return Finding::error("serve", error);
    }
    let secret = serve.webhook.as_ref().map_or(Ok(()), |_| serve.token().map(drop));
    match secret {
        Err(_) if serve.token_source.is_unset_default() => {
            return Finding::ok("serve", "not set up: it would need the secret of webhooks, or webhook = \"off\"");
        }
        Err(error) => return Finding::error("serve", error),
        Ok(()) => {}
    }
    if let Err(error) = check_status_page(serve) {
        return Finding::error("serve", error);
    }
    match TcpListener::bind(serve.listen) {
        Ok(_) => Finding::ok("serve", format!("it can listen on {}", serve.listen)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Finding::ok("serve", format!("{} is in use: by `serve` itself, or by another program", serve.listen))
        }
        Err(error) => {
            Finding::error("serve", CommandError::failed(format!("cannot listen on {}", serve.listen), error))
        }
    }
}
