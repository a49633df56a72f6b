-- NPS, top-two box and choice shares as the warehouse knew them at two moments.
--
-- Call it as a table: FROM figure_changes(TIMESTAMP '2026-04-01 00:00:00', TIMESTAMP '2026-04-08 00:00:00'). One row:
-- one figure of one question of one survey. A question that has no answer that counts at either moment has no row. Left
-- out: answers that were deleted or gone at the moment, or whose people were erased since.
-- Each side is figures_as_of its moment: versions, scales and options are those that were known then. So the figure of
-- a moment stays the same, whatever arrives later. The answers of the earlier moment are among those of the later one,
-- so the two errors do not add up to one of the change. An option that nobody had chosen at one of the moments has the
-- share 0 there, if the question had an answer.
--
-- Parameters:
--   earlier: The earlier moment, UTC.
--   later: The later moment, UTC.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_id: The question.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   figure: nps (-100 to 100), top_two_share or choice_share (0 to 1).
--   label: The option of a choice_share, as in choice_share; NULL for other figures.
--   answers_before: Answers that count at the earlier moment.
--   before: The figure then; NULL without answers.
--   before_error: Its standard error; NULL for a single answer.
--   answers_after: Answers that count at the later moment.
--   after: The figure then; NULL without answers.
--   after_error: Its standard error; NULL for a single answer.
--   change: after minus before; NULL if either is NULL.
--   selected_index: Index of the option of a choice_share as sent; only if its label is not known.
WITH sides AS (
    SELECT true AS is_before, * FROM figures_as_of(earlier)
    UNION ALL
    SELECT false, * FROM figures_as_of(later)
),
paired AS (
    SELECT
        survey_id, question_id, figure, label, selected_index,
        max(answers) FILTER (is_before) AS answers_before, max(value) FILTER (is_before) AS before,
        max(standard_error) FILTER (is_before) AS before_error,
        max(answers) FILTER (NOT is_before) AS answers_after, max(value) FILTER (NOT is_before) AS after,
        max(standard_error) FILTER (NOT is_before) AS after_error
    FROM sides
    GROUP BY survey_id, question_id, figure, label, selected_index
),
based AS (
    SELECT
        *, max(answers_before) OVER question AS based_before, max(answers_after) OVER question AS based_after
    FROM paired
    WINDOW question AS (PARTITION BY survey_id, question_id, figure)
),
filled AS (
    SELECT
        survey_id, question_id, figure, label, selected_index, coalesce(based_before, 0) AS answers_before,
        CASE WHEN based_before > 0 THEN coalesce(before, 0) END AS before,
        CASE WHEN based_before > 1 THEN coalesce(before_error, 0) END AS before_error,
        coalesce(based_after, 0) AS answers_after,
        CASE WHEN based_after > 0 THEN coalesce(after, 0) END AS after,
        CASE WHEN based_after > 1 THEN coalesce(after_error, 0) END AS after_error
    FROM based
),
shown AS (
    SELECT survey_id, question_id, max({'at': created_at, 'text': question_text}).text AS question_text
    FROM current_responses
    WHERE question_text IS NOT NULL AND question_type IN ('NPS', 'LIKERT', 'MULTIPLECHOICE', 'MULTIPLESELECT')
    GROUP BY survey_id, question_id
)
SELECT
    filled.survey_id, survey.name AS survey_name, filled.question_id,
    coalesce(question.question_text, shown.question_text) AS question_text, filled.figure, filled.label,
    filled.answers_before, filled.before, filled.before_error, filled.answers_after, filled.after, filled.after_error,
    filled.after - filled.before AS change, filled.selected_index
FROM filled
LEFT JOIN surveys AS survey ON survey.id = filled.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = filled.survey_id AND question.question_id = filled.question_id
LEFT JOIN shown ON shown.survey_id IS NOT DISTINCT FROM filled.survey_id AND shown.question_id = filled.question_id
