-- How far each session went, from sent to completed, from webhooks and scans together.
--
-- One row: one session; key response_group_uid.
-- Left out: webhooks of other environments, and sessions whose answers are all deleted or have vanished, unless a webhook
-- reports them. Times are UTC. A webhook of a study without a session counts as a session of its own.
-- A UUID in capitals or in braces is the same session as without.
-- Webhooks are sent once and may be lost, and no list shows what was sent or seen: a stage without a time may have been reached.
--
-- Columns:
--   response_group_uid: The session; for a webhook without a session, `event ` and its event_key.
--   survey_id: The survey.
--   begun_at: The time of the first known event of the session.
--   sent_at: When the study was sent; NULL when no webhook reported it.
--   seen_at: When it was seen; NULL when no webhook reported it.
--   answered_at: When the first question was answered; a webhook about a skipped question (a null or empty answer) does not count.
--   submitted_at: When the study was submitted; NULL when no webhook reported it.
--   is_completed: True if the session was submitted, or reached the last question of the survey's current definition.
--   triggering_event: What made the service show the study.
--   platform: How it was delivered.
--   first_question_id: The question that was shown first; for a session without answers from scans, the first question of the survey's current definition.
--   known_by: webhook, scan or both. Scans know a session that they found once, also if its answers were deleted or vanished later.
WITH deliveries AS (
    SELECT
        *, coalesce(occurred_at, received_at) AS told_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, nullif(response_group_uid, ''), 'event ' || event_key) AS session,
        -- Skipped: null, blanks, a list or object that contains only nulls, and a MAXDIFF in which nothing was selected.
        kind = 'answer_submitted' AND (export_question_type IS NOT DISTINCT FROM 'TEXTURLPROMPT' OR NOT CASE
            WHEN response_parsed_json IS NULL
            THEN regexp_full_match(coalesce(response_text, nullif(response_json::VARCHAR, 'null'), ''), '[\s\x0b\x{85}\p{Z}]*')
            WHEN export_question_type = 'MAXDIFF' THEN NOT regexp_matches(response_parsed_json::VARCHAR, '"selected"\s*:\s*[^\sn]')
            ELSE regexp_full_match(
                regexp_replace(response_parsed_json::VARCHAR, '"(?:[^"\\]|\\.)*"\s*:', '', 'g'), '(?:null|[\[\]{},\s])*'
            )
        END) AS is_answer
    FROM webhook_events
    WHERE kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')
),
reported AS (
    SELECT
        session AS response_group_uid,
        max(survey_id) AS survey_id,
        min(told_at) AS begun_at,
        min(told_at) FILTER (kind = 'study_sent') AS sent_at,
        min(told_at) FILTER (kind = 'study_seen') AS seen_at,
        min(told_at) FILTER (is_answer) AS answered_at,
        min(told_at) FILTER (kind = 'study_submitted') AS submitted_at,
        max(triggering_event) FILTER (kind = 'study_sent') AS sent_trigger,
        max(triggering_event) FILTER (kind = 'answer_submitted') AS answer_trigger,
        max(platform) AS platform,
        session IN (SELECT coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) FROM responses) AS is_listed
    FROM deliveries
    GROUP BY session
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
        coalesce(scanned.response_group_uid, reported.response_group_uid) AS response_group_uid,
        coalesce(scanned.survey_id, reported.survey_id) AS survey_id,
        least(scanned.begun_at, reported.begun_at) AS begun_at,
        reported.sent_at, reported.seen_at, least(scanned.answered_at, reported.answered_at) AS answered_at, reported.submitted_at,
        scanned.last_ordinal, scanned.first_question_id, reported.platform, reported.sent_trigger, reported.answer_trigger,
        CASE WHEN reported.begun_at IS NULL THEN 'scan' WHEN scanned.begun_at IS NULL AND NOT reported.is_listed THEN 'webhook' ELSE 'both' END
            AS known_by
    FROM scanned
    FULL JOIN reported
        ON reported.response_group_uid = coalesce(TRY_CAST(scanned.response_group_uid AS UUID)::VARCHAR, scanned.response_group_uid)
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
