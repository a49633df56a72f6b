//! JSON objects as the exact texts of their members. A member that stands twice is an error:
//! which one counts would be a guess.

use std::{borrow::Cow, fmt};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::excerpt::excerpt;
use crate::json::Shape;

/// A member's name, and the JSON text of its value.
pub(super) type Member<'a> = (String, Cow<'a, str>);

/// The members of the object `text`, in order.
pub(super) fn members_of(text: &str) -> Result<Vec<Member<'_>>, String> {
    serde_json::from_str::<Members<'_>>(text).map(|members| members.0).map_err(|error| error.to_string())
}

/// The items of the list `text`.
pub(super) fn items_of(text: &str) -> Result<Vec<&str>, String> {
    let items = serde_json::from_str::<Vec<&RawValue>>(text).map_err(|error| error.to_string())?;
    Ok(items.into_iter().map(RawValue::get).collect())
}

struct Members<'a>(Vec<Member<'a>>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members: Vec<Member<'de>> = Vec::new();
        let mut names = std::collections::HashSet::new();
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("'{}' stands twice", excerpt(&name))));
            }
            members.push((name, Cow::Borrowed(value.get())));
        }
        Ok(Members(members))
    }
}

/// What a value is, for people.
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

/// A JSON text without the spaces between its parts; numbers keep their digits.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_go_where_they_say_nothing() {
        assert_eq!(compact("[1.50 ,\n {\"a b\" : \"c \\\" d\\\\\" } ]"), r#"[1.50,{"a b":"c \" d\\"}]"#);
    }

    #[test]
    fn a_member_that_stands_twice_is_refused() {
        assert!(members_of(r#"{"a":1,"b":2,"\u0061":3}"#).unwrap_err().contains("'a' stands twice"));
        let exact: Vec<String> =
            members_of(r#"{"a": 1.50 }"#).unwrap().into_iter().map(|(_, text)| text.into()).collect();
        assert_eq!(exact, ["1.50"]);
    }
}
