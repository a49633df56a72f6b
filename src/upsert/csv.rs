//! Reads CSV with a header, as programs and spreadsheets write it.
//!
//! The name of a column can end with the type of its cells: `attributes.seats:integer`, `attributes.is_admin:boolean`,
//! `attributes.score:number`, `attributes.tags:json`. The cells of all other columns, and of names that end with
//! `:string`, are texts. An empty cell leaves its value out, and an empty row is skipped.

use std::{borrow::Cow, io::Read};

use super::{
    InputError, Row, RowSink, UnsendableRow, Upsert,
    csv_records::{Record, RecordReader, Splitter},
    json_members::{Member, compact, excerpt, is_json},
    row::{ATTRIBUTE_PREFIX, IdSource, USER_ID, check_columns, is_blank, read_members},
};
use crate::{
    json::{Shape, shape},
    text::decoding,
};

/// The accepted separators of cells, the most likely first.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// How the cells of a column are converted to JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellType {
    /// A text whose surrounding blanks belong to the value.
    Attribute,
    /// A text without its surrounding blanks.
    Text,
    Integer,
    Number,
    Boolean,
    Json,
}

/// A column of the input. Spreadsheets write columns without a name, whose cells must be empty.
struct Column {
    /// The name in the header, with the type; empty for a column without a name.
    header: String,
    /// The name in the header, without the type.
    name: String,
    cell_type: CellType,
}

/// Passes each row to `take` until `take` returns false. Skips rows without a value. A row that cannot be sent is
/// passed with the reason.
///
/// # Errors
/// If reading fails, or the names of the columns are wrong.
pub fn read_csv(input: impl Read, take: &mut RowSink<'_>) -> Result<(), InputError> {
    let mut records = RecordReader::new(decoding(input, None).map_err(InputError::Read)?);
    let columns = read_header(&mut records)?;
    let mut number = 0;
    loop {
        let is_row = |cells: &[Vec<u8>]| looks_like_a_row(&columns, cells);
        let Some(Record { line, cells }) = records.next(is_row)? else { return Ok(()) };
        if cells.as_ref().is_ok_and(|cells| cells.iter().all(|cell| is_empty(cell))) {
            continue;
        }
        number += 1;
        let read = cells.map_err(UnsendableRow::of).and_then(|cells| read_record(&columns, records.separator, &cells));
        if !take(Row { number, read: read.map_err(|aside| aside.on_line(line)) }) {
            return Ok(());
        }
    }
}

/// Reads the header and sets the separator: the one of a line such as `sep=;` before the header, otherwise a guess.
/// Fails if the input is empty, or if a name of a column is unknown, repeated or not UTF-8.
fn read_header<R: Read>(records: &mut RecordReader<R>) -> Result<Vec<Column>, InputError> {
    let empty =
        || InputError::Columns("the input is empty: its first line must contain the names of the columns".to_owned());
    let mut line = records.peek_line()?.ok_or_else(empty)?;
    // Some spreadsheets write a line with the separator before the header.
    let declared = line.strip_prefix(b"sep=").filter(|rest| rest.len() == 1).and_then(|rest| rest.first().copied());
    if declared.is_some() {
        records.skip_line()?;
        line = records.peek_line()?.ok_or_else(empty)?;
    }
    records.separator = declared.unwrap_or_else(|| guess_separator(line));
    let record = records.next(|_| false)?.ok_or_else(empty)?;
    let wrong = |problem: String| InputError::Columns(format!("line {}: {problem}", record.line));
    let cells = record.cells.map_err(wrong)?;
    let mut columns = Vec::with_capacity(cells.len());
    for cell in &cells {
        let name = std::str::from_utf8(cell).map_err(|_| wrong(format!("a name is not UTF-8{OTHER_ENCODING}")))?;
        columns.push(column_of(name.trim_matches(is_blank)));
    }
    let named = columns.iter().map(|column| column.name.as_str()).filter(|name| !name.is_empty());
    check_columns(named).map_err(InputError::Columns)?;
    Ok(columns)
}

/// Ends a reason that says that a text is not UTF-8.
const OTHER_ENCODING: &str =
    ": save the file as 'CSV UTF-8', or name its --encoding (windows-1252 in much of Europe and America)";

/// Parses a name in the header. Only the name of an attribute can end with a type.
fn column_of(header: &str) -> Column {
    let name = header;
    let typed = name.strip_prefix(ATTRIBUTE_PREFIX).and_then(|_| name.rsplit_once(':'));
    let (name, cell_type) = match typed {
        Some((name, "integer")) => (name, CellType::Integer),
        Some((name, "number")) => (name, CellType::Number),
        Some((name, "boolean")) => (name, CellType::Boolean),
        Some((name, "json")) => (name, CellType::Json),
        Some((name, "string")) => (name, CellType::Attribute),
        _ if name.starts_with(ATTRIBUTE_PREFIX) => (name, CellType::Attribute),
        _ => (name, CellType::Text),
    };
    Column { header: header.to_owned(), name: name.to_owned(), cell_type }
}

/// Returns the first separator that gives the header `line` a column `userId`; if there is none, the most frequent one.
fn guess_separator(line: &[u8]) -> u8 {
    let has_users = |separator: &u8| match Splitter::new(*separator).feed(line) {
        Ok(Some(cells)) => {
            cells.iter().any(|cell| std::str::from_utf8(cell).is_ok_and(|name| name.trim_matches(is_blank) == USER_ID))
        }
        _ => false,
    };
    let most_frequent = || {
        let count = |separator: &&u8| line.iter().filter(|byte| byte == separator).count();
        // If several are equally frequent, `rev` makes `max_by_key` return the first.
        SEPARATORS.iter().rev().max_by_key(count).copied()
    };
    SEPARATORS.iter().find(|separator| has_users(separator)).copied().or_else(most_frequent).unwrap_or(b',')
}

fn is_empty(cell: &[u8]) -> bool {
    std::str::from_utf8(cell).is_ok_and(|text| text.chars().all(is_blank))
}

/// Returns true if the cells of a line look like a row. A line inside a quoted cell is mostly a sentence, where a blank
/// follows each comma. So a line with a cell that begins with a blank does not look like a row.
fn looks_like_a_row(columns: &[Column], cells: &[Vec<u8>]) -> bool {
    columns.len() > 1
        && cells.len() == columns.len()
        && !cells.iter().any(|cell| cell.starts_with(b" "))
        && read_record(columns, b',', cells).is_ok()
}

/// Parses the cells of a row. A row with several problems fails with the most general reason: the row repeats the
/// header, then a wrong number of cells, then the first wrong cell. The error has the user id if its cell can be read.
fn read_record(columns: &[Column], separator: u8, cells: &[Vec<u8>]) -> Result<Upsert, UnsendableRow> {
    let mut members: Vec<Member<'_>> = Vec::new();
    let mut problem = None;
    for (column, cell) in columns.iter().zip(cells) {
        match read_cell(column, cell) {
            Ok(Some(value)) => members.push((column.name.clone(), Cow::Owned(value))),
            Ok(None) => {}
            Err(reason) => drop(problem.get_or_insert(reason)),
        }
    }
    let surplus = cells.get(columns.len()..).unwrap_or_default();
    if cells.len() < columns.len() || !surplus.iter().all(|cell| is_empty(cell)) {
        let between = match separator {
            b'\t' => "tabs".to_owned(),
            other => format!("'{}'", char::from(other)),
        };
        problem = Some(format!(
            "it has {} cells, separated by {between}, but there are {} columns",
            cells.len(),
            columns.len()
        ));
    }
    let is_name = |(column, cell): (&Column, &Vec<u8>)| {
        std::str::from_utf8(cell).is_ok_and(|cell| cell.trim_matches(is_blank) == column.header)
    };
    if columns.iter().zip(cells).all(is_name) {
        problem = Some("it repeats the header".to_owned());
    }
    match problem {
        Some(reason) => {
            let user_id = members.iter().find(|(name, _)| name == USER_ID);
            let user_id = user_id.and_then(|(_, json)| serde_json::from_str(json).ok());
            Err(UnsendableRow { user_id, reason })
        }
        None => read_members(members, IdSource::Text),
    }
}

/// Converts a cell to JSON, by the type of its column. Returns `None` if the cell is empty. Fails with the reason if
/// the cell does not fit the type, is not UTF-8, or has a value in a column without a name.
fn read_cell(column: &Column, cell: &[u8]) -> Result<Option<String>, String> {
    if column.name.is_empty() {
        return match is_empty(cell) {
            true => Ok(None),
            false => Err("a column without a name has a value".to_owned()),
        };
    }
    let name = excerpt(&column.name);
    let text = std::str::from_utf8(cell).map_err(|_| format!("the cell of {name} is not UTF-8{OTHER_ENCODING}"))?;
    if text.contains('\0') {
        return Err(format!("the cell of {name} contains a NUL byte"));
    }
    let trimmed = text.trim_matches(is_blank);
    if text.is_empty() || (trimmed.is_empty() && column.cell_type != CellType::Attribute) {
        return Ok(None);
    }
    let wrong = |what: &str| Err(format!("'{}' in the column {name} is {what}", excerpt(text)));
    let json = |text: &str| serde_json::Value::from(text).to_string();
    let value = match column.cell_type {
        CellType::Attribute => json(text),
        CellType::Text => json(trimmed),
        CellType::Integer => {
            // Spreadsheets and tables of floats write 5 as 5.0.
            let whole = trimmed.split_once('.').filter(|(_, zeros)| zeros.bytes().all(|zero| zero == b'0'));
            match whole.map_or(trimmed, |(whole, _)| whole).parse::<i64>() {
                Ok(number) => number.to_string(),
                Err(_) => return wrong("not an integer"),
            }
        }
        CellType::Number if shape(trimmed) == Shape::Number && is_json(trimmed) => trimmed.to_owned(),
        CellType::Number => return wrong("not a number such as 1.5"),
        CellType::Json if is_json(trimmed) => compact(trimmed),
        CellType::Json => return wrong("not JSON"),
        CellType::Boolean => match trimmed.to_ascii_lowercase().as_str() {
            "true" => "true".to_owned(),
            "false" => "false".to_owned(),
            _ => return wrong("neither true nor false"),
        },
    };
    Ok(Some(value))
}
