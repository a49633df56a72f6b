-- Answers that only one source has: reported by a webhook and found by no scan, or found by a scan and reported by no webhook.
--
-- One row: one answer of one session. Order by answered_at.
-- Left out: times that scans have not reached yet, and answers from before the first webhook of an answer. Webhooks are sent once and may be lost, so rows known by a scan alone are normal; rows known by a webhook alone were deleted before a scan came by, or call for a look.
--
-- Columns:
--   known_by: webhook or scan: the source that has the answer.
--   survey_id: The survey; NULL when the answer names none.
--   response_group_uid: The session; a UUID in capitals or in braces is the same session as without.
--   question_text: The wording under which it was answered; webhooks have no question_id.
--   question_id: The question; NULL if only a webhook has the answer.
--   answered_at: When it was answered. UTC.
WITH told AS (
    SELECT DISTINCT
        survey_id, response_group_uid, question_text, coalesce(occurred_at, received_at) AS answered_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) AS session
    FROM webhook_events
    WHERE kind = 'answer_submitted'
),
held AS (
    SELECT
        survey_id, response_group_uid, question_text, question_id, created_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) AS session
    FROM responses
),
span AS (
    SELECT
        (SELECT min(answered_at) FROM told) AS first_told,
        (SELECT max(window_end) FROM sync_windows WHERE stream = 'responses') AS scanned_until
)
SELECT
    'webhook' AS known_by, told.survey_id, told.response_group_uid, told.question_text, NULL::BIGINT AS question_id, told.answered_at
FROM told
CROSS JOIN span
WHERE told.answered_at < span.scanned_until
    AND NOT EXISTS (
        SELECT 1 FROM held
        WHERE held.session = told.session AND held.question_text = told.question_text
    )
UNION ALL
SELECT
    'scan' AS known_by, held.survey_id, held.response_group_uid, held.question_text, held.question_id, held.created_at AS answered_at
FROM held
CROSS JOIN span
WHERE held.created_at >= span.first_told
    AND NOT EXISTS (
        SELECT 1 FROM told
        WHERE held.session = told.session AND held.question_text = told.question_text
    )
