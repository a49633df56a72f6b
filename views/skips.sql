-- Which questions are skipped, and how the service sends skips.
--
-- One row: one question of one survey that was shown at least once.
-- Left out: texts that ask nothing (TEXTURLPROMPT), answers that are deleted or have vanished at the service.
-- A question that a session never reached has no answer at all, and is not a skip: see survey_funnel.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   question_type: The type; the greatest value if answers disagree.
--   shown: Times that it was shown.
--   answered: Times that it was answered.
--   skipped: Times that it was not.
--   skipped_share: skipped as a share of shown, 0 to 1.
--   sent_null: Skips that the service sent as null.
--   sent_empty: Skips that it sent as an empty text, list or object, or as a list or object that contains only nulls.
--   sent_nothing: Skips without an answer in the record.
WITH counted AS (
    SELECT
        survey_id, question_id, max(question_type) AS question_type,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer,
        count(*) AS shown,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped,
        count(*) FILTER (is_skipped AND answer_json = 'null') AS sent_null,
        count(*) FILTER (is_skipped AND answer_json <> 'null') AS sent_empty,
        count(*) FILTER (is_skipped AND answer_json IS NULL) AS sent_nothing
    FROM current_responses
    WHERE question_type IS DISTINCT FROM 'TEXTURLPROMPT'
    GROUP BY survey_id, question_id
)
SELECT
    counted.survey_id, counted.question_id, survey.name AS survey_name,
    coalesce(question.question_text, counted.shown_answer.text) AS question_text, counted.question_type,
    shown, answered, skipped, skipped / shown AS skipped_share, sent_null, sent_empty, sent_nothing
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id
