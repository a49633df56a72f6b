-- The text answers and transcriptions that contain a text.
--
-- Call it as a table: FROM search_answers('refund').
-- One row: one answer of open_answers. Case does not count: ß is ss, and a final sigma is a sigma. There are no wildcards.
-- Left out: answers that are deleted or have vanished at the service. A NUL counts as a blank, because the engine would end the text there.
-- A DuckDB file with an index of words (full_text_search) has another definition of this macro, with the same columns: it finds whole words.
--
-- Parameters:
--   wanted: The text.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey; NULL when the answer names none.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   source: text, or transcription.
--   answer: The text.
--   score: How well the answer fits, by BM25; NULL in a search without an index.
SELECT response_group_uid, question_id, survey_id, question_text, created_at, source, answer, NULL::DOUBLE AS score
FROM open_answers
WHERE NOT is_empty AND contains(
    replace(lower(upper(nfc_normalize(replace(answer, chr(0), ' ')))), 'ß', 'ss'), replace(lower(upper(nfc_normalize(replace(wanted, chr(0), ' ')))), 'ß', 'ss')
)
