-- The questions of the current definition of every survey.
--
-- One row: one question of one survey. A survey that names a question twice has one row for it, by the first. Left out:
-- questions that are only known from answers, and definitions without an id. A survey that vanished keeps its last
-- definition.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   question_ordinal: Position in the survey, from 1.
--   question_type: NPS, LIKERT, OPEN and so on.
--   question_text: The current wording.
--   left_label: Label of the left end of the scale, or of the left choice.
--   right_label: Label of the right end of the scale, or of the right choice.
SELECT
    survey_id, question_id, min(question_ordinal) AS question_ordinal,
    arg_min(question_type, question_ordinal) AS question_type,
    arg_min(question_text, question_ordinal) AS question_text,
    arg_min(left_label, question_ordinal) AS left_label,
    arg_min(right_label, question_ordinal) AS right_label
FROM survey_questions
WHERE question_id IS NOT NULL
GROUP BY survey_id, question_id
