-- Which version of its question each answer was given to.
--
-- One row: one current answer; key (response_group_uid, question_id). Joins answers to question_versions.
-- Left out: answers to questions that no scan of surveys saw, and those that are deleted or have vanished.
-- The wording that came with the answer decides: of the versions with this wording, the one that was current when the answer was given. If
-- no version has the wording, the time alone decides.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey.
--   version: The version; question_versions.version.
--   is_wording_shown: Whether the version has the wording that came with the answer.
WITH ranged AS (
    SELECT
        survey_id, question_id, version, question_text,
        coalesce(shown_from, TIMESTAMP '0001-01-01 00:00:00') AS shown_from,
        coalesce(shown_until, TIMESTAMP '9999-12-31 23:59:59.999999') AS shown_until,
        CASE WHEN row_number() OVER wording = 1 THEN TIMESTAMP '0001-01-01 00:00:00' ELSE valid_from END AS worded_from,
        coalesce(lead(valid_from) OVER wording, TIMESTAMP '9999-12-31 23:59:59.999999') AS worded_until
    FROM question_versions
    WINDOW wording AS (PARTITION BY survey_id, question_id, question_text ORDER BY version)
)
SELECT
    answer.response_group_uid, answer.question_id, answer.survey_id,
    coalesce(worded.version, timed.version) AS version,
    worded.version IS NOT NULL AS is_wording_shown
FROM current_responses AS answer
JOIN ranged AS timed
    ON timed.survey_id = answer.survey_id AND timed.question_id = answer.question_id
    AND answer.created_at >= timed.shown_from AND answer.created_at < timed.shown_until
LEFT JOIN ranged AS worded
    ON worded.survey_id = answer.survey_id AND worded.question_id = answer.question_id
    AND worded.question_text = answer.question_text
    AND answer.created_at >= worded.worded_from AND answer.created_at < worded.worded_until
