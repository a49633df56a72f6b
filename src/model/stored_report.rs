//! The JSON of a past run, as other commands read it again.

use serde::Deserialize;
use serde_json::Value;

/// The JSON of a past run. Each field is read for itself, so that a field of another version hides no other field.
#[derive(Clone, Debug, Default)]
pub struct StoredReport(Value);

impl StoredReport {
    /// Parses the report. A report that is missing or no JSON has no fields.
    pub fn parse(json: Option<&str>) -> StoredReport {
        StoredReport(json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default())
    }

    /// Returns the field at a JSON pointer such as `/requests/total`; `None` if it is missing, null or of another type.
    pub fn get<'a, T: Deserialize<'a>>(&'a self, pointer: &str) -> Option<T> {
        T::deserialize(self.0.pointer(pointer)?).ok()
    }
}
