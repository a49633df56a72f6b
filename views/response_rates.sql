-- How many of those who were sent a study saw, answered, submitted and completed it.
--
-- One row: one survey on one day, by trigger, platform and first question. The counts may be added up; make shares anew
-- from the sums. Left out: sessions from before the first webhook of a study or an answer: what was sent then is not
-- known. Without webhooks the view is empty: `studysync serve` receives them. Webhooks are sent once and may be lost: one_source_share is the share that
-- one side alone knows. Sessions that scans have not reached yet are not counted as known by webhooks alone.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   survey_name: Name of the survey; NULL when it is not known.
--   day: The day of the first known event of the sessions, in the report time zone.
--   triggering_event: What made the service show the study.
--   platform: How it was delivered.
--   first_question_id: The question with which the session began; see session_stages.
--   sessions: All sessions.
--   sent: Sessions for which a webhook reported that the study was sent.
--   seen: Sessions for which a webhook reported that the study was seen.
--   answered: Sessions in which a question was answered, and not only skipped.
--   submitted: Sessions for which a webhook reported that the study was submitted.
--   completed: Sessions that were submitted, or reached the last question of the set of questions that they were shown.
--   sent_and_seen: Sessions that are both sent and seen.
--   sent_and_answered: Sessions that are both sent and answered.
--   seen_rate: sent_and_seen as a share of sent, 0 to 1; NULL when none was sent.
--   response_rate: sent_and_answered as a share of sent, 0 to 1; NULL when none was sent.
--   completion_rate: completed as a share of answered, 0 to 1; NULL when none was answered.
--   only_webhooks: Answered sessions that webhooks reported and no scan ever found.
--   only_scans: Answered sessions that scans found and no webhook reported.
--   one_source_share: only_webhooks + only_scans as a share of answered, 0 to 1; NULL when none was answered.
--   webhooks_since: The time of the first webhook of any study or answer.
WITH known AS (
    SELECT
        (SELECT min(coalesce(occurred_at, received_at)) FROM webhook_events
         WHERE kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')) AS webhooks_since,
        (SELECT max(window_end) FROM sync_windows WHERE stream = 'responses') AS scanned_until
),
counted AS (
    SELECT
        stage.survey_id, {local stage.begun_at}::DATE AS day, stage.triggering_event, stage.platform, stage.first_question_id,
        count(*) AS sessions,
        count(stage.sent_at) AS sent,
        count(stage.seen_at) AS seen,
        count(stage.answered_at) AS answered,
        count(stage.submitted_at) AS submitted,
        count(*) FILTER (stage.is_completed) AS completed,
        count(*) FILTER (stage.sent_at IS NOT NULL AND stage.seen_at IS NOT NULL) AS sent_and_seen,
        count(*) FILTER (stage.sent_at IS NOT NULL AND stage.answered_at IS NOT NULL) AS sent_and_answered,
        count(*) FILTER (stage.known_by = 'webhook' AND stage.answered_at < known.scanned_until) AS only_webhooks,
        count(*) FILTER (stage.known_by = 'scan' AND stage.answered_at IS NOT NULL) AS only_scans,
        any_value(known.webhooks_since) AS webhooks_since
    FROM session_stages AS stage
    JOIN known ON stage.begun_at >= known.webhooks_since
    GROUP BY ALL
)
SELECT
    counted.survey_id, survey.name AS survey_name, counted.day, counted.triggering_event, counted.platform,
    counted.first_question_id, counted.sessions, counted.sent, counted.seen, counted.answered, counted.submitted,
    counted.completed, counted.sent_and_seen, counted.sent_and_answered,
    counted.sent_and_seen / nullif(counted.sent, 0) AS seen_rate,
    counted.sent_and_answered / nullif(counted.sent, 0) AS response_rate,
    counted.completed / nullif(counted.answered, 0) AS completion_rate,
    counted.only_webhooks, counted.only_scans,
    (counted.only_webhooks + counted.only_scans) / nullif(counted.answered, 0) AS one_source_share,
    counted.webhooks_since
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
