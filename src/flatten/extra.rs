//! The column `extra`: one JSON object with sorted keys and exact values. It contains unknown fields, values that do
//! not fit their column, and earlier values of repeated fields.
//!
//! All values of a repeated name are stored. The last value is under the name itself, or in the column of the field.
//! Earlier values are under `name#1`, `name#2` and so on, in the order sent. If another field is already called
//! `name#1`, the number 1 is skipped.

use std::{borrow::Cow, collections::HashSet};

use crate::json;

/// The members of one object `extra`; reused for each record.
#[derive(Debug, Default)]
pub(super) struct Extra<'a> {
    members: Vec<Member<'a>>,
    text: String,
}

#[derive(Debug)]
struct Member<'a> {
    /// The key in canonical form, without quotes.
    key: Cow<'a, str>,
    value: &'a str,
    /// True if a later value of the same name filled the column.
    is_superseded: bool,
}

/// Returns a key in canonical form: only characters that JSON requires are escaped. A key with a lone surrogate cannot
/// be decoded and is returned as sent.
pub(super) fn canonical_key(key: &str) -> Cow<'_, str> {
    if !key.contains('\\') {
        return Cow::Borrowed(key);
    }
    let decoded = json::unescaped(key);
    if !decoded.is_exact {
        return Cow::Borrowed(key);
    }
    match serde_json::to_string(&decoded.text) {
        Ok(quoted) => Cow::Owned(quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()),
        Err(_) => Cow::Borrowed(key),
    }
}

impl<'a> Extra<'a> {
    pub(super) fn clear(&mut self) {
        self.members.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Adds a member under its canonical key.
    pub(super) fn add(&mut self, key: impl Into<Cow<'a, str>>, value: &'a str) {
        self.members.push(Member { key: key.into(), value, is_superseded: false });
    }

    /// Adds a value of a field that was sent again later, and whose later value filled the column.
    pub(super) fn add_superseded(&mut self, key: impl Into<Cow<'a, str>>, value: &'a str) {
        self.members.push(Member { key: key.into(), value, is_superseded: true });
    }

    /// Returns the text of the JSON object with sorted keys, or `None` if no member was added.
    pub(super) fn write(&mut self) -> Option<&str> {
        if self.members.is_empty() {
            return None;
        }
        // The sort is stable: values of one key stay in the order sent.
        self.members.sort_by(|left, right| left.key.cmp(&right.key));
        self.number_duplicates();
        self.text.clear();
        for (index, member) in self.members.iter().enumerate() {
            self.text.push_str(if index == 0 { "{\"" } else { ",\"" });
            self.text.push_str(&member.key);
            self.text.push_str("\":");
            self.text.push_str(member.value);
        }
        self.text.push('}');
        Some(&self.text)
    }

    /// Renames the keys of earlier values of repeated names to `name#1`, `name#2` and so on. The members must be sorted
    /// by key, and are sorted again.
    fn number_duplicates(&mut self) {
        let is_earlier: Vec<bool> = (0..self.members.len())
            .map(|index| {
                let member = &self.members[index];
                let next = self.members.get(index + 1);
                member.is_superseded || next.is_some_and(|next| next.key == member.key && !next.is_superseded)
            })
            .collect();
        if !is_earlier.contains(&true) {
            return;
        }
        let mut taken: HashSet<String> = self.members.iter().map(|member| member.key.to_string()).collect();
        let (mut name, mut number) = (String::new(), 0);
        for (member, _) in self.members.iter_mut().zip(is_earlier).filter(|(_, is_earlier)| *is_earlier) {
            if member.key != name {
                (name, number) = (member.key.to_string(), 0);
            }
            let numbered = loop {
                number += 1;
                let numbered = format!("{name}#{number}");
                if taken.insert(numbered.clone()) {
                    break numbered;
                }
            };
            member.key = Cow::Owned(numbered);
        }
        self.members.sort_by(|left, right| left.key.cmp(&right.key));
    }
}

#[cfg(test)]
mod tests;
