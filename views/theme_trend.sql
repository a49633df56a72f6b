-- Themes of answers, by week of the answer.
--
-- One row: one theme in one survey in one week.
-- Left out: themes that have vanished, and those of answers that are deleted or have vanished.
-- answers of several weeks, or of several surveys, may be added up; themed_answers of several themes may not.
--
-- Columns:
--   week: The Monday with which the week begins (ISO weeks), in the report time zone, by when the answer was given.
--   survey_id: The survey; NULL when the themes name none.
--   survey_name: Name of the survey; NULL when it is not known.
--   theme: The theme.
--   answers: Answers with this theme.
--   themed_answers: Answers of the survey and week with any theme.
--   share: answers as a share of themed_answers, 0 to 1.
WITH dated AS (
    SELECT
        date_trunc('week', {local answered_at})::DATE AS week, survey_id, theme, (response_group_uid, question_id) AS answer
    FROM current_themes
),
counted AS (
    SELECT week, survey_id, theme, count(DISTINCT answer) AS answers FROM dated GROUP BY week, survey_id, theme
),
based AS (
    SELECT week, survey_id, count(DISTINCT answer) AS themed_answers FROM dated GROUP BY week, survey_id
)
SELECT
    counted.week, counted.survey_id, survey.name AS survey_name, counted.theme, counted.answers, based.themed_answers,
    counted.answers / based.themed_answers AS share
FROM counted
JOIN based ON based.week = counted.week AND based.survey_id IS NOT DISTINCT FROM counted.survey_id
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
