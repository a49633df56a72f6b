-- NPS, top-two box and choice shares of every question, one figure a row: what figure_changes compares.
--
-- One row: one figure of one question of one survey; of choice shares, one option. Options that nobody chose have no
-- row. Left out: questions without an answer that counts, answers that are deleted or have vanished. The figures are
-- those of nps_answers, likert_top_two and choice_share.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   figure: nps (-100 to 100), top_two_share or choice_share (0 to 1).
--   label: The option of a choice_share, as in choice_share; NULL for other figures.
--   selected_index: Index of the option as sent; only if its label is not known.
--   answers: Answers that count.
--   value: The figure.
--   standard_error: Its standard error; NULL for a single answer.
WITH scores AS (
    SELECT survey_id, question_id, count(*) AS answers, sum(worth) AS total, sum(worth * worth) AS squares
    FROM (SELECT *, CASE WHEN score >= 9 THEN 100 WHEN score >= 7 THEN 0 ELSE -100 END AS worth FROM nps_answers)
    GROUP BY survey_id, question_id
),
shares AS (
    SELECT
        survey_id, question_id, 'top_two_share' AS figure, NULL AS label, NULL AS selected_index, boxed AS answers,
        top_two_share AS value
    FROM likert_top_two
    WHERE boxed > 0
    UNION ALL
    SELECT survey_id, question_id, 'choice_share', label, selected_index, answered, share FROM choice_share
)
SELECT
    survey_id, question_id, 'nps' AS figure, NULL::VARCHAR AS label, NULL::BIGINT AS selected_index, answers,
    total / answers AS value,
    CASE WHEN answers > 1 THEN
        sqrt(greatest(squares - total::DOUBLE ** 2 / answers, 0) / (answers - 1) / answers) END AS standard_error
FROM scores
UNION ALL
SELECT
    survey_id, question_id, figure, label, selected_index, answers, value,
    CASE WHEN answers > 1 THEN sqrt(value * (1 - value) / answers) END
FROM shares
