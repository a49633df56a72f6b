-- How far visitors get in a survey: question by question, how many of its sessions were shown it and answered it.
--
-- One row: one question of one survey that was shown at least once. Order by question_ordinal.
-- Left out: answers that are deleted or have vanished at the service.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_ordinal: Position in the survey as it is defined today, from 1; NULL for a question that it no longer has.
--   question_id: The question.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   sessions: Sessions of the survey.
--   shown: Sessions that were shown the question.
--   answered: Sessions that did not skip it; texts that ask nothing (TEXTURLPROMPT) count as answered.
--   skipped: Sessions that were shown it and did not answer.
--   shown_share: shown as a share of sessions, 0 to 1.
--   answered_share: answered as a share of sessions, 0 to 1.
WITH counted AS (
    SELECT
        survey_id, question_id, count(*) AS shown,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer,
        NULL::BIGINT AS sessions
    FROM current_responses
    GROUP BY survey_id, question_id
    UNION ALL
    SELECT survey_id, NULL, NULL, NULL, NULL, NULL, count(DISTINCT response_group_uid)
    FROM current_responses
    GROUP BY survey_id
),
shown AS (
    SELECT * EXCLUDE (sessions), max(sessions) OVER (PARTITION BY survey_id) AS sessions
    FROM counted
    QUALIFY question_id IS NOT NULL
)
SELECT
    shown.survey_id, survey.name AS survey_name, question.question_ordinal, shown.question_id,
    coalesce(question.question_text, shown.shown_answer.text) AS question_text,
    shown.sessions, shown.shown, shown.answered, shown.skipped,
    shown.shown / shown.sessions AS shown_share,
    shown.answered / shown.sessions AS answered_share
FROM shown
LEFT JOIN surveys AS survey ON survey.id = shown.survey_id
LEFT JOIN current_questions AS question ON question.survey_id = shown.survey_id AND question.question_id = shown.question_id
