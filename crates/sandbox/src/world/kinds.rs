//! The eleven question types of the contract, their texts, and the question members of a response record.

use super::super::{json_text::quoted, random::Random};

/// A question type of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nps,
    Likert,
    Open,
    MultipleChoice,
    MultipleSelect,
    Matrix,
    RankOrder,
    MaxDiff,
    VideoVoice,
    ConsentLegal,
    TextUrlPrompt,
}

impl Kind {
    pub(crate) const ALL: [Kind; 11] = [
        Kind::Nps,
        Kind::Likert,
        Kind::Open,
        Kind::MultipleChoice,
        Kind::MultipleSelect,
        Kind::Matrix,
        Kind::RankOrder,
        Kind::MaxDiff,
        Kind::VideoVoice,
        Kind::ConsentLegal,
        Kind::TextUrlPrompt,
    ];

    /// Draws a type. Frequently used types are more likely.
    pub(crate) fn draw(random: &mut Random) -> Kind {
        const WEIGHTS: [u32; Kind::ALL.len()] = [12, 20, 24, 18, 11, 5, 3, 2, 2, 2, 1];
        // `weighted` returns an index of the weights, which has the length of `ALL`.
        Kind::ALL[random.weighted(&WEIGHTS)]
    }

    /// Returns the name of the type in the contract.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Nps => "NPS",
            Kind::Likert => "LIKERT",
            Kind::Open => "OPEN",
            Kind::MultipleChoice => "MULTIPLECHOICE",
            Kind::MultipleSelect => "MULTIPLESELECT",
            Kind::Matrix => "MATRIX",
            Kind::RankOrder => "RANKORDER",
            Kind::MaxDiff => "MAXDIFF",
            Kind::VideoVoice => "VIDEOVOICE",
            Kind::ConsentLegal => "CONSENTLEGAL",
            Kind::TextUrlPrompt => "TEXTURLPROMPT",
        }
    }

    /// Draws a text for a new question of this type about `subject`.
    pub(crate) fn question_text(self, subject: &str, random: &mut Random) -> String {
        match self {
            Kind::Nps => format!("How likely are you to recommend {subject} to a friend or colleague?"),
            Kind::Likert => format!("{subject} is easy to use."),
            Kind::Open => (*random.pick(&[
                "What could we do better?",
                "What is the main reason for your score?",
                "Was hat Ihnen gefehlt?",
                "Anything else? 💬",
            ]))
            .to_owned(),
            Kind::MultipleChoice => format!("Which of these matters most to you in {subject}?"),
            Kind::MultipleSelect => "Which of these have you used? (choose all that apply)".to_owned(),
            Kind::Matrix => format!("How do you rate these parts of {subject}?"),
            Kind::RankOrder => "Put these in order of importance.".to_owned(),
            Kind::MaxDiff => "Which is least and which is most important?".to_owned(),
            Kind::VideoVoice => "Tell us in a short video or voice message.".to_owned(),
            Kind::ConsentLegal => "I agree to the recording of this session.".to_owned(),
            Kind::TextUrlPrompt => "Thank you! Read more on our site.".to_owned(),
        }
    }
}

/// The question members of a response record.
pub(crate) struct QuestionText<'a> {
    pub(crate) id: i64,
    pub(crate) text: Option<&'a str>,
    pub(crate) kind: &'a str,
}

impl QuestionText<'_> {
    /// Returns the members as JSON text, without braces.
    pub(crate) fn fragment(&self) -> String {
        let text = self.text.map(|text| format!(r#""questionText":{},"#, quoted(text))).unwrap_or_default();
        format!(r#""questionId":{},{text}"questionType":{}"#, self.id, quoted(self.kind))
    }
}
