//! CSV with a line of names first. A cell says nothing of its type, so the name does: `attributes.seats:integer`,
//! `attributes.is_admin:boolean`; any other attribute is a text. An empty cell says nothing of its column.

use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

use csv::{ByteRecord, ReaderBuilder};
use serde_json::{Map, Value};

use super::{
    InputError, ROW_BYTES_MAX, Row, SetAside, Take,
    row::{ATTRIBUTE_PREFIX, check_columns, read_members, shown},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellType {
    Text,
    Integer,
    Boolean,
}

struct Column {
    name: String,
    cell_type: CellType,
}

/// Hands over each row.
///
/// # Errors
/// If the bytes stop coming, the columns are not those of users, or a row does not end.
pub fn read_csv(input: impl Read, take: &mut Take<'_>) -> Result<(), InputError> {
    let left = Rc::new(Cell::new(ROW_BYTES_MAX));
    let bounded = Bounded { input, left: Rc::clone(&left) };
    let mut reader = ReaderBuilder::new().flexible(true).has_headers(false).from_reader(bounded);
    let mut record = ByteRecord::new();
    let mut next = |record: &mut ByteRecord, row: u64| {
        left.set(ROW_BYTES_MAX);
        match reader.read_byte_record(record) {
            Ok(is_there) => Ok(is_there),
            Err(_) if left.get() == 0 => Err(InputError::RowTooLong { row }),
            Err(error) => Err(InputError::Read(error.into())),
        }
    };
    if !next(&mut record, 0)? {
        return Err(InputError::Columns("the input is empty: its first line has the names of the columns".to_owned()));
    }
    let columns = read_header(&record)?;
    for number in 1.. {
        if !next(&mut record, number)? || !take(Row { number, read: read_record(&columns, &record) }) {
            return Ok(());
        }
    }
    Ok(())
}

fn read_header(record: &ByteRecord) -> Result<Vec<Column>, InputError> {
    let mut columns = Vec::with_capacity(record.len());
    for (at, name) in record.iter().enumerate() {
        let name = std::str::from_utf8(name).map_err(|_| InputError::Columns("a name is not UTF-8".to_owned()))?;
        // Some programs begin a file with a mark of its encoding.
        let name = if at == 0 { name.trim_start_matches('\u{feff}') } else { name }.trim();
        let typed = name.strip_prefix(ATTRIBUTE_PREFIX).and_then(|_| name.rsplit_once(':'));
        let (name, cell_type) = match typed {
            Some((name, "integer")) => (name, CellType::Integer),
            Some((name, "boolean")) => (name, CellType::Boolean),
            Some((name, "string")) => (name, CellType::Text),
            _ => (name, CellType::Text),
        };
        columns.push(Column { name: name.to_owned(), cell_type });
    }
    check_columns(columns.iter().map(|column| column.name.as_str())).map_err(InputError::Columns)?;
    Ok(columns)
}

fn read_record(columns: &[Column], record: &ByteRecord) -> Result<super::Upsert, SetAside> {
    let mut members = Map::new();
    let mut problem = None;
    for (column, cell) in columns.iter().zip(record) {
        match read_cell(column, cell) {
            Ok(Some(value)) => drop(members.insert(column.name.clone(), value)),
            Ok(None) => {}
            Err(reason) => drop(problem.get_or_insert(reason)),
        }
    }
    if record.len() != columns.len() {
        problem = Some(format!("it has {} cells, and there are {} columns", record.len(), columns.len()));
    }
    let user_id = members.get("userId").and_then(Value::as_str).map(str::to_owned);
    match problem {
        Some(reason) => Err(SetAside { user_id, reason }),
        None => read_members(members),
    }
}

fn read_cell(column: &Column, cell: &[u8]) -> Result<Option<Value>, String> {
    let name = shown(&column.name);
    let text = std::str::from_utf8(cell).map_err(|_| format!("the cell of {name} is not UTF-8"))?;
    if text.is_empty() {
        return Ok(None);
    }
    let value = match column.cell_type {
        CellType::Text => Value::from(text),
        CellType::Integer => match text.trim().parse::<i64>() {
            Ok(number) => Value::from(number),
            Err(_) => return Err(format!("'{}' in the column {name} is no integer", shown(text))),
        },
        CellType::Boolean => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Value::from(true),
            "false" => Value::from(false),
            _ => return Err(format!("'{}' in the column {name} is neither true nor false", shown(text))),
        },
    };
    Ok(Some(value))
}

/// Stops where a row is too long: the reader would take all the rest of the input for it.
struct Bounded<R> {
    input: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            return Err(io::Error::other("the row is too long"));
        }
        let count = self.input.read(buffer)?;
        self.left.set(self.left.get().saturating_sub(count));
        Ok(count)
    }
}
