-- The values with which LIKERT questions were answered, each against the scale of the version that the answers were
-- given to.
--
-- One row: one value of one version of one question of one survey. Values that nobody chose have no row. Left out:
-- skipped answers, values that are not whole, answers that are deleted or have vanished. Which version an answer was
-- given to: answer_versions. Scales of definitions: question_scales. A version without a scale has that of the answers:
-- the shortest usual scale that includes all integers from 0 to 10 with which such versions of the question were
-- answered. Usual are 1 to 5, 7 and 10, and 0 to 4, 6 and 10.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   version: The version; NULL for a question that no scan of surveys saw.
--   value: The answer; NULL for answers that are no number.
--   answers: Answers with this value.
--   kind: point of the scale; not rated, for an option that is no point, such as N/A, and for answers that are no
--     number; or outside the scale.
--   scale_min: Lowest value of the scale; NULL when there is none.
--   scale_max: Highest value of the scale; NULL when there is none.
--   scale_source: Source of the scale: options or properties of the question; observed, if its answers reach from one
--     end of a usual scale to the other; else usual.
--   last_question_text: The wording with which the question was shown last.
WITH counted AS (
    SELECT
        survey_id, question_id, version, is_skipped, try_cast(answer_number AS BIGINT) AS value, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown,
        any_value(scale_min) AS scale_min, any_value(scale_max) AS scale_max, any_value(scale_source) AS scale_source,
        any_value(not_rated_values) AS not_rated_values
    FROM answer_versions
    WHERE question_type = 'LIKERT' AND (answer_number IS NULL OR answer_number = floor(answer_number))
    GROUP BY survey_id, question_id, version, is_skipped, value
),
defined AS (
    SELECT
        *, min(value) FILTER (scale_source IS NULL AND value BETWEEN 0 AND 10) OVER question AS lowest,
        max(value) FILTER (scale_source IS NULL AND value BETWEEN 0 AND 10) OVER question AS highest,
        max(shown) OVER question AS last_shown
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
usual AS (
    SELECT
        *, CASE WHEN lowest = 0 THEN 0 ELSE 1 END AS usual_min,
        CASE WHEN highest <= usual_min + 4 THEN usual_min + 4 WHEN highest <= usual_min + 6 THEN usual_min + 6 ELSE 10 END AS usual_max
    FROM defined
),
scaled AS (
    SELECT
        survey_id, question_id, version, value, answers, last_shown, not_rated_values,
        CASE WHEN scale_source IS NULL AND highest IS NOT NULL THEN usual_min ELSE scale_min END AS scale_min,
        CASE WHEN scale_source IS NULL AND highest IS NOT NULL THEN usual_max ELSE scale_max END AS scale_max,
        CASE
            WHEN scale_source IS NOT NULL THEN scale_source
            WHEN lowest = usual_min AND highest = usual_max THEN 'observed'
            WHEN highest IS NOT NULL THEN 'usual'
        END AS scale_source
    FROM usual
    WHERE NOT is_skipped
)
SELECT
    survey_id, question_id, version, value, answers,
    CASE
        WHEN value BETWEEN scale_min AND scale_max THEN 'point'
        WHEN value IS NULL OR list_contains(not_rated_values, value) THEN 'not rated'
        ELSE 'outside'
    END AS kind,
    scale_min, scale_max, scale_source, last_shown.text AS last_question_text
FROM scaled
