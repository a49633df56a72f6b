-- The sessions in which visitors answered surveys.
--
-- One row: one session of one survey; key (survey_id, response_group_uid).
-- Left out: answers that are deleted or have vanished at the service, and sessions that have no other answers.
-- Where the answers of a session disagree about the visitor, the greatest value is used. Times are UTC.
--
-- Columns:
--   survey_id: The survey; NULL when the answer names none.
--   response_group_uid: The session.
--   visitor_id: The service's number of the visitor.
--   visitor_uuid: The visitor's id in webhooks and snapshots.
--   external_user_id: Your own id of the visitor; NULL when there is none.
--   started_at: When the first answer was given.
--   ended_at: When the last answer was given.
--   duration_secs: From the first answer to the last, seconds.
--   questions: Questions that were shown.
--   answered: Questions that were answered; texts that ask nothing (TEXTURLPROMPT) do not count.
--   skipped: Questions that were shown and not answered.
SELECT
    survey_id, response_group_uid,
    max(visitor_id) AS visitor_id,
    max(visitor_uuid) AS visitor_uuid,
    max(external_user_id) AS external_user_id,
    min(created_at) AS started_at,
    max(created_at) AS ended_at,
    (epoch_us(max(created_at)) - epoch_us(min(created_at))) / 1e6 AS duration_secs,
    count(*) AS questions,
    count(*) FILTER (NOT is_skipped AND question_type IS DISTINCT FROM 'TEXTURLPROMPT') AS answered,
    count(*) FILTER (is_skipped) AS skipped
FROM current_responses
GROUP BY survey_id, response_group_uid
