-- How the rows of matrix questions were answered (MATRIX).
--
-- One row: one column chosen in one row of one question of one survey. Columns that nobody chose have no row.
-- Left out: rows that were skipped, answers that are deleted or have vanished.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   row_label: Label of the row.
--   column_label: Label of the column.
--   column_number: The integer at the start of the column label; NULL when there is none.
--   answers: Answers that chose the column in this row.
--   answered: Answers that chose any column in this row.
--   share: answers as a share of answered, 0 to 1.
WITH counted AS (
    SELECT
        survey_id, question_id, row_label, column_label, max(column_number) AS column_number, count(*) AS answers,
        NULL AS shown_answer
    FROM current_matrix_cells
    WHERE column_label IS NOT NULL
    GROUP BY survey_id, question_id, row_label, column_label
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'MATRIX'
    GROUP BY survey_id, question_id
),
based AS (
    SELECT
        * EXCLUDE (shown_answer), (sum(answers) OVER (PARTITION BY survey_id, question_id, row_label))::BIGINT AS answered,
        max(shown_answer) OVER (PARTITION BY survey_id, question_id) AS shown_answer
    FROM counted
    QUALIFY answers IS NOT NULL
)
SELECT
    based.survey_id, based.question_id, survey.name AS survey_name,
    coalesce(question.question_text, based.shown_answer.text) AS question_text,
    based.row_label, based.column_label, based.column_number,
    based.answers, based.answered, based.answers / based.answered AS share
FROM based
LEFT JOIN surveys AS survey ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = based.survey_id AND question.question_id = based.question_id
