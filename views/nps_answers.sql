-- The NPS answers that count: what the views nps_by_* add up. Start here for a breakdown of your own.
--
-- One row: one answer to a question of type NPS; key (response_group_uid, question_id).
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Days, weeks and months are those of the report time zone, UTC by default; a week begins on Monday (ISO).
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey; NULL when the answer names none.
--   visitor_key: Who answered: visitor_id, else visitor_uuid, else the session.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   day: The day of created_at.
--   week: The Monday of its week.
--   month: The first day of its month.
--   score: The answer, 0 to 10.
WITH timed AS (
    SELECT *, {local created_at} AS local_at
    FROM current_responses
    WHERE question_type = 'NPS' AND answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
)
SELECT
    response_group_uid, question_id, survey_id,
    coalesce(visitor_id::VARCHAR, visitor_uuid, response_group_uid) AS visitor_key,
    question_text, created_at,
    local_at::DATE AS day,
    date_trunc('week', local_at)::DATE AS week,
    date_trunc('month', local_at)::DATE AS month,
    answer_number AS score
FROM timed
