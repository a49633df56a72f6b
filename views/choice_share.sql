-- Which options were chosen, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT).
--
-- One row: one option of one question of one survey. Options that nobody chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished.
-- An option that one answer names twice counts once. An option that was renamed has a row for each of its wordings.
-- The shares of a MULTIPLESELECT question add up to more than 1: each is a share of all who answered the question.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   label: Wording of the chosen option, or of the option with the chosen index (see current_choices); NULL when it is
--     not known.
--   selected_index: Index of the option as sent; only if its label is not known.
--   chosen: Answers that chose it.
--   answered: Answers to the question.
--   share: chosen as a share of answered, 0 to 1.
WITH counted AS (
    SELECT
        survey_id, question_id, label, CASE WHEN label IS NULL THEN selected_index END AS selected_index,
        count(DISTINCT response_group_uid) AS chosen, NULL::BIGINT AS answered, NULL AS shown_answer
    FROM current_choices
    GROUP BY ALL
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, count(*) FILTER (NOT is_skipped),
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
    GROUP BY survey_id, question_id
),
based AS (
    SELECT
        survey_id, question_id, label, selected_index, chosen, max(answered) OVER question AS answered,
        max(shown_answer) OVER question AS shown_answer
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY chosen IS NOT NULL
)
SELECT
    based.survey_id, based.question_id, survey.name AS survey_name,
    coalesce(question.question_text, based.shown_answer.text) AS question_text,
    based.label, based.selected_index, based.chosen, based.answered,
    based.chosen / based.answered AS share
FROM based
LEFT JOIN surveys AS survey ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = based.survey_id AND question.question_id = based.question_id
