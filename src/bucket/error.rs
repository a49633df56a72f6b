//! Errors of requests to a bucket.

use std::{error::Error, io};

use crate::model::{Fault, RunReason};

/// A request to a bucket failed, after its repetitions.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {object}: {why}")]
pub struct BucketError {
    action: &'static str,
    /// The address of the object or of the folder.
    object: String,
    /// The answer of the store, or the reason why there was none.
    why: String,
    kind: BucketErrorKind,
}

/// What a failed request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketErrorKind {
    /// The credentials are missing, wrong, or have no right to the request.
    Refused,
    /// The bucket or the object does not exist.
    Missing,
    /// Another writer has changed the object meanwhile.
    Changed,
    /// The store does not answer, answers with an error, or a file failed.
    Failed,
}

impl BucketError {
    /// Returns a closure for `map_err`. `action` completes the message "cannot ... OBJECT".
    pub(super) fn of(action: &'static str, object: String) -> impl FnOnce(object_store::Error) -> BucketError {
        move |error| {
            use object_store::Error as E;
            let kind = match &error {
                E::PermissionDenied { .. } | E::Unauthenticated { .. } => BucketErrorKind::Refused,
                E::NotFound { .. } => BucketErrorKind::Missing,
                E::Precondition { .. } | E::AlreadyExists { .. } => BucketErrorKind::Changed,
                _ => BucketErrorKind::Failed,
            };
            BucketError { action, object, why: cause_of(&error), kind }
        }
    }

    /// Returns the error of a store that writes objects although the condition does not hold.
    pub(super) fn ignores_conditions(object: String) -> BucketError {
        let why = "the store ignores the conditions of writes, so that two writers would lose rows; use a store with \
                   conditional writes, or a newer version of it";
        BucketError { action: "use", object, why: why.to_owned(), kind: BucketErrorKind::Refused }
    }

    /// Returns the error of a failed step on this machine.
    pub(super) fn local(action: &'static str, object: String, error: io::Error) -> BucketError {
        BucketError { action, object, why: error.to_string(), kind: BucketErrorKind::Failed }
    }

    /// Returns the address of the object or of the folder.
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Returns what the failure means.
    pub fn kind(&self) -> BucketErrorKind {
        self.kind
    }
}

impl Fault for BucketError {
    fn reason(&self) -> RunReason {
        match self.kind {
            BucketErrorKind::Refused | BucketErrorKind::Missing => RunReason::Configuration,
            BucketErrorKind::Changed => RunReason::WarehouseLocked,
            BucketErrorKind::Failed => RunReason::WarehouseFailed,
        }
    }

    fn hint(&self) -> Option<&str> {
        match self.kind {
            BucketErrorKind::Refused => Some(
                "`studysync check` tries each right that is needed. docs/howto/bucket.md lists the rights, and the variables with \
                 credentials, region and endpoint",
            ),
            BucketErrorKind::Missing => Some("create the bucket, or correct its name"),
            BucketErrorKind::Changed | BucketErrorKind::Failed => None,
        }
    }
}

/// Returns the deepest cause in one line: status, and the code and the message of the provider's XML if there is one.
fn cause_of(error: &object_store::Error) -> String {
    let mut deepest: &(dyn Error + 'static) = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let text = deepest.to_string();
    if deepest.is::<object_store::path::Error>() {
        return format!("{text}; move this object elsewhere, or choose another folder for the warehouse");
    }
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once('<').map(|(value, _)| value)
    };
    match (element("Code"), text.split_once('<')) {
        (Some(code), Some((status, _))) => {
            let message = element("Message").map(|message| format!(" ({message})")).unwrap_or_default();
            format!("{} {code}{message}", status.trim())
        }
        _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}
