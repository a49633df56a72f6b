//! Reads the envelope of a page, `{"cursor": ..., "data": [...]}`, without building its content. What the rows hold is
//! `flatten`'s business; here they are only counted.
//!
//! One pass over the text, by a [`Scanner`]. What that does not take, serde_json reads, or says what is wrong with it.
//! A row's own depth does not matter: serde_json skips ignored values in a loop, not by recursion, so that its limit of
//! 128 levels does not apply to what is inside a row.
//!
//! A page of which single records are no JSON is a page all the same, as long as it can be told which they are.

use std::{fmt, ops::Range};

use serde::{
    Deserializer,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::{
    json::{Scanner, take_apart},
    model::{EndStyle, PageToken},
    text::without_mark,
};

/// The longest page token that is accepted, in bytes: it has to fit into the next request's address.
pub const TOKEN_BYTES_MAX: usize = 4096;

/// What a page says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Items in `data`.
    pub rows: usize,
    /// Where to continue.
    pub next: Option<PageToken>,
    /// How the end of the list was said; present exactly when `next` is not.
    pub end: Option<EndStyle>,
    /// Where the list `data` stands in the body, in bytes; `None` where only serde_json could read it.
    pub list: Option<Range<usize>>,
    /// Items of `data` that are no JSON.
    pub broken: usize,
}

/// Why a body is no page.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EnvelopeError {
    /// The bytes are no text.
    #[error("the body is not UTF-8: byte {at} is wrong")]
    NotUtf8 { at: usize },
    /// The text is no JSON, or a cut one.
    #[error("the body is not JSON: {reason}")]
    NotJson { reason: String },
    /// JSON, but not an object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// Without `data` nothing is known, least of all that nothing is there.
    #[error("the body has no 'data'")]
    NoData,
    /// `data` is something else than a list.
    #[error("'data' is not a list")]
    DataNotAList,
    /// `cursor` is neither null nor text nor a number, or a text with half of a surrogate pair:
    /// legal JSON, and no text that could be sent.
    #[error("'cursor' is neither null nor a text that can be sent back")]
    BadToken,
    /// `cursor` is too long for an address.
    #[error("'cursor' is longer than {TOKEN_BYTES_MAX} bytes")]
    TokenTooLong,
    /// A field that may stand once stands twice; which one counts is anybody's guess.
    #[error("'{field}' stands twice")]
    Duplicate { field: &'static str },
}

/// Reads a page's envelope. Fields other than `cursor` and `data` are ignored.
pub fn parse(body: &[u8]) -> Result<Envelope, EnvelopeError> {
    match parse_whole(body) {
        Err(error @ (EnvelopeError::NotUtf8 { .. } | EnvelopeError::NotJson { .. })) => {
            parse_broken(body).unwrap_or(Err(error))
        }
        parsed => parsed,
    }
}

/// The same where records are no JSON; `None` where it cannot be told which.
fn parse_broken(body: &[u8]) -> Option<Result<Envelope, EnvelopeError>> {
    let (text, page) = take_apart(body)?;
    let token = read_token(text.get(page.token));
    Some(token.map(|token| {
        let (next, end) = token.map_or_else(|end| (None, Some(end)), |token| (Some(token), None));
        let broken = page.records.iter().filter(|record| record.is_broken).count();
        Envelope { rows: page.records.len(), next, end, list: Some(page.list), broken }
    }))
}

fn parse_whole(body: &[u8]) -> Result<Envelope, EnvelopeError> {
    let text = std::str::from_utf8(body).map_err(|error| EnvelopeError::NotUtf8 { at: error.valid_up_to() })?;
    let mark_bytes = text.len() - without_mark(text).len();
    let text = without_mark(text);
    let fields = match scanned(text) {
        Some(fields) => fields,
        None => parsed(text)?,
    };
    if let Some(field) = fields.duplicate {
        return Err(EnvelopeError::Duplicate { field });
    }
    let rows = match fields.data {
        None => return Err(EnvelopeError::NoData),
        Some(Data::Other) => return Err(EnvelopeError::DataNotAList),
        Some(Data::List(rows)) => rows,
    };
    let list = fields.list.map(|list| list.start + mark_bytes..list.end + mark_bytes);
    match read_token(fields.token)? {
        Ok(token) => Ok(Envelope { rows, next: Some(token), end: None, list, broken: 0 }),
        Err(end) => Ok(Envelope { rows, next: None, end: Some(end), list, broken: 0 }),
    }
}

/// `None` says nothing: the text may be a page all the same. What is wrong with one is for [`parsed`] to say.
fn scanned(text: &str) -> Option<Fields<'_>> {
    let (mut scanner, mut fields) = (Scanner::new(text), Fields::default());
    scanner.each_member(|scanner, name| {
        match Field::of(name) {
            Field::Token => fields.put_token(scanner.value()?),
            Field::Data => {
                let (start, mut rows) = (scanner.at(), 0);
                scanner.each_item(|scanner| {
                    rows += 1;
                    scanner.value().map(|_| ())
                })?;
                fields.list = Some(start..scanner.at());
                fields.put_data(Data::List(rows));
            }
            Field::Other => {
                scanner.value()?;
            }
        }
        Some(())
    })?;
    (scanner.is_at_end() && fields.duplicate.is_none()).then_some(fields)
}

fn parsed(text: &str) -> Result<Fields<'_>, EnvelopeError> {
    let not_json = |error: serde_json::Error| EnvelopeError::NotJson { reason: error.to_string() };
    let mut reader = serde_json::Deserializer::from_str(text);
    let top = reader.deserialize_any(TopVisitor).map_err(not_json)?;
    reader.end().map_err(not_json)?;
    match top {
        Top::Object(fields) => Ok(fields),
        Top::Other => Err(EnvelopeError::NotAnObject),
    }
}

/// The page token, or how the end was said.
fn read_token(raw: Option<&str>) -> Result<Result<PageToken, EndStyle>, EnvelopeError> {
    let Some(raw) = raw else { return Ok(Err(EndStyle::Missing)) };
    let token = match raw.bytes().next() {
        Some(b'n') => return Ok(Err(EndStyle::Null)),
        Some(b'"') => serde_json::from_str::<String>(raw).map_err(|_| EnvelopeError::BadToken)?,
        // Not in the contract, but unmistakable. The digits stay as they came.
        Some(b'-' | b'0'..=b'9') => raw.to_owned(),
        _ => return Err(EnvelopeError::BadToken),
    };
    match token.len() {
        0 => Ok(Err(EndStyle::EmptyText)),
        1..=TOKEN_BYTES_MAX => Ok(Ok(PageToken(token))),
        _ => Err(EnvelopeError::TokenTooLong),
    }
}

enum Top<'de> {
    Object(Fields<'de>),
    Other,
}

#[derive(Default)]
struct Fields<'de> {
    token: Option<&'de str>,
    data: Option<Data>,
    list: Option<Range<usize>>,
    duplicate: Option<&'static str>,
}

impl<'de> Fields<'de> {
    fn put_token(&mut self, raw: &'de str) {
        if self.token.replace(raw).is_some() {
            self.duplicate = Some("cursor");
        }
    }

    fn put_data(&mut self, data: Data) {
        if self.data.replace(data).is_some() {
            self.duplicate = Some("data");
        }
    }
}

enum Data {
    List(usize),
    Other,
}

/// Values of another kind than the visitor looks for are read over and told apart from the right one.
macro_rules! other_kinds {
    ($other:expr; $($extra:item)*) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($other)
        }
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($other)
        }
        $($extra)*
    };
}

struct TopVisitor;

impl<'de> Visitor<'de> for TopVisitor {
    type Value = Top<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top<'de>, A::Error> {
        let mut fields = Fields::default();
        while let Some(name) = map.next_key::<&'de RawValue>()? {
            match Field::of(name.get().trim_matches('"')) {
                Field::Token => fields.put_token(map.next_value::<&'de RawValue>()?.get()),
                Field::Data => fields.put_data(map.next_value_seed(DataSeed)?),
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Top::Object(fields))
    }

    other_kinds! { Top::Other;
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Top<'de>, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Top::Other)
        }
    }
}

enum Field {
    Token,
    Data,
    Other,
}

impl Field {
    /// Whose name this is, as it stands between its quotes.
    /// A name that cannot be a text (half of a surrogate pair) is no name of ours, and legal.
    fn of(name: &str) -> Field {
        let plain =
            if name.contains('\\') { serde_json::from_str::<String>(&format!("\"{name}\"")).ok() } else { None };
        match plain.as_deref().unwrap_or(name) {
            "cursor" => Field::Token,
            "data" => Field::Data,
            _ => Field::Other,
        }
    }
}

struct DataSeed;

impl<'de> de::DeserializeSeed<'de> for DataSeed {
    type Value = Data;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Data, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DataSeed {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Data, A::Error> {
        let mut rows = 0;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            rows += 1;
        }
        Ok(Data::List(rows))
    }

    other_kinds! { Data::Other;
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Data, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Data::Other)
        }
    }
}

#[cfg(test)]
mod tests;
