-- NPS by week, over all surveys; each visitor counts once.
--
-- One row: one week. A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a week: by the latest answer. Of answers with the same time, the one with the
-- greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses),
-- where s is the sample standard deviation of these values. With few answers, or answers of one kind only, it is too small to be reliable.
--
-- Columns:
--   week: The Monday with which the week begins (ISO weeks), in the report time zone.
--   responses: Visitors who answered.
--   promoters: Those with 9 or 10.
--   passives: Those with 7 or 8.
--   detractors: Those with 0 to 6.
--   nps: 100 * (promoters - detractors) / responses: -100 to 100.
--   standard_error: Standard error of nps, in its unit; NULL for a single answer.
--   nps_low: Lower end of the 95 % band, nps - 1.96 * standard_error, not below -100; NULL for a single answer.
--   nps_high: Upper end of the 95 % band, not above 100; NULL for a single answer.
WITH tallied AS (
    SELECT
        week, score, count(*) AS answers
    FROM (
        SELECT
            week, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY week, visitor_key
    )
    GROUP BY week, score
),
counted AS (
    SELECT
        week, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY week
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    week, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
