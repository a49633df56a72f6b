-- The distribution of the answers to every LIKERT question.
--
-- One row: one value of one question of one survey. Values that nobody chose have no row.
-- Left out: skipped answers, values that are not whole or lie outside the scale, answers that are deleted or have vanished.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   value: The answer.
--   answers: Answers with this value.
--   share: answers as a share of all answers within the scale, 0 to 1.
--   scale_min: Lowest value of the scale.
--   scale_max: Highest value of the scale.
--   scale_source: Source of the scale: options or properties of the question; observed, if its answers reach from one
--     end of a usual scale to the other; else usual: the shortest usual scale that includes all integers from 0 to 10 that
--     were ever answered to the question, also in deleted or vanished answers. Usual are 1 to 5, 7 and 10, and 0 to 4, 6 and 10.
WITH counted AS (
    SELECT
        survey_id, question_id, try_cast(answer_number AS BIGINT) AS value, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM current_responses
    WHERE question_type = 'LIKERT' AND answer_number = floor(answer_number)
    GROUP BY survey_id, question_id, value
),
ranged AS (
    SELECT
        survey_id, question_id, min(answer_number)::BIGINT AS least, max(answer_number)::BIGINT AS most,
        CASE WHEN min(answer_number) = 0 THEN 0 ELSE 1 END AS scale_min
    FROM responses
    WHERE question_type = 'LIKERT' AND answer_number = floor(answer_number) AND answer_number BETWEEN 0 AND 10
    GROUP BY survey_id, question_id
),
observed AS (
    SELECT
        *, CASE WHEN most <= scale_min + 4 THEN scale_min + 4 WHEN most <= scale_min + 6 THEN scale_min + 6 ELSE 10 END
            AS scale_max
    FROM ranged
),
scaled AS (
    SELECT
        counted.survey_id, counted.question_id, survey.name AS survey_name, counted.value, counted.answers,
        coalesce(question.question_text, (max(shown) OVER every).text) AS question_text,
        coalesce(question.scale_min, observed.scale_min) AS scale_min,
        coalesce(question.scale_max, observed.scale_max) AS scale_max,
        CASE
            WHEN question.scale_source IS NOT NULL THEN question.scale_source
            WHEN observed.least = observed.scale_min AND observed.most = observed.scale_max THEN 'observed'
            ELSE 'usual'
        END AS scale_source
    FROM counted
    LEFT JOIN observed
        ON observed.survey_id = counted.survey_id AND observed.question_id = counted.question_id
    LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
    LEFT JOIN questions AS question
        ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id
    WINDOW every AS (PARTITION BY counted.survey_id, counted.question_id)
)
SELECT
    survey_id, question_id, survey_name, question_text, value, answers,
    answers / sum(answers) OVER (PARTITION BY survey_id, question_id) AS share,
    scale_min, scale_max, scale_source
FROM scaled
WHERE value BETWEEN scale_min AND scale_max
