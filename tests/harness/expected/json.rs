//! An exact JSON reader for the expected rows: it keeps raw texts, repeated names and lone surrogates.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

struct Members(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.push((name, value.get().to_owned()));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Returns the members of an object in order, with values as raw text; `None` for any other type.
pub fn members(raw: &str) -> Option<Vec<(String, String)>> {
    raw.starts_with('{').then(|| serde_json::from_str::<Members>(raw).ok()).flatten().map(|members| members.0)
}

/// Returns the last member with this name, as raw text.
pub fn member(raw: &str, name: &str) -> Option<String> {
    members(raw)?.into_iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// Returns the items of a list as raw text; `None` for any other type.
pub fn items(raw: &str) -> Option<Vec<String>> {
    let items: Vec<Box<RawValue>> = raw.starts_with('[').then(|| serde_json::from_str(raw).ok()).flatten()?;
    Some(items.into_iter().map(|item| item.get().to_owned()).collect())
}

/// Returns the value of a string, with U+FFFD for a lone surrogate; `None` for any other type.
pub fn text(raw: &str) -> Option<String> {
    if !raw.starts_with('"') {
        return None;
    }
    serde_json::from_str(raw).ok().or_else(|| serde_json::from_str(&without_lone_surrogates(raw)).ok())
}

fn without_lone_surrogates(raw: &str) -> String {
    let unit = |at: usize| {
        let digits = raw.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut clean, mut at) = (String::new(), 0);
    while let Some(letter) = raw[at..].chars().next() {
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => {
                clean.push_str(&raw[at..at + 12]);
                at += 12;
            }
            Some(0xd800..=0xdfff) => {
                clean.push_str("\\ufffd");
                at += 6;
            }
            Some(_) => {
                clean.push_str(&raw[at..at + 6]);
                at += 6;
            }
            None if letter == '\\' => {
                clean.push_str(&raw[at..at + 2]);
                at += 2;
            }
            None => {
                clean.push(letter);
                at += letter.len_utf8();
            }
        }
    }
    clean
}

/// Returns a number as a 64-bit integer.
pub fn integer(raw: &str) -> Option<i64> {
    raw.parse().ok()
}

/// Returns a number as the nearest finite double.
pub fn number(raw: &str) -> Option<f64> {
    let is_number = raw.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    is_number.then(|| raw.parse::<f64>().ok()).flatten().filter(|number| number.is_finite())
}

/// Returns a time in epoch microseconds.
pub fn timestamp_us(raw: &str) -> Option<i64> {
    chrono::DateTime::parse_from_rfc3339(&text(raw)?).ok().map(|moment| moment.timestamp_micros())
}

/// Returns the label of an option or cell: the value of a string, nothing for null, the exact JSON of any other type.
pub fn label(raw: &str) -> Option<String> {
    match raw {
        "null" => None,
        _ => text(raw).or_else(|| Some(raw.to_owned())),
    }
}
