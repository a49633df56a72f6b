-- The questions of every survey as the warehouse knew them at a moment.
--
-- Call it as a table: FROM questions_as_of(TIMESTAMP '2026-04-01 00:00:00').
-- One row: one question of one survey; key (survey_id, question_ordinal).
-- Left out: questions that no scan had found by then, or that were gone.
--
-- Parameters:
--   moment: A moment, UTC.
--
-- Columns:
--   survey_id: The survey.
--   question_ordinal: Position in the survey, from 1.
--   question_id: The question.
--   question_type: NPS, LIKERT, OPEN and so on.
--   question_text: The wording.
--   intro_text: Text shown before the options.
--   left_label: Label of the left end of the scale, or of the left choice.
--   right_label: Label of the right end of the scale, or of the right choice.
--   options: Options, JSON as sent.
--   options_properties: Properties of the options, JSON as sent.
--   routing_options: Routing, JSON as sent.
--   valid_from: Start of the scan that first saw this version.
--   valid_to: Start of the scan that no longer saw it; NULL for the current version.
SELECT
    survey_id, question_ordinal, question_id, question_type, question_text, intro_text, left_label, right_label, options,
    options_properties, routing_options, valid_from, valid_to
FROM survey_question_history
WHERE valid_from <= moment::TIMESTAMP AND (valid_to IS NULL OR valid_to > moment::TIMESTAMP)
