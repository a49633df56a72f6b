-- Best-worst scores (MAXDIFF).
--
-- One row: one item of one question of one survey that was shown at least once.
-- Left out: rounds in which nothing was chosen, answers that are deleted or have vanished.
-- The service sends left and right. Which is best and which is worst is read off the two labels of the version that the
-- answer was given to (see answer_versions): one must speak of most, best, highest or top and the other of least,
-- worst, lowest or bottom, and neither of anything contrary (not, never, dis..., un..., hate, annoy..., bad). Answers
-- to other versions are not in best, worst and score, which are NULL if there are no others.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   item: Wording of the item.
--   shown: Times that it was shown in a round in which something was chosen.
--   chosen_left: Times that it was chosen as left.
--   chosen_right: Times that it was chosen as right.
--   left_label: The label of left in the last version.
--   right_label: The label of right in the last version.
--   best: Times that it was chosen as best; NULL when the labels do not show it.
--   worst: Times that it was chosen as worst; NULL when the labels do not show it.
--   score: (best - worst) / shown, -1 to 1, over the answers to versions whose labels show it; NULL when there are
--     none.
WITH counted AS (
    SELECT
        answer.survey_id, answer.question_id, answer.version, item.option AS item, count(*) AS shown,
        count(*) FILTER (item.selected = 'left') AS chosen_left,
        count(*) FILTER (item.selected = 'right') AS chosen_right
    FROM response_maxdiff_items AS item
    JOIN answer_versions AS answer
        ON answer.response_group_uid = item.response_group_uid AND answer.question_id = item.question_id
            AND answer.question_type = 'MAXDIFF'
    SEMI JOIN (SELECT response_group_uid, question_id, round FROM response_maxdiff_items WHERE selected IS NOT NULL) AS chosen
        ON chosen.response_group_uid = item.response_group_uid AND chosen.question_id = item.question_id
            AND chosen.round = item.round
    GROUP BY ALL
),
spoken AS (
    SELECT
        survey_id, question_id, version, left_label, right_label,
        regexp_matches(left_label, '(?i)\b(most|best|highest|top)\b') AS left_best,
        regexp_matches(left_label, '(?i)\b(least|worst|lowest|bottom)\b') AS left_worst,
        regexp_matches(right_label, '(?i)\b(most|best|highest|top)\b') AS right_best,
        regexp_matches(right_label, '(?i)\b(least|worst|lowest|bottom)\b') AS right_worst,
        regexp_matches(left_label || ' ' || right_label, '(?i)\b(not|never|(dis|un)[a-z]{3,}|hate|annoy[a-z]*|bad)\b')
            AS is_contrary
    FROM question_versions
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
summed AS (
    SELECT
        counted.survey_id, counted.question_id, counted.item, sum(shown)::BIGINT AS shown,
        sum(chosen_left)::BIGINT AS chosen_left, sum(chosen_right)::BIGINT AS chosen_right,
        max({'version': coalesce(counted.version, 0), 'left': told.left_label, 'right': told.right_label}) AS labels,
        (sum(shown) FILTER (best_side IS NOT NULL))::BIGINT AS scored,
        (sum(CASE best_side WHEN 'left' THEN chosen_left WHEN 'right' THEN chosen_right END))::BIGINT AS best,
        (sum(CASE best_side WHEN 'left' THEN chosen_right WHEN 'right' THEN chosen_left END))::BIGINT AS worst,
        NULL AS shown_answer
    FROM counted
    LEFT JOIN told
        ON told.survey_id = counted.survey_id AND told.question_id = counted.question_id AND told.version = counted.version
    GROUP BY counted.survey_id, counted.question_id, counted.item
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'MAXDIFF'
    GROUP BY survey_id, question_id
),
named AS (
    SELECT
        * EXCLUDE (labels, shown_answer), max(labels) OVER question AS labels, max(shown_answer) OVER question AS shown_answer
    FROM summed
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY shown IS NOT NULL
)
SELECT
    named.survey_id, named.question_id, survey.name AS survey_name,
    coalesce(question.question_text, named.shown_answer.text) AS question_text, item, shown, chosen_left, chosen_right,
    labels.left AS left_label, labels.right AS right_label, best, worst, (best - worst) / scored AS score
FROM named
LEFT JOIN surveys AS survey ON survey.id = named.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = named.survey_id AND question.question_id = named.question_id
