-- Best-worst scores (MAXDIFF).
--
-- One row: one item of one question of one survey that was shown at least once.
-- Left out: rounds in which nothing was chosen, answers that are deleted or have vanished.
-- The service sends left and right. Which is best and which is worst is read off the question's two labels of today: one must
-- speak of most, best, highest or top and the other of least, worst, lowest or bottom, and neither of anything contrary (not,
-- never, dis..., un..., hate, annoy..., bad). If they do not, best, worst and score are NULL.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; NULL for a question that no survey defines.
--   item: Wording of the item.
--   shown: Times that it was shown in a round in which something was chosen.
--   chosen_left: Times that it was chosen as left.
--   chosen_right: Times that it was chosen as right.
--   left_label: The label of left.
--   right_label: The label of right.
--   best: Times that it was chosen as best; NULL when the labels do not show it.
--   worst: Times that it was chosen as worst; NULL when the labels do not show it.
--   score: (best - worst) / shown, -1 to 1; NULL when the labels do not show it.
WITH counted AS (
    SELECT
        item.survey_id, item.question_id, item.option AS item, count(*) AS shown,
        count(*) FILTER (item.selected = 'left') AS chosen_left,
        count(*) FILTER (item.selected = 'right') AS chosen_right
    FROM current_maxdiff_items AS item
    SEMI JOIN (SELECT response_group_uid, question_id, round FROM response_maxdiff_items WHERE selected IS NOT NULL) AS chosen
        ON chosen.response_group_uid = item.response_group_uid AND chosen.question_id = item.question_id
            AND chosen.round = item.round
    GROUP BY item.survey_id, item.question_id, item.option
),
spoken AS (
    SELECT
        survey_id, question_id, question_text, left_label, right_label,
        regexp_matches(left_label, '(?i)\b(most|best|highest|top)\b') AS left_best,
        regexp_matches(left_label, '(?i)\b(least|worst|lowest|bottom)\b') AS left_worst,
        regexp_matches(right_label, '(?i)\b(most|best|highest|top)\b') AS right_best,
        regexp_matches(right_label, '(?i)\b(least|worst|lowest|bottom)\b') AS right_worst,
        regexp_matches(left_label || ' ' || right_label, '(?i)\b(not|never|(dis|un)[a-z]{3,}|hate|annoy[a-z]*|bad)\b')
            AS is_contrary
    FROM questions
),
told AS (
    SELECT
        *, CASE
            WHEN is_contrary THEN NULL
            WHEN left_best AND right_worst AND NOT left_worst AND NOT right_best THEN 'left'
            WHEN right_best AND left_worst AND NOT right_worst AND NOT left_best THEN 'right'
        END AS best_side
    FROM spoken
),
named AS (
    SELECT
        counted.*, survey.name AS survey_name, told.question_text, told.left_label, told.right_label,
        CASE told.best_side WHEN 'left' THEN chosen_left WHEN 'right' THEN chosen_right END AS best,
        CASE told.best_side WHEN 'left' THEN chosen_right WHEN 'right' THEN chosen_left END AS worst
    FROM counted
    LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
    LEFT JOIN told ON told.survey_id = counted.survey_id AND told.question_id = counted.question_id
)
SELECT
    survey_id, question_id, survey_name, question_text, item, shown, chosen_left, chosen_right, left_label, right_label,
    best, worst, (best - worst) / shown AS score
FROM named
