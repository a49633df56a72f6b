//! The types of questions that the contract of the service knows.

/// A type of question, by its name on the wire in any case: webhooks write `multipleselect`, the export `MULTIPLESELECT`.
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
