//! One thing that `check` looked at.

use serde::Serialize;

use super::super::CommandError;

/// One thing that was looked at.
#[derive(Serialize)]
pub(super) struct Finding {
    pub what: &'static str,
    pub is_well: bool,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_to_do: Option<String>,
    #[serde(skip)]
    pub exit_code: u8,
}

impl Finding {
    pub fn well(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, is_well: true, found: found.into(), what_to_do: None, exit_code: 0 }
    }

    pub fn broken(what: &'static str, error: CommandError) -> Self {
        let what_to_do = error.hint().map(str::to_owned);
        Self { what, is_well: false, exit_code: error.exit_code(), found: error.chain(), what_to_do }
    }

    /// Something that is not as it should be, without an error of the program.
    pub fn wrong(what: &'static str, found: String, what_to_do: String, exit_code: u8) -> Self {
        Self { what, is_well: false, found, what_to_do: Some(what_to_do), exit_code }
    }
}
