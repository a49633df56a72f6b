//! The types of questions that the contract of the service knows.

use super::drift::DriftLog;
use crate::model::DriftKind;

/// A type of question, by its name on the wire in any case: webhooks write `multipleselect`, the export
/// `MULTIPLESELECT`.
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
    /// Newer than this program, or no text at all.
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
    /// The type of that name.
    pub(super) fn of(name: Option<&str>) -> QuestionType {
        let known = name.and_then(|name| NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)));
        known.map_or(QuestionType::Unknown, |(_, question_type)| *question_type)
    }
}

/// Notes a type that is newer than this program; one that is no text is a clash, and noted as such.
pub(super) fn note_new_type(drift: &mut DriftLog, record: i64, place: &'static str, name: Option<&str>) {
    if let Some(name) = name {
        drift.note_word(record, place, DriftKind::NewQuestionType, name);
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
