-- The answers in people's own words that hold a text.
--
-- Call it as a table: FROM search_answers('refund').
-- One row: one answer of open_answers. Case does not count; no letter of the text is a wildcard.
-- Left out: answers that are deleted or have vanished at the service.
--
-- Parameters:
--   wanted: The text.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   source: text, or transcription.
--   answer: The text.
SELECT response_group_uid, question_id, survey_id, question_text, created_at, source, answer
FROM open_answers
WHERE NOT is_empty AND contains(lower(answer), lower(wanted))
