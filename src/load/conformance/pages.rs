//! Pages built by hand: plain records become batches of the contracts.

use std::sync::Arc;

use arrow::{
    array::{AsArray as _, BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::Int64Type,
    json::ReaderBuilder,
};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    json::canonical_hash,
    load::{EventRows, LoadError, Pages, Wanted},
    model::{
        DAY_MS, Flag, FlagSet, FlatEvents, FlatPage, PageDetail, RecordSet, Reject, RunId, Scan, ScanId, Scope, Stream,
        TableBatch, Window, key_hashes,
    },
    schema,
};

/// 2026-03-01, the first day of the tests.
pub(in crate::load) const DAY_0_MS: i64 = 1_772_323_200_000;

/// Returns the start of a day of the tests, in epoch milliseconds. Day 0 is the first.
pub(in crate::load) fn day(day: i64) -> i64 {
    DAY_0_MS + day * DAY_MS
}

/// Creates a scan of the days from `first` to before `end`. The scan starts at hour `hour` of day 100; a later hour is
/// a later scan.
pub(in crate::load) fn scan(stream: Stream, hour: i64, first: i64, end: i64, flags: FlagSet) -> Scan {
    let started_ms = day(100) + hour * 3_600_000;
    Scan {
        id: ScanId(format!("scan-{stream}-{hour}-{first}")),
        run_id: RunId(format!("run-{hour}")),
        scope: Scope::all(stream),
        window: Window::new(day(first), day(end)),
        flags,
        started_ms,
    }
}

/// Creates a scan of responses that includes deleted responses. The parameters are those of [`scan`].
pub(in crate::load) fn answers_scan(hour: i64, first: i64, end: i64) -> Scan {
    scan(Stream::Responses, hour, first, end, FlagSet::EMPTY.with(Flag::WithDeletedResponses))
}

/// A response in the tests.
#[derive(Clone, Debug)]
pub(in crate::load) struct Answer {
    pub group: String,
    pub question: i64,
    pub survey: i64,
    pub at_ms: i64,
    pub updated_ms: Option<i64>,
    pub deleted_ms: Option<i64>,
    pub text: String,
    pub choices: Vec<String>,
    pub url: Option<String>,
    pub os: Option<String>,
    /// The member `campaign` of the custom metadata; `None` for no metadata.
    pub campaign: Option<String>,
    pub snapshot: Option<String>,
}

/// Creates a response to question 1 of survey 7, at noon of a day. `group` is its session.
pub(in crate::load) fn answer(group: &str, on_day: i64, text: &str) -> Answer {
    Answer {
        group: group.to_owned(),
        question: 1,
        survey: 7,
        at_ms: day(on_day) + DAY_MS / 2,
        updated_ms: None,
        deleted_ms: None,
        text: text.to_owned(),
        choices: Vec::new(),
        url: None,
        os: None,
        campaign: None,
        snapshot: None,
    }
}

impl Answer {
    /// Returns the row of `responses`. `record` is the index of the record in its page.
    fn flat(&self, record: usize) -> Value {
        let us = |at_ms: Option<i64>| at_ms.map(|at_ms| at_ms * 1000);
        // The hash of the response leaves out the snapshot, which is a row with another hash.
        let content = Answer { snapshot: None, ..self.clone() };
        let hash = xxh3_64(format!("{content:?}").as_bytes()).cast_signed();
        json!({
            "response_group_uid": self.group, "question_id": self.question, "survey_id": self.survey,
            "created_at": self.at_ms * 1000, "updated_at": us(self.updated_ms), "deleted_at": us(self.deleted_ms),
            "question_type": "OPEN", "answer_text": self.text, "answer_json": json!(self.text).to_string(),
            "is_skipped": false, "selected_indexes": (0..self.choices.len()).collect::<Vec<_>>(),
            "url": self.url, "meta_os": self.os,
            "custom_metadata": self.campaign.as_ref().map(|name| json!({"campaign": name}).to_string()), "_row_hash": hash, "_record": record,
        })
    }

    /// Returns a row of a child table: the columns shared with the response, and the columns in `more`.
    fn child(&self, record: usize, more: Value) -> Value {
        let mut row = json!({
            "response_group_uid": self.group, "question_id": self.question, "survey_id": self.survey,
            "created_at": self.at_ms * 1000, "_record": record,
        });
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    }
}

/// Builds the page that `flatten` makes of these responses, with child rows and snapshots.
pub(in crate::load) fn page(answers: &[Answer]) -> FlatPage {
    let numbered = || answers.iter().enumerate();
    let choices = numbered().flat_map(|(at, answer)| {
        let choice = move |(ordinal, label)| answer.child(at, json!({"choice_ordinal": ordinal + 1, "label": label}));
        answer.choices.iter().enumerate().map(choice)
    });
    let metadata = numbered().filter_map(|(at, answer)| {
        let name = answer.campaign.as_ref()?;
        Some(answer.child(at, json!({"name": "campaign", "value_text": name, "json_type": "string"})))
    });
    let with_snapshot = || numbered().filter_map(|(at, answer)| Some((at, answer, answer.snapshot.as_ref()?)));
    let snapshots = with_snapshot().map(|(at, answer, plan)| {
        let hash = xxh3_64(plan.as_bytes()).cast_signed();
        answer.child(at, json!({"attributes": json!({"plan": plan}).to_string(), "_row_hash": hash}))
    });
    let attributes = with_snapshot()
        .map(|(at, answer, plan)| answer.child(at, json!({"name": "plan", "value_text": plan, "json_type": "string"})));
    with_keys(FlatPage {
        batches: [
            batch("responses", numbered().map(|(at, answer)| answer.flat(at)).collect()),
            batch("response_choices", choices.collect()),
            batch("response_custom_metadata", metadata.collect()),
            batch("visitor_snapshots", snapshots.collect()),
            batch("visitor_snapshot_attributes", attributes.collect()),
        ]
        .into_iter()
        .flatten()
        .collect(),
        records: answers.len(),
        ..FlatPage::default()
    })
}

/// Builds a page of responses as an older version of the program flattened them: some fields had no column. Each of
/// `moved` names a JSON column, the column that is NULL instead, and the members that the JSON column gets.
pub(in crate::load) fn page_of_fewer_columns(answers: &[Answer], moved: &[(&str, &str, Value)]) -> FlatPage {
    let mut page = page(answers);
    let rows = answers.iter().enumerate().map(|(at, answer)| {
        let mut row = answer.flat(at);
        for (rest, column, fields) in moved {
            row[*column] = Value::Null;
            let mut rest_object: Value =
                row.get(*rest).and_then(Value::as_str).map_or(json!({}), |rest_object| rest_object.parse().unwrap());
            rest_object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            row[*rest] = json!(rest_object.to_string());
        }
        row["_row_hash"] = json!(!row["_row_hash"].as_i64().unwrap());
        row
    });
    page.batches[0].rows = record_batch("responses", &rows.collect::<Vec<_>>());
    page
}

/// Builds a page of surveys, each given by id, status and the texts of its questions.
pub(in crate::load) fn survey_page(surveys: &[(i64, &str, &[&str])]) -> FlatPage {
    let rows = surveys.iter().enumerate().map(|(at, (id, status, questions))| {
        let hash = xxh3_64(format!("{id} {status} {questions:?}").as_bytes()).cast_signed();
        json!({"id": id, "name": format!("survey {id}"), "status": status, "_row_hash": hash, "_record": at})
    });
    let questions = surveys.iter().enumerate().flat_map(|(at, (id, _, questions))| {
        questions.iter().enumerate().map(move |(ordinal, text)| {
            json!({"survey_id": id, "question_ordinal": ordinal + 1, "question_text": text, "_record": at})
        })
    });
    with_keys(FlatPage {
        batches: [batch("surveys", rows.collect()), batch("survey_questions", questions.collect())]
            .into_iter()
            .flatten()
            .collect(),
        records: surveys.len(),
        ..FlatPage::default()
    })
}

/// Builds webhook events about changes of status, each given by key, survey, time of the receipt, old and new status.
/// The run and the time at which they are stored are those of a scan at hour `hour`.
pub(in crate::load) fn status_events(hour: i64, events: &[(&str, i64, i64, &str, &str)]) -> EventRows {
    let rows = events.iter().enumerate().map(|(at, (key, survey, received_ms, old, new))| {
        json!({"event_key": key, "kind": "study_status_changed", "survey_id": survey, "received_at": received_ms * 1000,
            "old_status": old, "status": new, "body_hash": key, "raw": "{}", "_record": at})
    });
    let events = batch("webhook_events", rows.collect()).unwrap().rows;
    let Scan { run_id, started_ms, .. } = scan(Stream::Surveys, hour, -1000, 1000, FlagSet::EMPTY);
    EventRows { flat: FlatEvents { events, questions: None }, run_id, applied_ms: started_ms }
}

/// Builds a page of themes of one response of day 0, each given by id and theme.
pub(in crate::load) fn theme_page(themes: &[(i64, &str)]) -> FlatPage {
    let rows = themes.iter().enumerate().map(|(at, (id, theme))| {
        let hash = xxh3_64(theme.as_bytes()).cast_signed();
        json!({"id": id, "response_group_uid": "g", "question_id": 1, "survey_id": 7, "created_at": day(0) * 1000,
            "theme": theme, "_row_hash": hash, "_record": at})
    });
    with_keys(FlatPage {
        batches: batch("themes", rows.collect()).into_iter().collect(),
        records: themes.len(),
        ..FlatPage::default()
    })
}

/// Adds the hashes of keys and answers to a page. The first batch has the rows of the base table.
pub(in crate::load) fn with_keys(page: FlatPage) -> FlatPage {
    let Some(base) = page.batches.first() else { return page };
    let key_hashes = key_hashes(&schema::table(base.table).unwrap().key_in_order(), &base.rows).unwrap();
    let mut buffer = Vec::new();
    let mut answer_hash = |answer: Option<&str>| answer.map_or(0, |answer| canonical_hash(answer, &mut buffer));
    let answers = base.rows.column_by_name("answer_json").map(|column| column.as_string::<i32>());
    let answer_hashes = answers.map(|answers| answers.iter().map(&mut answer_hash).collect()).unwrap_or_default();
    FlatPage { key_hashes, answer_hashes, ..page }
}

/// Adds rejects to a page.
pub(in crate::load) fn with_rejects(mut page: FlatPage, rejects: Vec<Reject>) -> FlatPage {
    page.records += rejects.len();
    page.rejects = rejects;
    page
}

/// Pages with nothing but the wanted rows and columns, as `flatten` builds them from a spool.
pub(in crate::load) struct WantedRows<'p>(pub &'p [FlatPage]);

impl Pages for WantedRows<'_> {
    fn for_each(
        &self,
        wanted: Wanted<'_>,
        take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        self.0.iter().enumerate().try_for_each(|(page_number, page)| match wanted.detail(page_number) {
            PageDetail::Rows => take(page),
            PageDetail::Summary => take(&summary(page)),
            PageDetail::Records(records) => take(&part(page, &records)),
        })
    }
}

fn summary(page: &FlatPage) -> FlatPage {
    let summarized = |batch: &TableBatch| {
        let (table, schema) = (schema::table(batch.table).unwrap(), batch.rows.schema());
        let columns = (0..schema.fields().len()).filter(|index| table.is_in_summary(schema.field(*index).name()));
        let rows = batch.rows.project(&columns.collect::<Vec<_>>()).unwrap();
        (rows.num_columns() > 0).then_some(TableBatch { table: batch.table, rows })
    };
    FlatPage { batches: page.batches.iter().filter_map(summarized).collect(), is_summary: true, ..page.clone() }
}

fn part(page: &FlatPage, records: &RecordSet) -> FlatPage {
    let is_wanted = |rows: &RecordBatch| -> BooleanArray {
        let numbers = rows.column_by_name("_record").unwrap().as_primitive::<Int64Type>();
        numbers.values().iter().map(|record| Some(records.contains(*record))).collect()
    };
    let part = page.batches.iter().map(|batch| {
        let rows = filter_record_batch(&batch.rows, &is_wanted(&batch.rows)).unwrap();
        TableBatch { table: batch.table, rows }
    });
    with_keys(FlatPage { batches: part.filter(|batch| batch.rows.num_rows() > 0).collect(), ..FlatPage::default() })
}

/// Builds the batch of a table; `None` without rows.
fn batch(table: &'static str, rows: Vec<Value>) -> Option<TableBatch> {
    (!rows.is_empty()).then(|| TableBatch { table, rows: record_batch(table, &rows) })
}

fn record_batch(table: &str, rows: &[Value]) -> RecordBatch {
    let schema = schema::table(table).unwrap().flat_schema();
    let mut decoder = ReaderBuilder::new(Arc::clone(&schema)).with_batch_size(rows.len()).build_decoder().unwrap();
    // The reader fails if a row lacks a value where the contract's schema allows no NULL.
    decoder.serialize(rows).unwrap();
    decoder.flush().unwrap().unwrap()
}
