-- Which options were chosen, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT).
--
-- One row: one option of one question of one survey. Options that nobody chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished, answers that name no survey.
-- An option that one answer names twice counts once.
-- The shares of a MULTIPLESELECT question add up to more than 1: each is a share of all who answered the question.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   label: Wording of the chosen option, or of the option with the chosen index (see current_choices); NULL when it is not known.
--   selected_index: Index of the option as sent; only if its label is not known.
--   chosen: Answers that chose it.
--   answered: Answers to the question.
--   share: chosen as a share of answered, 0 to 1.
WITH chosen AS (
    SELECT
        survey_id, question_id, label, CASE WHEN label IS NULL THEN selected_index END AS selected_index,
        count(DISTINCT response_group_uid) AS chosen
    FROM current_choices
    GROUP BY ALL
),
answered AS (
    SELECT
        survey_id, question_id, count(*) AS answered,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer
    FROM current_responses
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped
    GROUP BY survey_id, question_id
)
SELECT
    chosen.survey_id, chosen.question_id, survey.name AS survey_name,
    coalesce(question.question_text, answered.shown_answer.text) AS question_text,
    chosen.label, chosen.selected_index, chosen.chosen, answered.answered,
    chosen.chosen / answered.answered AS share
FROM chosen
JOIN answered ON answered.survey_id = chosen.survey_id AND answered.question_id = chosen.question_id
LEFT JOIN surveys AS survey ON survey.id = chosen.survey_id
LEFT JOIN questions AS question
    ON question.survey_id = chosen.survey_id AND question.question_id = chosen.question_id
