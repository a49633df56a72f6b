//! Splits CSV into records, strictly: a quote begins a cell or is written twice inside of one, and nothing but a
//! separator follows the quote that ends it. A record that breaks this is told with its lines, and the lines behind its
//! first one are read as rows of their own. Knows no columns.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
};

use memchr::memchr2;

use super::{InputError, ROW_BYTES_MAX};

/// The most lines of a record.
const LINES_MAX: usize = 10_000;

/// One line of the input.
#[derive(Debug)]
struct Line {
    /// From 1.
    number: u64,
    /// Without its end.
    text: Vec<u8>,
    end: &'static [u8],
    /// Whether it is longer than a row may be; then the rest of it is skipped.
    is_cut: bool,
}

/// A record and where it stands.
#[derive(Debug)]
pub(super) struct Record {
    /// Its first line, from 1.
    pub line: u64,
    /// Its cells, or why it has none.
    pub cells: Result<Vec<Vec<u8>>, String>,
}

/// Takes an input apart.
pub(super) struct RecordReader<R> {
    input: BufReader<R>,
    lines_read: u64,
    /// Lines that were read ahead.
    waiting: VecDeque<Line>,
    /// RecordReader that were found together with an earlier one.
    found: VecDeque<Record>,
    pub separator: u8,
}

impl<R: Read> RecordReader<R> {
    pub fn new(input: R) -> Self {
        RecordReader {
            input: BufReader::new(input),
            lines_read: 0,
            waiting: VecDeque::new(),
            found: VecDeque::new(),
            separator: b',',
        }
    }

    /// The text of the line that comes next, which stays to be read. Empty lines before it are skipped.
    pub fn peek_line(&mut self) -> Result<Option<&[u8]>, InputError> {
        loop {
            let Some(line) = self.next_line()? else { return Ok(None) };
            let is_empty = line.text.is_empty();
            if !is_empty {
                self.waiting.push_front(line);
                return Ok(self.waiting.front().map(|line| line.text.as_slice()));
            }
        }
    }

    /// Reads over a line.
    pub fn skip_line(&mut self) -> Result<(), InputError> {
        self.next_line().map(drop)
    }

    /// The next record. `is_row` says whether cells could be a row: a cell in quotes that holds such a line is taken
    /// for one that was never closed, and none of its lines is believed.
    pub fn next(&mut self, is_row: impl Fn(&[Vec<u8>]) -> bool) -> Result<Option<Record>, InputError> {
        if let Some(found) = self.found.pop_front() {
            return Ok(Some(found));
        }
        let Some(mut line) = self.next_line()? else { return Ok(None) };
        let first = line.number;
        let mut splitter = Splitter::new(self.separator);
        let (mut taken, mut bytes) = (VecDeque::new(), 0);
        let problem = loop {
            bytes += line.text.len() + line.end.len();
            if line.is_cut || bytes > ROW_BYTES_MAX || taken.len() >= LINES_MAX {
                break match taken.is_empty() && line.number == first {
                    true => format!("the row is longer than {ROW_BYTES_MAX} bytes"),
                    false => splitter.never_closed(),
                };
            }
            match splitter.feed(&line.text) {
                Err(problem) => {
                    break if line.number == first { problem } else { splitter.never_closed() };
                }
                Ok(LineOutcome::Whole(cells)) if line.number == first => {
                    return Ok(Some(Record { line: first, cells: Ok(cells) }));
                }
                Ok(LineOutcome::Whole(cells)) => {
                    taken.push_back(line);
                    return Ok(Some(self.checked(first, cells, &taken, is_row)));
                }
                Ok(LineOutcome::Open) => splitter.push_end(line.end),
            }
            if line.number != first {
                taken.push_back(line);
            }
            match self.next_line()? {
                Some(next) => line = next,
                None => {
                    self.waiting = taken;
                    return Ok(Some(Record { line: first, cells: Err(splitter.never_closed()) }));
                }
            }
        };
        if line.number != first {
            taken.push_back(line);
        }
        // Whatever was read ahead is read again, before what waited already.
        taken.append(&mut self.waiting);
        self.waiting = taken;
        Ok(Some(Record { line: first, cells: Err(problem) }))
    }

    /// A record of several lines, unless one of these looks like a row of its own.
    fn checked(
        &mut self,
        first: u64,
        cells: Vec<Vec<u8>>,
        behind: &VecDeque<Line>,
        is_row: impl Fn(&[Vec<u8>]) -> bool,
    ) -> Record {
        let last = behind.back().map_or(first, |line| line.number);
        let looks_like_a_row = |line: &&Line| {
            let mut text = line.text.clone();
            let quotes = text.iter().filter(|byte| **byte == b'"').count();
            // The quote that seems to close the cell, and may be one that opens another.
            if line.number == last && quotes == 1 {
                text.retain(|byte| *byte != b'"');
            }
            matches!(Splitter::new(self.separator).feed(&text), Ok(LineOutcome::Whole(cells)) if is_row(&cells))
        };
        let Some(row) = behind.iter().find(looks_like_a_row).map(|line| line.number) else {
            return Record { line: first, cells: Ok(cells) };
        };
        let swallowed = behind.iter().map(|line| {
            let why = format!("it stands inside quotes that begin on line {first} and seem not to be closed there");
            Record { line: line.number, cells: Err(why) }
        });
        self.found.extend(swallowed);
        let why = format!("its quotes hold line {row}, which looks like a row of its own: is a quote not closed?");
        Record { line: first, cells: Err(why) }
    }

    fn next_line(&mut self) -> Result<Option<Line>, InputError> {
        match self.waiting.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.read_line().map_err(InputError::Read),
        }
    }

    fn read_line(&mut self) -> std::io::Result<Option<Line>> {
        let mut line = Line { number: self.lines_read + 1, text: Vec::new(), end: b"", is_cut: false };
        let mut is_begun = false;
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            is_begun = true;
            let end = memchr2(b'\n', b'\r', buffer);
            let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            let room = ROW_BYTES_MAX - line.text.len();
            line.is_cut |= part.len() > room;
            line.text.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
            let found = end.and_then(|at| buffer.get(at)).copied();
            let used = part.len() + usize::from(found.is_some());
            self.input.consume(used);
            match found {
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

/// What came of a line.
pub(super) enum LineOutcome {
    /// The record ends with it.
    Whole(Vec<Vec<u8>>),
    /// Its last cell goes on.
    Open,
}

enum CellState {
    /// Before the first byte of a cell.
    Start,
    /// In a cell without quotes.
    Bare,
    Quoted,
    /// Behind a quote in a cell with quotes.
    Closed,
}

/// Takes the lines of one record apart.
pub(super) struct Splitter {
    separator: u8,
    cells: Vec<Vec<u8>>,
    cell: Vec<u8>,
    place: CellState,
}

impl Splitter {
    pub fn new(separator: u8) -> Self {
        Splitter { separator, cells: Vec::new(), cell: Vec::new(), place: CellState::Start }
    }

    pub fn feed(&mut self, text: &[u8]) -> Result<LineOutcome, String> {
        for byte in text.iter().copied() {
            let is_separator = byte == self.separator;
            self.place = match (&self.place, byte) {
                (CellState::Start, b'"') => CellState::Quoted,
                (CellState::Bare, b'"') => {
                    return Err(format!(
                        "cell {} holds a quote and does not begin with one: put the whole cell into quotes, and write each quote in it twice",
                        self.cells.len() + 1
                    ));
                }
                (CellState::Quoted, b'"') => CellState::Closed,
                (CellState::Closed, b'"') => {
                    self.cell.push(byte);
                    CellState::Quoted
                }
                (CellState::Start | CellState::Bare | CellState::Closed, _) if is_separator => {
                    self.cells.push(std::mem::take(&mut self.cell));
                    CellState::Start
                }
                (CellState::Closed, _) => {
                    return Err(format!(
                        "the quotes of cell {} end before the cell does: write each quote inside of them twice",
                        self.cells.len() + 1
                    ));
                }
                (CellState::Quoted, _) => {
                    self.cell.push(byte);
                    CellState::Quoted
                }
                (CellState::Start | CellState::Bare, _) => {
                    self.cell.push(byte);
                    CellState::Bare
                }
            };
        }
        if matches!(self.place, CellState::Quoted) {
            return Ok(LineOutcome::Open);
        }
        self.cells.push(std::mem::take(&mut self.cell));
        self.place = CellState::Start;
        Ok(LineOutcome::Whole(std::mem::take(&mut self.cells)))
    }

    /// The end of a line inside quotes.
    fn push_end(&mut self, end: &[u8]) {
        self.cell.extend_from_slice(end);
    }

    fn never_closed(&self) -> String {
        format!("the quote that begins cell {} is not closed", self.cells.len() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each record as its line, and its cells joined by `|` or the problem after `!`.
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
    fn a_quote_that_is_not_closed_costs_its_own_line() {
        let found = split("a,\"b\nc,d\ne,\"f\"\ng,h\n");
        assert!(found[0].starts_with("1 !the quote that begins cell 2 is not closed"), "{found:?}");
        assert_eq!(found[1..], ["2 c|d", "3 e|f", "4 g|h"]);
        let found = split("a,b\nc,\"d\ne,f");
        assert!(found[1].starts_with("2 !") && found[2] == "3 e|f", "{found:?}");
        let found = split("a,b\"c\nd,\"e\"f\ng,h");
        assert!(found[0].contains("cell 2 holds a quote") && found[1].contains("end before the cell"), "{found:?}");
        assert_eq!(found[2], "3 g|h");
    }

    #[test]
    fn rows_that_a_later_quote_would_swallow_are_all_told() {
        let found = split("a,\"b\nc,d\ne,\"\nf,g");
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("hold line 2"), "{found:?}");
        assert!(found[1..3].iter().all(|record| record.contains("quotes that begin on line 1")), "{found:?}");
        assert_eq!(found[3], "4 f|g");
        assert!(split("a,\"b\nc,d\"\ne,f")[0].contains("hold line 2"));
        assert_eq!(split("a,\"one\ntwo\nthree\"\n"), ["1 a|one\ntwo\nthree"]);
    }

    #[test]
    fn p8_lines_that_never_end_are_told_and_skipped() {
        let long = "x".repeat(ROW_BYTES_MAX + 1);
        let found = split(&format!("{long}\na,b\nc,\"{}\nd,e", "y\n".repeat(2 * LINES_MAX)));
        assert!(found[0].contains("longer than") && found[1] == "2 a|b", "{}", found.len());
        assert!(found[2].contains("is not closed") && found[3] == "4 y", "{}", found.len());
        assert_eq!(found.last().map(String::as_str), Some(format!("{} d|e", 2 * LINES_MAX + 4).as_str()));
    }
}
