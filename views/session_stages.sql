-- How far each session came, from a study that was sent to one that was completed, as webhooks and scans know it together.
--
-- One row: one session; key response_group_uid.
-- Left out: what webhooks of other environments tell, and sessions whose answers are all deleted or have vanished, unless a webhook tells
-- of them. Times are UTC. A webhook that tells of a study without a session is a session of its own.
-- Webhooks are sent once and may be lost, and no list tells what was sent or seen: a stage without a time may have been reached.
--
-- Columns:
--   response_group_uid: The session; of a webhook that names none, `event ` and its event_key.
--   survey_id: The survey.
--   begun_at: The first that is known of the session.
--   sent_at: When the study was sent; NULL when no webhook told.
--   seen_at: When it was seen; NULL when no webhook told.
--   answered_at: When the first question was answered.
--   submitted_at: When the study was submitted; NULL when no webhook told.
--   is_completed: Whether it was submitted, or the last question of the survey of today was reached.
--   triggering_event: What made the service show the study.
--   platform: How it was delivered.
--   first_question_id: The question that was shown first; of a session without answers that scans know, the survey's first question of today.
--   known_by: webhook, scan or both.
WITH told AS (
    SELECT
        coalesce(nullif(response_group_uid, ''), 'event ' || event_key) AS response_group_uid,
        max(survey_id) AS survey_id,
        min(coalesce(occurred_at, received_at)) AS begun_at,
        min(coalesce(occurred_at, received_at)) FILTER (kind = 'study_sent') AS sent_at,
        min(coalesce(occurred_at, received_at)) FILTER (kind = 'study_seen') AS seen_at,
        min(coalesce(occurred_at, received_at)) FILTER (kind = 'answer_submitted') AS answered_at,
        min(coalesce(occurred_at, received_at)) FILTER (kind = 'study_submitted') AS submitted_at,
        max(triggering_event) FILTER (kind = 'study_sent') AS sent_trigger,
        max(triggering_event) FILTER (kind = 'answer_submitted') AS answer_trigger,
        max(platform) AS platform
    FROM webhook_events
    WHERE kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')
    GROUP BY ALL
),
placed AS (
    SELECT
        answer.response_group_uid, answer.survey_id, answer.created_at, answer.question_id, answer.is_skipped,
        question.question_ordinal
    FROM current_responses AS answer
    LEFT JOIN questions AS question
        ON question.survey_id = answer.survey_id AND question.question_id = answer.question_id
),
scanned AS (
    SELECT
        response_group_uid, max(survey_id) AS survey_id, min(created_at) AS begun_at,
        min(created_at) FILTER (NOT is_skipped) AS answered_at,
        max(question_ordinal) AS last_ordinal,
        min({'at': created_at, 'ordinal': coalesce(question_ordinal, 9223372036854775807), 'id': question_id}).id
            AS first_question_id
    FROM placed
    GROUP BY response_group_uid
),
ends AS (
    SELECT
        survey_id, max(question_ordinal) AS last_ordinal, arg_min(question_id, question_ordinal) AS first_question_id
    FROM questions
    GROUP BY survey_id
),
joined AS (
    SELECT
        coalesce(scanned.response_group_uid, told.response_group_uid) AS response_group_uid,
        coalesce(scanned.survey_id, told.survey_id) AS survey_id,
        least(scanned.begun_at, told.begun_at) AS begun_at,
        told.sent_at, told.seen_at, least(scanned.answered_at, told.answered_at) AS answered_at, told.submitted_at,
        scanned.last_ordinal, scanned.first_question_id, told.platform, told.sent_trigger, told.answer_trigger,
        CASE WHEN told.begun_at IS NULL THEN 'scan' WHEN scanned.begun_at IS NULL THEN 'webhook' ELSE 'both' END AS known_by
    FROM scanned
    FULL JOIN told ON told.response_group_uid = scanned.response_group_uid
)
SELECT
    joined.response_group_uid, joined.survey_id, joined.begun_at, joined.sent_at, joined.seen_at, joined.answered_at,
    joined.submitted_at,
    joined.submitted_at IS NOT NULL OR coalesce(joined.last_ordinal >= ends.last_ordinal, false) AS is_completed,
    coalesce(joined.sent_trigger, joined.answer_trigger, snapshot.triggering_event) AS triggering_event,
    coalesce(joined.platform, survey.platform) AS platform,
    coalesce(joined.first_question_id, ends.first_question_id) AS first_question_id,
    joined.known_by
FROM joined
LEFT JOIN ends ON ends.survey_id = joined.survey_id
LEFT JOIN surveys AS survey ON survey.id = joined.survey_id
LEFT JOIN (
    SELECT response_group_uid, max(triggering_event) AS triggering_event FROM visitor_snapshots GROUP BY response_group_uid
) AS snapshot ON snapshot.response_group_uid = joined.response_group_uid
