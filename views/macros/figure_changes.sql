-- NPS, top-two box and choice shares as the warehouse knew them at two moments.
--
-- Call it as a table: FROM figure_changes(TIMESTAMP '2026-04-01 00:00:00', TIMESTAMP '2026-04-08 00:00:00').
-- One row: one figure of one question of one survey. A question that has no answer that counts at either moment has no row.
-- Left out: answers that name no survey, that were deleted or gone at the moment, or whose people were erased since.
-- The answers of the earlier moment are among those of the later one, so the two errors do not add up to one of the change. Scales are
-- the current ones, see likert_top_two. A chosen option is what most answers call its index; without an index, the text of the answer.
--
-- Parameters:
--   earlier: The earlier moment, UTC.
--   later: The later moment, UTC.
--
-- Columns:
--   survey_id: The survey.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_id: The question.
--   question_text: The current wording; NULL for a question that no survey defines.
--   figure: nps (-100 to 100), top_two_share or choice_share (0 to 1).
--   label: The option of a choice_share; NULL for other figures.
--   answers_before: Answers that count at the earlier moment.
--   before: The figure then; NULL without answers.
--   before_error: Its standard error; NULL for a single answer.
--   answers_after: Answers that count at the later moment.
--   after: The figure then; NULL without answers.
--   after_error: Its standard error; NULL for a single answer.
--   change: after minus before; NULL if either is NULL.
WITH known AS (
    SELECT 'before' AS side, * FROM responses_as_of(earlier)
    UNION ALL
    SELECT 'after' AS side, * FROM responses_as_of(later)
),
scores AS (
    SELECT side, survey_id, question_id, count(*) AS answers, sum(worth) AS total, sum(worth * worth) AS squares
    FROM (
        SELECT side, survey_id, question_id, CASE WHEN answer_number >= 9 THEN 100 WHEN answer_number >= 7 THEN 0 ELSE -100 END AS worth
        FROM known
        WHERE question_type = 'NPS' AND answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) AND survey_id IS NOT NULL
    )
    GROUP BY side, survey_id, question_id
),
boxes AS (
    SELECT
        known.side, known.survey_id, known.question_id, count(*) AS answers,
        count(*) FILTER (known.answer_number >= scale.scale_max - 1) / count(*) AS share
    FROM known
    JOIN likert_top_two AS scale ON scale.survey_id = known.survey_id AND scale.question_id = known.question_id
    WHERE known.question_type = 'LIKERT' AND known.answer_number = floor(known.answer_number)
        AND known.answer_number BETWEEN scale.scale_min AND scale.scale_max AND scale.scale_max - scale.scale_min >= 2
    GROUP BY known.side, known.survey_id, known.question_id
),
called AS (
    -- What most answers call an index; of names that are as frequent, the first.
    SELECT survey_id, question_id, selected_index, label
    FROM (
        SELECT survey_id, question_id, selected_index, label, count(*) AS times
        FROM response_choices
        WHERE selected_index IS NOT NULL AND label IS NOT NULL
        GROUP BY survey_id, question_id, selected_index, label
    )
    QUALIFY row_number() OVER (PARTITION BY survey_id, question_id, selected_index ORDER BY times DESC, label) = 1
),
answered AS (
    SELECT side, survey_id, question_id, count(*) AS answers
    FROM known
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped AND survey_id IS NOT NULL
    GROUP BY side, survey_id, question_id
),
picked AS (
    SELECT
        side, response_group_uid, survey_id, question_id, answer_text,
        unnest(CASE WHEN len(selected_indexes) > 0 THEN selected_indexes ELSE [NULL::BIGINT] END) AS selected_index
    FROM known
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped AND survey_id IS NOT NULL
),
chosen AS (
    SELECT
        picked.side, picked.survey_id, picked.question_id,
        coalesce(called.label, CASE WHEN picked.selected_index IS NULL THEN picked.answer_text END) AS label,
        count(DISTINCT picked.response_group_uid) AS chosen
    FROM picked
    LEFT JOIN called
        ON called.survey_id = picked.survey_id AND called.question_id = picked.question_id
        AND called.selected_index = picked.selected_index
    GROUP BY ALL
),
labels AS (
    SELECT DISTINCT survey_id, question_id, label FROM chosen WHERE label IS NOT NULL
),
shares AS (
    -- An option that nobody chose at one of the moments has the share 0 there.
    SELECT
        answered.side, answered.survey_id, answered.question_id, labels.label, answered.answers,
        coalesce(chosen.chosen, 0) / answered.answers AS share
    FROM answered
    JOIN labels ON labels.survey_id = answered.survey_id AND labels.question_id = answered.question_id
    LEFT JOIN chosen
        ON chosen.side = answered.side AND chosen.survey_id = answered.survey_id AND chosen.question_id = answered.question_id
        AND chosen.label = labels.label
),
figures AS (
    SELECT
        side, survey_id, question_id, 'nps' AS figure, NULL::VARCHAR AS label, answers, total / answers AS value,
        sqrt(greatest(squares - total::DOUBLE ** 2 / answers, 0) / nullif(answers - 1, 0) / answers) AS error
    FROM scores
    UNION ALL
    SELECT side, survey_id, question_id, 'top_two_share', NULL, answers, share, sqrt(share * (1 - share) / answers) FROM boxes
    UNION ALL
    SELECT side, survey_id, question_id, 'choice_share', label, answers, share, sqrt(share * (1 - share) / answers) FROM shares
),
paired AS (
    SELECT
        survey_id, question_id, figure, label,
        coalesce(max(answers) FILTER (side = 'before'), 0) AS answers_before,
        max(value) FILTER (side = 'before') AS before,
        max(error) FILTER (side = 'before' AND answers > 1) AS before_error,
        coalesce(max(answers) FILTER (side = 'after'), 0) AS answers_after,
        max(value) FILTER (side = 'after') AS after,
        max(error) FILTER (side = 'after' AND answers > 1) AS after_error
    FROM figures
    GROUP BY survey_id, question_id, figure, label
)
SELECT
    paired.survey_id, survey.name AS survey_name, paired.question_id, question.question_text, paired.figure, paired.label,
    paired.answers_before, paired.before, paired.before_error, paired.answers_after, paired.after, paired.after_error,
    paired.after - paired.before AS change
FROM paired
LEFT JOIN surveys AS survey ON survey.id = paired.survey_id
LEFT JOIN questions AS question
    ON question.survey_id = paired.survey_id AND question.question_id = paired.question_id
