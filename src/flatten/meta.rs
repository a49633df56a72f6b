//! The columns `meta_*` of a response, from its field `meta`.

use super::{
    drift::DriftLog,
    fields::{Fields, wire_fields},
    table_builder::TableBuilder,
};
use crate::{
    json::{self, Entry},
    model::DriftRules,
};

wire_fields! {
    /// The fields of `meta`.
    MetaField {
        Browser = "browser",
        Os = "os",
        Language = "language",
        Href = "href",
        UserAgent = "userAgent",
        Client = "client",
        Screen = "screen",
    }
}

wire_fields! {
    /// The fields of `meta.client` and `meta.screen`.
    SizeField {
        Width = "width",
        Height = "height",
    }
}

/// Width and height in pixels.
type Size = (Option<i64>, Option<i64>);

/// A parser of `meta`, with its buffers.
#[derive(Debug)]
pub(super) struct MetaColumns<'a> {
    fields: Fields<'a, MetaField>,
    size: Fields<'a, SizeField>,
    entries: Vec<Entry<'a>>,
}

impl<'a> MetaColumns<'a> {
    pub(super) fn new(rules: DriftRules) -> Self {
        Self { fields: Fields::new(rules), size: Fields::new(rules), entries: Vec::new() }
    }

    /// Appends the cells `meta_*` of a response to `row`. `raw` is the field `meta`; `None` if it is missing or null.
    /// If `raw` is not an object, returns false, and the cells are NULL.
    pub(super) fn append(
        &mut self,
        record: i64,
        raw: Option<&'a str>,
        row: &mut TableBuilder,
        drift: &mut DriftLog,
    ) -> bool {
        self.entries.clear();
        let is_object = raw.is_none_or(|raw| json::read_entries(raw, &mut self.entries).is_some());
        self.fields.read(&self.entries);
        row.text("meta_browser", self.fields.text(MetaField::Browser).as_deref());
        row.text("meta_os", self.fields.text(MetaField::Os).as_deref());
        row.text("meta_language", self.fields.text(MetaField::Language).as_deref());
        row.text("meta_href", self.fields.text(MetaField::Href).as_deref());
        row.text("meta_user_agent", self.fields.text(MetaField::UserAgent).as_deref());
        let (width, height) = self.size(MetaField::Client);
        drift.drain_fields(record, "meta.client.", &mut self.size);
        row.bigint("meta_client_width", width);
        row.bigint("meta_client_height", height);
        let (width, height) = self.size(MetaField::Screen);
        drift.drain_fields(record, "meta.screen.", &mut self.size);
        row.bigint("meta_screen_width", width);
        row.bigint("meta_screen_height", height);
        row.json("meta_extra", self.fields.extra.write());
        drift.drain_fields(record, "meta.", &mut self.fields);
        is_object
    }

    /// Reads width and height of `meta.client` or `meta.screen`. If a member of the object has no column or does not
    /// fit its column, `meta_extra` stores the complete object.
    fn size(&mut self, field: MetaField) -> Size {
        let Some(raw) = self.fields.json(field) else {
            return (None, None);
        };
        self.entries.clear();
        if json::read_entries(raw, &mut self.entries).is_none() {
            self.fields.add_clash_to_extra(field);
            return (None, None);
        }
        self.size.read(&self.entries);
        let size = (self.size.bigint(SizeField::Width), self.size.bigint(SizeField::Height));
        if !self.size.extra.is_empty() {
            self.fields.add_to_extra(field);
        }
        size
    }
}
