//! Words of enumerations: the words that the contract of a column lists, and the types of questions. Listed and
//! unlisted words are stored alike.

use super::drift::DriftLog;
use crate::{model::DriftKind, schema::table};

/// The words that the contract of one column lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enumeration {
    known: &'static [String],
    /// The path of the column's field in a record.
    path: &'static str,
}

impl Enumeration {
    /// Looks up the words that the contract lists for a column. `path` is the path of the column's field in a record.
    pub(super) fn of(table_name: &str, column: &str, path: &'static str) -> Self {
        let column = table(table_name).and_then(|table| table.column(column));
        Self { known: column.map_or(&[], |column| &column.values), path }
    }

    /// Adds `word` to the drift if the contract does not list it. Case is ignored; `None` is no drift.
    pub(super) fn report_unlisted(&self, word: Option<&str>, record: i64, drift: &mut DriftLog) {
        if let Some(word) = word.filter(|word| !self.known.iter().any(|known| known.eq_ignore_ascii_case(word))) {
            drift.add_word(record, self.path, DriftKind::NewEnumValue, word);
        }
    }
}

/// A type of question. The service's names are compared without regard to case: webhooks write `multipleselect`, the
/// export writes `MULTIPLESELECT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionType {
    ConsentLegal,
    Likert,
    Matrix,
    MaxDiff,
    MultipleChoice,
    MultipleSelect,
    Nps,
    Open,
    RankOrder,
    TextUrlPrompt,
    VideoVoice,
    /// A type that this program does not know, or a missing type.
    Unknown,
}

const NAMES: [(&str, QuestionType); 11] = [
    ("LIKERT", QuestionType::Likert),
    ("NPS", QuestionType::Nps),
    ("OPEN", QuestionType::Open),
    ("MULTIPLECHOICE", QuestionType::MultipleChoice),
    ("MULTIPLESELECT", QuestionType::MultipleSelect),
    ("MATRIX", QuestionType::Matrix),
    ("RANKORDER", QuestionType::RankOrder),
    ("MAXDIFF", QuestionType::MaxDiff),
    ("VIDEOVOICE", QuestionType::VideoVoice),
    ("CONSENTLEGAL", QuestionType::ConsentLegal),
    ("TEXTURLPROMPT", QuestionType::TextUrlPrompt),
];

impl QuestionType {
    /// Returns the type with this name, in any case; `Unknown` for an unknown or missing name.
    pub(super) fn of(name: Option<&str>) -> QuestionType {
        let known = name.and_then(|name| NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)));
        known.map_or(QuestionType::Unknown, |(_, question_type)| *question_type)
    }
}

/// Adds the name of a question type to the drift if this program does not know the type. `path` is the path of the
/// field in a record.
pub(super) fn report_new_type(drift: &mut DriftLog, record: i64, path: &'static str, name: Option<&str>) {
    if let Some(name) = name.filter(|name| QuestionType::of(Some(name)) == QuestionType::Unknown) {
        drift.add_word(record, path, DriftKind::NewQuestionType, name);
    }
}

#[cfg(test)]
mod tests {
    //! The contracts list the same types.

    use super::NAMES;
    use crate::schema::table;

    #[test]
    fn every_column_of_question_types_lists_all_known_types() {
        let mut known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        for name in ["responses", "themes", "survey_questions"] {
            let mut listed = table(name).unwrap().column("question_type").unwrap().values.clone();
            listed.sort_unstable();
            assert_eq!(listed, known, "{name}");
        }
    }
}
