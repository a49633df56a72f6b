//! Rows of child tables: the choices, matrix cells, ranks, items and recordings of answers, and rows of objects that
//! map names to values (attributes of people and snapshots, keys of custom metadata).
//!
//! A label that was sent twice has one row, with the last value sent. The JSON column of the parent row contains both
//! values.

use std::{borrow::Cow, cmp::Ordering, collections::HashSet};

use arrow::error::ArrowError;

use super::{
    drift::json_type,
    fields::{AnswerDrift, FieldDrift, Fields, wire_fields},
    table_builder::{ColumnSet, TableBuilder},
};
use crate::{
    json::{self, Entry, text_or_json},
    model::{DriftRules, FlatPage},
};

/// The columns that a response shares with the rows of its child tables, and the index of its record.
#[derive(Clone, Debug)]
pub(super) struct AnswerKey<'a> {
    pub response_group_uid: Cow<'a, str>,
    pub question_id: i64,
    pub survey_id: Option<i64>,
    /// Creation time of the response, epoch microseconds.
    pub created_at: i64,
    /// Index of the record in the page, from 0.
    pub record: i64,
}

impl AnswerKey<'_> {
    /// Begins a row of a child table with the cells that the row shares with its response.
    pub(super) fn begin_row(&self, child: &mut TableBuilder) {
        child.text("response_group_uid", Some(&self.response_group_uid));
        child.bigint("question_id", Some(self.question_id));
        child.bigint("survey_id", self.survey_id);
        child.timestamp("created_at", Some(self.created_at));
    }
}

/// Appends a row of `response_choices` for each chosen option of a MULTIPLECHOICE or MULTIPLESELECT answer. Labels and
/// indexes are paired only if both lists have the same length; otherwise the longer list alone fills the rows.
pub(super) fn append_choices(table: &mut TableBuilder, key: &AnswerKey, labels: &[Option<Cow<str>>], indexes: &[i64]) {
    let (labels, indexes) = match labels.len().cmp(&indexes.len()) {
        Ordering::Equal => (labels, indexes),
        Ordering::Greater => (labels, [].as_slice()),
        Ordering::Less => ([].as_slice(), indexes),
    };
    for index in 0..labels.len().max(indexes.len()) {
        if table.is_full() {
            return;
        }
        key.begin_row(table);
        table.bigint("choice_ordinal", Some(index as i64 + 1));
        table.bigint("selected_index", indexes.get(index).copied());
        table.text("label", labels.get(index).and_then(|label| label.as_deref()));
        table.end_row(key.record);
    }
}

/// A member of an object that maps labels to values.
#[derive(Debug)]
struct LabelledValue<'a> {
    /// Index of the member in its object, from 0.
    index: usize,
    /// The decoded name.
    label: Cow<'a, str>,
    /// The exact text of the value.
    value: &'a str,
}

/// Appends a row of `response_matrix_cells` for each row of a MATRIX answer. Returns true if no row of the matrix has
/// an answer. If the chosen column is not a text, `column_label` is its JSON.
pub(super) fn append_matrix_cells(table: &mut TableBuilder, key: &AnswerKey, entries: &[Entry]) -> bool {
    for LabelledValue { index, label, value } in labelled_values(entries) {
        if table.is_full() {
            break;
        }
        let column_label = text_or_json(value);
        key.begin_row(table);
        table.text("row_label", Some(&label));
        table.bigint("row_ordinal", Some(index as i64 + 1));
        table.text("column_label", column_label.as_deref());
        table.bigint("column_number", column_label.as_deref().and_then(leading_integer));
        table.end_row(key.record);
    }
    entries.iter().all(|entry| entry.value == "null")
}

/// Appends a row of `response_ranks` for each option of a RANKORDER answer. Returns true if no option has a rank. A
/// rank that is no integer becomes NULL and is drift.
pub(super) fn append_ranks<'a>(
    table: &mut TableBuilder,
    key: &AnswerKey,
    entries: &[Entry<'a>],
    drift: &mut Vec<AnswerDrift<'a>>,
) -> bool {
    for LabelledValue { label, value, .. } in labelled_values(entries) {
        if table.is_full() {
            break;
        }
        key.begin_row(table);
        table.text("option_label", Some(&label));
        let rank = json::read_integer(value);
        if rank.is_none() && value != "null" {
            drift.push(("", FieldDrift::type_clash("response[]", value)));
        }
        table.bigint("rank", rank);
        table.end_row(key.record);
    }
    entries.iter().all(|entry| entry.value == "null")
}

/// Returns the members of an object in the order sent. Of members with the same name only the last one is returned.
fn labelled_values<'a>(entries: &[Entry<'a>]) -> Vec<LabelledValue<'a>> {
    let labelled = |(index, entry): (usize, &Entry<'a>)| LabelledValue {
        index,
        label: json::unescaped(entry.key).text,
        value: entry.value,
    };
    let mut values: Vec<_> = entries.iter().enumerate().map(labelled).collect();
    if has_duplicates(&values) {
        let mut later = HashSet::new();
        values.reverse();
        values.retain(|value| later.insert(value.label.clone()));
        values.reverse();
    }
    values
}

/// Returns true if two members have the same label.
fn has_duplicates(values: &[LabelledValue]) -> bool {
    /// Up to this many labels, comparing each pair is cheaper than hashing.
    const PAIRWISE_MAX: usize = 12;
    let labels = || values.iter().map(|value| value.label.as_ref());
    if values.len() <= PAIRWISE_MAX {
        return labels().enumerate().any(|(index, label)| labels().take(index).any(|earlier| earlier == label));
    }
    let mut seen = HashSet::with_capacity(values.len());
    !labels().all(|label| seen.insert(label))
}

/// Returns the integer at the start of a label: 4 of `4 - Agree`, 10 of `10`, -2 of `-2 (worse)`. Returns `None` if the
/// label starts with another kind of number (`4.5`, `1,000`).
fn leading_integer(label: &str) -> Option<i64> {
    let label = label.trim_start();
    let unsigned = label.strip_prefix(['-', '+']).unwrap_or(label);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let (_, rest) = unsigned.split_at_checked(digits)?;
    if digits == 0
        || rest.strip_prefix(['.', ',']).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()))
    {
        return None;
    }
    label.get(..label.len() - rest.len())?.parse().ok()
}

/// The fields of an item that have columns. A field of a wrong type is `None`; only `answer_json` contains its value.
#[derive(Debug, Default)]
struct MaxDiffItem<'a> {
    id: Option<i64>,
    option: Option<Cow<'a, str>>,
    /// The choice for this item, as text; `None` if it is null or of another type.
    selected: Option<Cow<'a, str>>,
    /// True if `selected` was sent and is not null, also if it is of another type.
    is_selected: bool,
}

/// Appends a row of `response_maxdiff_items` for each item of each round of a MAXDIFF answer. Returns true if the
/// answer is a list and no item was selected. Rounds and items of a wrong shape have no row, but their positions count
/// in the ordinals. A value of a wrong shape that is not null counts as a selection.
pub(super) fn append_max_diff_items<'a>(
    table: &mut TableBuilder,
    key: &AnswerKey,
    response: &'a str,
    drift: &mut Vec<AnswerDrift<'a>>,
) -> bool {
    let Some(rounds) = json::read_items(response) else { return false };
    let mut is_skipped = true;
    let mut entries = Vec::new();
    for (round, items_json) in (1_i64..).zip(rounds) {
        let Some(items) = json::read_items(items_json) else {
            is_skipped &= !add_clash("response[]", items_json, drift);
            continue;
        };
        for (ordinal, item_json) in (1_i64..).zip(items) {
            entries.clear();
            if json::read_entries(item_json, &mut entries).is_none() {
                is_skipped &= !add_clash("response[][]", item_json, drift);
                continue;
            }
            let item = read_item(&entries, drift);
            is_skipped &= !item.is_selected;
            if !table.is_full() {
                key.begin_row(table);
                table.bigint("round", Some(round));
                table.bigint("item_ordinal", Some(ordinal));
                table.bigint("item_id", item.id);
                table.text("option", item.option.as_deref());
                table.text("selected", item.selected.as_deref());
                table.end_row(key.record);
            }
        }
    }
    is_skipped
}

/// Adds a value of a wrong shape to the drift. Returns false for null, which is no drift.
fn add_clash<'a>(path: &'static str, value: &'a str, drift: &mut Vec<AnswerDrift<'a>>) -> bool {
    let is_drift = value != "null";
    if is_drift {
        drift.push(("", FieldDrift::type_clash(path, value)));
    }
    is_drift
}

/// Reads the members of an item. Unknown members and members of a wrong type go to `drift`.
fn read_item<'a>(entries: &[Entry<'a>], drift: &mut Vec<AnswerDrift<'a>>) -> MaxDiffItem<'a> {
    const PREFIX: &str = "response[][].";
    let mut item = MaxDiffItem::default();
    let text = |raw| json::read_text(raw).map(|text| text.text);
    for entry in entries {
        let name = json::unescaped(entry.key).text;
        let clash = match name.as_ref() {
            "id" => {
                item.id = json::read_integer(entry.value);
                item.id.is_none().then_some("id")
            }
            "option" => {
                item.option = text(entry.value);
                item.option.is_none().then_some("option")
            }
            "selected" => {
                item.selected = text(entry.value);
                item.is_selected = entry.value != "null";
                item.selected.is_none().then_some("selected")
            }
            _ => {
                drift.push((PREFIX, FieldDrift::new_field(name, entry.value)));
                None
            }
        };
        if let Some(field) = clash.filter(|_| entry.value != "null") {
            drift.push((PREFIX, FieldDrift::type_clash(field, entry.value)));
        }
    }
    item
}

wire_fields! {
    /// The fields of a recording.
    MediaField {
        UploadId = "uploadId",
        MediaType = "mediaType",
        Duration = "duration",
        Transcription = "transcription",
        DownloadUrl = "downloadUrl",
        VideoUrl = "videoUrl",
        UpdatedAt = "updatedAt",
    }
}

/// The rows of `response_media`: recordings of VIDEOVOICE answers.
#[derive(Debug)]
pub(super) struct MediaTable<'a> {
    table: TableBuilder,
    fields: Fields<'a, MediaField>,
}

impl<'a> MediaTable<'a> {
    pub(super) fn new(columns: ColumnSet) -> Result<Self, ArrowError> {
        Ok(Self { table: TableBuilder::new("response_media", 0, columns)?, fields: Fields::new(DriftRules::default()) })
    }

    /// Appends a row for the recording, and returns its transcription. Unknown fields and type clashes go to `drift`.
    /// The table has no column `extra`, because `answer_json` contains the complete recording.
    pub(super) fn append(
        &mut self,
        key: &AnswerKey,
        entries: &[Entry<'a>],
        drift: &mut Vec<AnswerDrift<'a>>,
    ) -> Option<Cow<'a, str>> {
        self.fields.read(entries);
        let transcription = self.fields.text(MediaField::Transcription);
        if !self.table.is_full() {
            self.append_row(key, transcription.as_deref());
        }
        drift.extend(self.fields.drift.drain(..).map(|field| ("response.", field)));
        transcription
    }

    fn append_row(&mut self, key: &AnswerKey, transcription: Option<&str>) {
        key.begin_row(&mut self.table);
        self.table.text("upload_id", self.fields.text(MediaField::UploadId).as_deref());
        self.table.text("media_type", self.fields.text(MediaField::MediaType).as_deref());
        self.table.double("duration_secs", self.fields.double(MediaField::Duration));
        self.table.text("transcription", transcription);
        self.table.text("download_url", self.fields.text(MediaField::DownloadUrl).as_deref());
        self.table.text("video_url", self.fields.text(MediaField::VideoUrl).as_deref());
        self.table.timestamp("media_updated_at", self.fields.timestamp(MediaField::UpdatedAt));
        self.table.end_row(key.record);
    }

    pub(super) fn finish_into(self, page: &mut FlatPage) -> Result<(), ArrowError> {
        self.table.finish_into(page)
    }
}

/// Appends a row for each name in the object `raw`, with the last value of a repeated name. The object may be JSON
/// inside a string. Appends nothing if `raw` is not an object, and no further rows to a full table. `begin_row` fills
/// the columns before the name. `entries` is a buffer.
pub(super) fn append_attributes<'a>(
    table: &mut TableBuilder,
    record: i64,
    raw: Option<&'a str>,
    entries: &mut Vec<Entry<'a>>,
    begin_row: impl Fn(&mut TableBuilder),
) {
    let raw = raw.filter(|raw| table.needs_rows_of(raw));
    if let Some(object) = raw.and_then(json::json_in_string) {
        return append_attributes(table, record, Some(&object), &mut Vec::new(), begin_row);
    }
    entries.clear();
    if raw.and_then(|raw| json::read_entries(raw, entries)).is_none() {
        return;
    }
    for LabelledValue { label, value, .. } in labelled_values(entries) {
        if table.is_full() {
            return;
        }
        begin_row(table);
        table.text("name", Some(&label));
        table.text("value_text", text_or_json(value).as_deref());
        table.double("value_number", json::read_number(value));
        table.boolean("value_bool", json::read_boolean(value));
        table.text("json_type", Some(json_type(value)));
        table.end_row(record);
    }
}

#[cfg(test)]
mod tests;
