//! The result of one check.

use std::borrow::Cow;

use serde::Serialize;

use super::super::CommandError;

/// The result of one check, as `check --json` prints it.
#[derive(Serialize)]
pub(super) struct Finding {
    /// The name of the checked thing, for example `warehouse`.
    pub what: &'static str,
    pub is_well: bool,
    /// What the check found, in a sentence.
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_to_do: Option<String>,
    /// The exit code of `check` if this is the first failure.
    #[serde(skip)]
    pub exit_code: u8,
}

impl Finding {
    pub fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, is_well: true, found: found.into(), what_to_do: None, exit_code: 0 }
    }

    /// Returns the finding for an error, with the exit code and the hint of the error.
    pub fn error(what: &'static str, error: impl Into<CommandError>) -> Self {
        let error: CommandError = error.into();
        let what_to_do = error.hint().map(Cow::into_owned);
        Self { what, is_well: false, exit_code: error.exit_code(), found: error.chain(), what_to_do }
    }

    /// Returns the finding for a problem that is not an error of the program. `exit_code` is that of `check`.
    pub fn problem(what: &'static str, found: String, what_to_do: impl Into<String>, exit_code: u8) -> Self {
        Self { what, is_well: false, found, what_to_do: Some(what_to_do.into()), exit_code }
    }

    /// Returns the finding and its hint as lines of text.
    pub fn describe(&self) -> String {
        let mark = if self.is_well { "ok  " } else { "FAIL" };
        let hint = self.what_to_do.as_ref().map(|hint| format!("\n     hint: {hint}")).unwrap_or_default();
        format!("{mark} {:<10} {}{hint}\n", self.what, self.found)
    }
}
