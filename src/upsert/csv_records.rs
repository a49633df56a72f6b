//! Splits CSV into records, strictly: a quote must open a cell or be doubled within one, and a separator must follow
//! the closing quote. A record that breaks this rule is reported with the number of its first line, and its later lines
//! are read as new records. This file does not interpret columns.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
};

use memchr::memchr2;

use super::{InputError, ROW_BYTES_MAX};

/// Maximum number of lines of a record.
const LINES_MAX: usize = 10_000;

/// One line of the input.
#[derive(Debug)]
struct Line {
    /// The number of the line, from 1.
    number: u64,
    /// The text without the line end.
    text: Vec<u8>,
    /// The line end: CR, LF or both; empty for the last line of the input.
    end: &'static [u8],
    /// True if the line is longer than [`ROW_BYTES_MAX`], so that `text` is only the beginning of the line.
    is_too_long: bool,
}

/// A record of the input.
#[derive(Debug)]
pub(super) struct Record {
    /// The number of the record's first line, from 1.
    pub line: u64,
    /// The cells, or why the record cannot be split.
    pub cells: Result<Vec<Vec<u8>>, String>,
}

/// Reads the records of an input.
pub(super) struct RecordReader<R> {
    input: BufReader<R>,
    /// Number of lines that were read from `input`.
    lines_read: u64,
    /// Lines to read again before the rest of the input.
    unread: VecDeque<Line>,
    /// Records to return before the next record is read.
    pending: VecDeque<Record>,
    /// The byte between two cells.
    pub separator: u8,
}

impl<R: Read> RecordReader<R> {
    pub fn new(input: R) -> Self {
        RecordReader {
            input: BufReader::new(input),
            lines_read: 0,
            unread: VecDeque::new(),
            pending: VecDeque::new(),
            separator: b',',
        }
    }

    /// Returns the text of the next line that is not empty, without consuming it; `None` at the end of the input.
    pub fn peek_line(&mut self) -> Result<Option<&[u8]>, InputError> {
        loop {
            let Some(line) = self.next_line()? else { return Ok(None) };
            if !line.text.is_empty() {
                self.unread.push_front(line);
                return Ok(self.unread.front().map(|line| line.text.as_slice()));
            }
        }
    }

    /// Skips the next line.
    pub fn skip_line(&mut self) -> Result<(), InputError> {
        self.next_line().map(drop)
    }

    /// Returns the next record; `None` at the end of the input. If the record cannot be split, its first line is an
    /// invalid record, and its later lines are read as new records. `is_row` returns true if cells look like a row. If
    /// a quoted cell contains a line that looks like a row, a closing quote is probably missing. All lines of this
    /// record are returned as invalid records.
    pub fn next(&mut self, is_row: impl Fn(&[Vec<u8>]) -> bool) -> Result<Option<Record>, InputError> {
        if let Some(record) = self.pending.pop_front() {
            return Ok(Some(record));
        }
        let Some(mut line) = self.next_line()? else { return Ok(None) };
        let first = line.number;
        let mut splitter = Splitter::new(self.separator);
        let (mut following, mut bytes) = (VecDeque::new(), 0);
        let problem = loop {
            bytes += line.text.len() + line.end.len();
            let outcome = match line.is_too_long || bytes > ROW_BYTES_MAX || following.len() >= LINES_MAX {
                true => Err(format!("the row is longer than {ROW_BYTES_MAX} bytes")),
                false => splitter.feed(&line.text),
            };
            let (number, end) = (line.number, line.end);
            if number != first {
                following.push_back(line);
            }
            match outcome {
                // A problem in a later line shows that the open quote of an earlier line is not closed.
                Err(problem) => break if number == first { problem } else { splitter.not_closed() },
                Ok(Some(cells)) => return Ok(Some(self.checked(first, cells, &following, is_row))),
                Ok(None) => splitter.push_line_end(end),
            }
            match self.next_line()? {
                Some(next) => line = next,
                None => break splitter.not_closed(),
            }
        };
        following.append(&mut self.unread);
        self.unread = following;
        Ok(Some(Record { line: first, cells: Err(problem) }))
    }

    /// Returns the record that begins on the line `first`. If one of the record's later lines (`following`) looks like
    /// a row, the record is invalid, and each later line becomes a pending invalid record.
    fn checked(
        &mut self,
        first: u64,
        cells: Vec<Vec<u8>>,
        following: &VecDeque<Line>,
        is_row: impl Fn(&[Vec<u8>]) -> bool,
    ) -> Record {
        let last = following.back().map_or(first, |line| line.number);
        let looks_like_a_row = |line: &&Line| {
            let mut text = line.text.clone();
            let quotes = text.iter().filter(|byte| **byte == b'"').count();
            // On the last line, the quote that seems to close the cell may open another cell.
            if line.number == last && quotes == 1 {
                text.retain(|byte| *byte != b'"');
            }
            matches!(Splitter::new(self.separator).feed(&text), Ok(Some(cells)) if is_row(&cells))
        };
        let Some(row) = following.iter().find(looks_like_a_row).map(|line| line.number) else {
            return Record { line: first, cells: Ok(cells) };
        };
        self.pending.extend(following.iter().map(|line| {
            let why = format!("it is inside quotes that begin on line {first} and seem not to be closed there");
            Record { line: line.number, cells: Err(why) }
        }));
        let why = format!("its quotes contain line {row}, which looks like a row of its own: is a quote not closed?");
        Record { line: first, cells: Err(why) }
    }

    fn next_line(&mut self) -> Result<Option<Line>, InputError> {
        match self.unread.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.read_line().map_err(InputError::Read),
        }
    }

    /// Reads a line of the input; `None` at the end of the input. LF, CR, and CR with LF end a line. Of a longer line,
    /// only the first [`ROW_BYTES_MAX`] bytes are kept.
    fn read_line(&mut self) -> std::io::Result<Option<Line>> {
        let mut line = Line { number: self.lines_read + 1, text: Vec::new(), end: b"", is_too_long: false };
        let mut is_begun = false;
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            is_begun = true;
            let end = memchr2(b'\n', b'\r', buffer);
            let text = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            let room = ROW_BYTES_MAX - line.text.len();
            line.is_too_long |= text.len() > room;
            line.text.extend_from_slice(text.get(..room.min(text.len())).unwrap_or_default());
            let line_end = end.and_then(|at| buffer.get(at)).copied();
            let used = text.len() + usize::from(line_end.is_some());
            self.input.consume(used);
            match line_end {
                None => continue,
                Some(b'\n') => line.end = b"\n",
                Some(_) if self.input.fill_buf()?.first() == Some(&b'\n') => {
                    self.input.consume(1);
                    line.end = b"\r\n";
                }
                Some(_) => line.end = b"\r",
            }
            break;
        }
        self.lines_read += u64::from(is_begun);
        Ok(is_begun.then_some(line))
    }
}

/// Where in a cell the splitter is.
enum CellState {
    /// Before the first byte.
    Start,
    /// In a cell without quotes.
    Unquoted,
    /// Between the quotes of a cell.
    Quoted,
    /// After a quote within a quoted cell. The quote closes the cell, or is the first of two that mean one quote.
    AfterQuote,
}

/// Splits the lines of one record into cells.
pub(super) struct Splitter {
    separator: u8,
    /// The complete cells of the record.
    cells: Vec<Vec<u8>>,
    /// The bytes of the current cell.
    cell: Vec<u8>,
    state: CellState,
}

impl Splitter {
    pub fn new(separator: u8) -> Self {
        Splitter { separator, cells: Vec::new(), cell: Vec::new(), state: CellState::Start }
    }

    /// Splits the next line of the record. Returns the cells of the record if the record ends with this line; `None` if
    /// a quoted cell continues on the next line.
    ///
    /// # Errors
    /// If a quote is in a wrong position.
    pub fn feed(&mut self, text: &[u8]) -> Result<Option<Vec<Vec<u8>>>, String> {
        for byte in text.iter().copied() {
            let is_separator = byte == self.separator;
            self.state = match (&self.state, byte) {
                (CellState::Start, b'"') => CellState::Quoted,
                (CellState::Unquoted, b'"') => {
                    return Err(format!(
                        "cell {} contains a quote but does not begin with one: put the cell into quotes, and write each quote in it twice",
                        self.cells.len() + 1
                    ));
                }
                (CellState::Quoted, b'"') => CellState::AfterQuote,
                (CellState::AfterQuote, b'"') => {
                    self.cell.push(byte);
                    CellState::Quoted
                }
                (CellState::Start | CellState::Unquoted | CellState::AfterQuote, _) if is_separator => {
                    self.cells.push(std::mem::take(&mut self.cell));
                    CellState::Start
                }
                (CellState::AfterQuote, _) => {
                    return Err(format!(
                        "text follows the closing quote of cell {}: write each quote inside a quoted cell twice",
                        self.cells.len() + 1
                    ));
                }
                (CellState::Quoted, _) => {
                    self.cell.push(byte);
                    CellState::Quoted
                }
                (CellState::Start | CellState::Unquoted, _) => {
                    self.cell.push(byte);
                    CellState::Unquoted
                }
            };
        }
        if matches!(self.state, CellState::Quoted) {
            return Ok(None);
        }
        self.cells.push(std::mem::take(&mut self.cell));
        self.state = CellState::Start;
        Ok(Some(std::mem::take(&mut self.cells)))
    }

    fn push_line_end(&mut self, end: &[u8]) {
        self.cell.extend_from_slice(end);
    }

    fn not_closed(&self) -> String {
        format!("the quote that begins cell {} is not closed", self.cells.len() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns for each record its line number and its cells joined by `|`, or `!` and the problem.
    fn split(text: &str) -> Vec<String> {
        let mut records = RecordReader::new(text.as_bytes());
        let mut found = Vec::new();
        while let Some(record) = records.next(|cells| cells.len() == 2).unwrap() {
            let cells =
                record.cells.map(|cells| cells.iter().map(|cell| String::from_utf8_lossy(cell).into()).collect());
            let shown = cells.map_or_else(|problem| format!("!{problem}"), |cells: Vec<String>| cells.join("|"));
            found.push(format!("{} {shown}", record.line));
        }
        found
    }

    #[test]
    fn records_are_split_at_every_kind_of_line_end() {
        assert_eq!(split("a,b\nc,\"d\"\r\ne,\r\"f\",g"), ["1 a|b", "2 c|d", "3 e|", "4 f|g"]);
        assert_eq!(split("a,\"x\r\ny, \"\"z\"\"\"\nb,c"), ["1 a|x\r\ny, \"z\"", "3 b|c"]);
        assert_eq!(split(""), Vec::<String>::new());
        assert_eq!(split("\"\""), ["1 "]);
    }

    #[test]
    fn an_unclosed_quote_makes_only_its_own_line_invalid() {
        let found = split("a,\"b\nc,d\ne,\"f\"\ng,h\n");
        assert!(found[0].starts_with("1 !the quote that begins cell 2 is not closed"), "{found:?}");
        assert_eq!(found[1..], ["2 c|d", "3 e|f", "4 g|h"]);
        let found = split("a,b\nc,\"d\ne,f");
        assert!(found[1].starts_with("2 !") && found[2] == "3 e|f", "{found:?}");
        let found = split("a,b\"c\nd,\"e\"f\ng,h");
        assert!(
            found[0].contains("cell 2 contains a quote") && found[1].contains("text follows the closing quote"),
            "{found:?}"
        );
        assert_eq!(found[2], "3 g|h");
    }

    #[test]
    fn rows_inside_an_unclosed_quote_are_all_reported() {
        let found = split("a,\"b\nc,d\ne,\"\nf,g");
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("contain line 2"), "{found:?}");
        assert!(found[1..3].iter().all(|record| record.contains("quotes that begin on line 1")), "{found:?}");
        assert_eq!(found[3], "4 f|g");
        assert!(split("a,\"b\nc,d\"\ne,f")[0].contains("contain line 2"));
        assert_eq!(split("a,\"one\ntwo\nthree\"\n"), ["1 a|one\ntwo\nthree"]);
    }

    #[test]
    fn p8_a_line_that_is_too_long_is_reported_and_skipped() {
        let long = "x".repeat(ROW_BYTES_MAX + 1);
        let found = split(&format!("{long}\na,b\nc,\"{}\nd,e", "y\n".repeat(2 * LINES_MAX)));
        assert!(found[0].contains("longer than") && found[1] == "2 a|b", "{}", found.len());
        assert!(found[2].contains("is not closed") && found[3] == "4 y", "{}", found.len());
        assert_eq!(found.last().map(String::as_str), Some(format!("{} d|e", 2 * LINES_MAX + 4).as_str()));
    }
}
