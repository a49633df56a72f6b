-- How far each session went, from sent to completed, from webhooks and scans together.
--
-- One row: one session; key response_group_uid.
-- Left out: webhooks of other environments, and sessions whose answers are all deleted or have vanished, unless a
-- webhook reports them. Times are UTC. A webhook of a study without a session counts as a session of its own.
-- A UUID in capitals or in braces is the same session as without.
-- Webhooks are sent once and may be lost, and no list shows what was sent or seen: a stage without a time may have been reached.
-- A session was shown the set of questions that was current when it began; or the next one, if it has an answer to a
-- question that only the next one has: the rule of answer_versions.
--
-- Columns:
--   response_group_uid: The session; for a webhook without a session, `event ` and its event_key.
--   survey_id: The survey; NULL when the answer names none.
--   begun_at: The time of the first known event of the session.
--   sent_at: When the study was sent; NULL when no webhook reported it.
--   seen_at: When it was seen; NULL when no webhook reported it.
--   answered_at: When the first question was answered; a webhook about a skipped question (a null or empty answer) does not count.
--   submitted_at: When the study was submitted; NULL when no webhook reported it.
--   is_completed: True if the session was submitted, or reached the last question of the set of questions that it was
--     shown.
--   triggering_event: What made the service show the study.
--   platform: How it was delivered.
--   first_question_id: The question that was shown first; for a session without answers from scans, the first question
--     of the set that it was shown.
--   known_by: webhook, scan or both. Scans know a session that they found once, also if its answers were deleted or
--     vanished later.
--   question_set: The set of questions that the session was shown; survey_question_sets.set_version. NULL when it is
--     not known.
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
scanned AS (
    SELECT
        response_group_uid, max(survey_id) AS survey_id, min(created_at) AS begun_at,
        min(created_at) FILTER (NOT is_skipped) AS answered_at,
        list(question_id) AS shown_ids, list(created_at) AS shown_at
    FROM current_responses
    GROUP BY response_group_uid
),
sets AS (
    SELECT
        survey_id, set_version, question_ids,
        coalesce(shown_from, TIMESTAMP '0001-01-01 00:00:00') AS begins,
        coalesce(shown_until, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends,
        lead(set_version) OVER survey AS next_version, lead(question_ids) OVER survey AS next_ids,
        [id FOR id IN lead(question_ids) OVER survey IF NOT list_contains(question_ids, id)] AS new_ids
    FROM survey_question_sets
    WINDOW survey AS (PARTITION BY survey_id ORDER BY set_version)
),
joined AS (
    SELECT
        coalesce(scanned.response_group_uid, reported.response_group_uid) AS response_group_uid,
        coalesce(scanned.survey_id, reported.survey_id) AS survey_id,
        least(scanned.begun_at, reported.begun_at) AS begun_at,
        reported.sent_at, reported.seen_at, least(scanned.answered_at, reported.answered_at) AS answered_at, reported.submitted_at,
        scanned.begun_at AS shown_first_at, scanned.shown_ids, scanned.shown_at, reported.platform, reported.sent_trigger, reported.answer_trigger,
        CASE WHEN reported.begun_at IS NULL THEN 'scan' WHEN scanned.begun_at IS NULL AND NOT reported.is_listed THEN 'webhook' ELSE 'both' END
            AS known_by
    FROM scanned
    FULL JOIN reported
        ON reported.response_group_uid = coalesce(TRY_CAST(scanned.response_group_uid AS UUID)::VARCHAR, scanned.response_group_uid)
),
placed AS (
    SELECT
        joined.*,
        CASE WHEN list_has_any(joined.shown_ids, sets.new_ids) THEN sets.next_version ELSE sets.set_version END AS question_set,
        CASE WHEN list_has_any(joined.shown_ids, sets.new_ids) THEN sets.next_ids ELSE sets.question_ids END AS question_ids
    FROM joined
    LEFT JOIN sets
        ON sets.survey_id = joined.survey_id AND joined.begun_at >= sets.begins AND joined.begun_at < sets.ends
)
SELECT
    joined.response_group_uid, joined.survey_id, joined.begun_at, joined.sent_at, joined.seen_at, joined.answered_at,
    joined.submitted_at,
    joined.submitted_at IS NOT NULL OR coalesce(list_contains(joined.shown_ids, joined.question_ids[-1]), false) AS is_completed,
    coalesce(joined.sent_trigger, joined.answer_trigger, snapshot.triggering_event) AS triggering_event,
    coalesce(joined.platform, survey.platform) AS platform,
    -- Of answers at one time, the first by position in the set.
    CASE
        WHEN joined.shown_ids IS NULL THEN joined.question_ids[1]
        ELSE list_min([
            {'place': coalesce(nullif(list_position(joined.question_ids, shown_ids[i]), 0), 2147483647), 'id': shown_ids[i]}
            FOR i IN range(1, len(shown_ids) + 1) IF shown_at[i] = shown_first_at
        ]).id
    END AS first_question_id,
    joined.known_by, joined.question_set
FROM placed AS joined
LEFT JOIN surveys AS survey ON survey.id = joined.survey_id
LEFT JOIN (
    SELECT response_group_uid, max(triggering_event) AS triggering_event FROM visitor_snapshots GROUP BY response_group_uid
) AS snapshot ON snapshot.response_group_uid = joined.response_group_uid
