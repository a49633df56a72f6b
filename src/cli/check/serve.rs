//! Checks the settings that `serve` needs. If `serve` is not set up, the check does not fail.

use std::{io, net::TcpListener};

use crate::{
    config::Settings,
    serve::{ConnectionLimit, check_schedule, check_status_page},
};

use super::{super::CommandError, finding::Finding};

/// Returns a finding about the limit of open files, if it is lower than `serve` needs for all its connections.
pub(super) fn open_files() -> Option<Finding> {
    let limit = ConnectionLimit::of_process();
    let files = limit.open_files.filter(|_| limit.is_reduced())?;
    let hint = "raise it: LimitNOFILE= in a unit of systemd, `ulimit -n` in a shell";
    let found = format!(
        "this process may open only {files} files: with such a limit, serve takes {} connections at the same time",
        limit.connections
    );
    Some(match limit.is_too_low() {
        true => Finding::problem("open files", format!("{found}, and a run may lack files"), hint, 1),
        false => Finding { what_to_do: Some(hint.to_owned()), ..Finding::ok("open files", found) },
    })
}

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
