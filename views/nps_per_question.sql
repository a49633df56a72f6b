-- NPS of each question over all its answers, with the shares of promoters, passives and detractors.
--
-- One row: one question of one survey. Left out: skipped answers, numbers that are not whole or not within 0 to 10,
-- answers that are deleted or have vanished. Standard error as in nps_by_week.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   responses: Answers that count.
--   promoters: Those with 9 or 10.
--   passives: Those with 7 or 8.
--   detractors: Those with 0 to 6.
--   promoter_share: promoters as a share of responses, 0 to 1.
--   passive_share: passives as a share of responses.
--   detractor_share: detractors as a share of responses.
--   nps: 100 * (promoters - detractors) / responses: -100 to 100.
--   standard_error: Standard error of nps, in its unit; NULL for a single answer.
--   nps_low: Lower end of the 95 % band, nps - 1.96 * standard_error, not below -100; NULL for a single answer.
--   nps_high: Upper end of the 95 % band, not above 100; NULL for a single answer.
WITH counted AS (
    SELECT
        survey_id, question_id, count(*) AS responses,
        count(*) FILTER (score >= 9) AS promoters,
        count(*) FILTER (score BETWEEN 7 AND 8) AS passives,
        count(*) FILTER (score <= 6) AS detractors
    FROM nps_answers
    GROUP BY survey_id, question_id
),
shown AS (
    SELECT survey_id, question_id, max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS answer
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, shown.answer.text) AS question_text,
    responses, promoters, passives, detractors,
    promoters / responses AS promoter_share, passives / responses AS passive_share, detractors / responses AS detractor_share,
    nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN shown ON shown.survey_id IS NOT DISTINCT FROM scored.survey_id AND shown.question_id = scored.question_id
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id
