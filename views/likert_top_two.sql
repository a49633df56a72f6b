-- Top-two box and mean of every LIKERT question, against its own scale.
--
-- One row: one question of one survey that has an answer within its scale.
-- Left out: skipped answers, values that are not whole or lie outside the scale (see likert_distribution), answers that are
-- deleted or have vanished.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   answers: Answers within the scale.
--   mean: Their mean.
--   top_two: Answers with one of the two highest values of the scale; NULL for a scale of fewer than three values.
--   top_two_share: top_two as a share of answers, 0 to 1.
--   bottom_two: Answers with one of the two lowest values of the scale; NULL for a scale of fewer than three values.
--   bottom_two_share: bottom_two as a share of answers, 0 to 1.
--   scale_min: Lowest value of the scale.
--   scale_max: Highest value of the scale.
--   scale_source: Source of the scale: options or properties of the question, its answers (observed), or the shortest
--     usual scale that includes them (usual): see likert_distribution.
WITH boxed AS (
    SELECT
        survey_id, question_id, scale_min, scale_max, scale_source,
        max(survey_name) AS survey_name, max(question_text) AS question_text,
        sum(answers)::BIGINT AS answers,
        sum(value * answers)::DOUBLE / sum(answers) AS mean,
        coalesce(sum(answers) FILTER (value >= scale_max - 1), 0)::BIGINT AS top,
        coalesce(sum(answers) FILTER (value <= scale_min + 1), 0)::BIGINT AS bottom
    FROM likert_distribution
    GROUP BY survey_id, question_id, scale_min, scale_max, scale_source
)
SELECT
    survey_id, question_id, survey_name, question_text, answers, mean,
    CASE WHEN scale_max - scale_min >= 2 THEN top END AS top_two,
    CASE WHEN scale_max - scale_min >= 2 THEN top / answers END AS top_two_share,
    CASE WHEN scale_max - scale_min >= 2 THEN bottom END AS bottom_two,
    CASE WHEN scale_max - scale_min >= 2 THEN bottom / answers END AS bottom_two_share,
    scale_min, scale_max, scale_source
FROM boxed
