-- NPS of every question by segment.
--
-- Call it as a table: FROM nps_by_segment('attribute:plan'), or FROM nps_by_segment('browser', answers_min := 30). One
-- row: one segment of one question of one survey. Order by survey_id, question_id, responses DESC. Left out: skipped
-- answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished. A segment with
-- fewer answers than answers_min has its count and no figure. Standard error as in nps_by_week.
--
-- Parameters:
--   segment: How to divide the answers into segments; see answer_segments.
--   answers_min := 5: Minimum answers of a segment; smaller segments have no figures.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   segment_value: The segment; NULL when it is not known.
--   responses: Answers that count.
--   promoters: Those with 9 or 10; NULL in a small segment.
--   passives: Those with 7 or 8; NULL in a small segment.
--   detractors: Those with 0 to 6; NULL in a small segment.
--   nps: 100 * (promoters - detractors) / responses: -100 to 100; NULL in a small segment.
--   standard_error: Standard error of nps, in its unit; NULL for a single answer and in a small segment.
--   not_requested: What no run requested, so that the segments are unknown: with_meta, with_urls, with_snapshots,
--     with_custom_metadata or users; NULL if it was requested.
WITH counted AS (
    SELECT
        survey_id, question_id, survey_name, segment_value, any_value(not_requested) AS not_requested,
        sum(responses)::BIGINT AS responses, sum(promoters)::BIGINT AS promoters, sum(passives)::BIGINT AS passives,
        sum(detractors)::BIGINT AS detractors
    FROM nps_by_week_and_segment(segment, answers_min := 1)
    GROUP BY ALL
)
SELECT
    survey_id, question_id, survey_name, segment_value, responses,
    CASE WHEN responses >= answers_min THEN promoters END AS promoters,
    CASE WHEN responses >= answers_min THEN passives END AS passives,
    CASE WHEN responses >= answers_min THEN detractors END AS detractors,
    CASE WHEN responses >= answers_min THEN 100 * (promoters - detractors)::DOUBLE / responses END AS nps,
    CASE WHEN responses >= answers_min THEN
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) END AS standard_error,
    not_requested
FROM counted
