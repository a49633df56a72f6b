//! The column `extra`: fields without a column, as one JSON object with sorted keys and exact values.
//!
//! All values of a repeated name are kept: the last under its own name, the earlier ones as `name#1`, `name#2` and so
//! on, in the order sent. A suffix that another field already has is skipped.

use std::{borrow::Cow, collections::HashSet};

use crate::json;

/// Collects the members of one object; cleared and used again for each record.
#[derive(Debug, Default)]
pub(super) struct Extra<'a> {
    members: Vec<Member<'a>>,
    text: String,
}

#[derive(Debug)]
struct Member<'a> {
    /// The key as it is written, without its quotes.
    key: Cow<'a, str>,
    value: &'a str,
    /// Whether a later value of the same name filled the column.
    is_superseded: bool,
}

/// A key in the one form in which keys are compared and written: escaped only where it must be. A key with a lone
/// surrogate cannot be decoded and stays as it was sent.
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

    /// Adds a value whose field was sent again later.
    pub(super) fn add_superseded(&mut self, key: impl Into<Cow<'a, str>>, value: &'a str) {
        self.members.push(Member { key: key.into(), value, is_superseded: true });
    }

    /// The JSON object, or `None` if it is empty.
    pub(super) fn write(&mut self) -> Option<&str> {
        if self.members.is_empty() {
            return None;
        }
        // Stable: duplicates keep the order in which they were sent.
        self.members.sort_by(|left, right| left.key.cmp(&right.key));
        self.number_duplicates();
        self.text.clear();
        for (at, member) in self.members.iter().enumerate() {
            self.text.push_str(if at == 0 { "{\"" } else { ",\"" });
            self.text.push_str(&member.key);
            self.text.push_str("\":");
            self.text.push_str(member.value);
        }
        self.text.push('}');
        Some(&self.text)
    }

    fn number_duplicates(&mut self) {
        let is_earlier: Vec<bool> = (0..self.members.len())
            .map(|at| {
                let member = &self.members[at];
                let later = self.members.get(at + 1);
                member.is_superseded || later.is_some_and(|later| later.key == member.key && !later.is_superseded)
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
