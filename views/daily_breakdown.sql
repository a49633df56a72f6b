-- Answers, sessions and visitors by day and survey.
--
-- One row: one survey on one day on which it was answered.
-- Left out: answers that are deleted or have vanished at the service.
-- A session that lasts past midnight is counted on both days, a visitor on every day: only answers may be added up.
--
-- Columns:
--   day: The day on which the answers were given, in the report time zone.
--   survey_id: The survey; NULL when the answers name none.
--   survey_name: Name of the survey; NULL when it is not known.
--   sessions: Sessions with an answer on the day.
--   visitors: Visitors with an answer on the day, by the service's number.
--   answers: Questions shown: answered and skipped.
--   answered: Of these, answered; texts that ask nothing (TEXTURLPROMPT) count as answered.
--   skipped: Of these, skipped.
WITH counted AS (
    SELECT
        {local created_at}::DATE AS day, survey_id,
        count(DISTINCT response_group_uid) AS sessions,
        count(DISTINCT visitor_id) AS visitors,
        count(*) AS answers,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped
    FROM current_responses
    GROUP BY day, survey_id
)
SELECT day, counted.survey_id, survey.name AS survey_name, sessions, visitors, answers, answered, skipped
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
