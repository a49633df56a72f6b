//! Splits JSON objects and lists into the exact texts of their values. An object with a repeated name is an error.
//! Makes excerpts of input values for the reasons why a row is set aside.

use std::{borrow::Cow, fmt};

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{json::Shape, model::is_display_control};

/// The name of a member and the JSON text of its value.
pub(super) type Member<'a> = (String, Cow<'a, str>);

/// Returns the members of a JSON object, in order.
pub(super) fn members_of(text: &str) -> Result<Vec<Member<'_>>, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let members = json.deserialize_map(Members).and_then(|members| json.end().map(|()| members));
    members.map_err(|error| error.to_string())
}

/// Returns the items of a JSON list, in order.
pub(super) fn items_of(text: &str) -> Result<Vec<&str>, String> {
    let items = serde_json::from_str::<Vec<&RawValue>>(text).map_err(|error| error.to_string())?;
    Ok(items.into_iter().map(RawValue::get).collect())
}

/// Collects the members of an object. Fails if a name occurs twice.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Vec<Member<'de>> = Vec::new();
        let mut names = std::collections::HashSet::new();
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("'{}' occurs twice", excerpt(&name))));
            }
            members.push((name, Cow::Borrowed(value.get())));
        }
        Ok(members)
    }
}

/// Returns the name of a value's shape, for error messages.
pub(super) fn shape_name(shape: Shape) -> &'static str {
    match shape {
        Shape::Null => "null",
        Shape::Boolean => "true or false",
        Shape::Number => "a number",
        Shape::Text => "a text",
        Shape::List => "a list",
        Shape::Object => "an object",
    }
}

/// Removes the blanks outside of strings from a JSON text. All other characters stay.
pub(super) fn compact(json: &str) -> String {
    let (mut compact, mut is_in_text, mut is_escaped) = (String::with_capacity(json.len()), false, false);
    for letter in json.chars() {
        if !is_in_text && matches!(letter, ' ' | '\t' | '\n' | '\r') {
            continue;
        }
        is_in_text ^= letter == '"' && !is_escaped;
        is_escaped = is_in_text && letter == '\\' && !is_escaped;
        compact.push(letter);
    }
    compact
}

/// Returns true if the text is a valid JSON value.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Maximum length of an excerpt, in characters.
const EXCERPT_CHARS: usize = 40;

/// Returns the first [`EXCERPT_CHARS`] characters of a text, and `…` if the text is longer. Characters that control the
/// display become U+FFFD.
pub(super) fn excerpt(text: &str) -> String {
    let letters = text.chars().map(|letter| if is_display_control(letter) { '\u{fffd}' } else { letter });
    let mut short: String = letters.take(EXCERPT_CHARS).collect();
    if text.chars().nth(EXCERPT_CHARS).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_outside_of_texts_are_removed() {
        assert_eq!(compact("[1.50 ,\n {\"a b\" : \"c \\\" d\\\\\" } ]"), r#"[1.50,{"a b":"c \" d\\"}]"#);
    }

    #[test]
    fn a_name_that_occurs_twice_is_refused() {
        assert!(members_of(r#"{"a":1,"b":2,"\u0061":3}"#).unwrap_err().contains("'a' occurs twice"));
        let exact: Vec<String> =
            members_of(r#"{"a": 1.50 }"#).unwrap().into_iter().map(|(_, text)| text.into()).collect();
        assert_eq!(exact, ["1.50"]);
    }
}
