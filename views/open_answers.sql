-- The answers in people's own words: texts, and what was said in recordings.
--
-- One row: one answer to an OPEN question, or one transcription; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service; skipped ones are there, and empty. Times are UTC.
-- Nothing here depends on a language. Two texts are the same if they differ only in case (ß is ss) and in the blanks around them.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey; NULL when the answer names none.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   source: text, or transcription.
--   answer: The text; NULL when there is none.
--   characters: Number of characters, without the blanks around the text; 0 when there is none.
--   is_empty: True if the text is missing or only blanks.
--   has_link: True if the text contains a web or e-mail address.
--   repeats: Number of answers to the question with this text, including this answer; NULL for an empty text.
WITH texts AS (
    SELECT
        answer.response_group_uid, answer.question_id, answer.survey_id, answer.question_text, answer.created_at,
        CASE WHEN answer.question_type = 'OPEN' THEN 'text' ELSE 'transcription' END AS source,
        CASE WHEN answer.question_type = 'OPEN' THEN answer.answer_text ELSE media.transcription END AS answer
    FROM current_responses AS answer
    LEFT JOIN response_media AS media
        ON media.response_group_uid = answer.response_group_uid AND media.question_id = answer.question_id
    WHERE answer.question_type = 'OPEN' OR media.transcription IS NOT NULL
),
measured AS (
    SELECT *, regexp_replace(coalesce(answer, ''), '^[\s\x0b\x{85}\p{Z}]+|[\s\x0b\x{85}\p{Z}]+$', '', 'g') AS trimmed FROM texts
)
SELECT
    response_group_uid, question_id, survey_id, question_text, created_at, source, answer,
    length(trimmed) AS characters,
    trimmed = '' AS is_empty,
    regexp_matches(trimmed, '(?i)https?://|www\.|[^\s@]+@[^\s@]+\.[^\s@]') AS has_link,
    CASE WHEN trimmed <> ''
        THEN count(*) OVER (PARTITION BY survey_id, question_id, source, replace(lower(upper(nfc_normalize(replace(trimmed, chr(0), ' ')))), 'ß', 'ss')) END AS repeats
FROM measured
