-- The questions of the current definition of every survey, with the scale that the definition gives a LIKERT question.
--
-- One row: one question of one survey. A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- The scale comes from the options, if there are two or more: from the least to the greatest of the integers that their labels
-- begin with, or 1 to their number if one has none. Else it is 1 to the property "range", if there is one.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   survey_name: Name of the survey; also of a survey that vanished at the service.
--   question_ordinal: Position in the survey, from 1.
--   question_type: NPS, LIKERT, OPEN and so on.
--   question_text: The current wording.
--   left_label: Label of the left end of the scale, or of the left choice.
--   right_label: Label of the right end of the scale, or of the right choice.
--   scale_min: LIKERT: lowest value of the scale; NULL when the definition does not contain it.
--   scale_max: LIKERT: highest value of the scale; NULL when the definition does not contain it.
--   scale_source: LIKERT: options or properties; NULL when the definition does not contain it.
WITH defined AS (
    SELECT
        survey_id, question_id, min(question_ordinal) AS question_ordinal,
        arg_min(question_type, question_ordinal) AS question_type,
        arg_min(question_text, question_ordinal) AS question_text,
        arg_min(left_label, question_ordinal) AS left_label,
        arg_min(right_label, question_ordinal) AS right_label,
        arg_min(options_properties, question_ordinal) AS options_properties
    FROM survey_questions
    WHERE question_id IS NOT NULL
    GROUP BY survey_id, question_id
),
numbered AS (
    SELECT
        survey_id, question_ordinal,
        try_cast(regexp_extract(label, '^\s*([+-]?[0-9]{1,4})([^0-9.,]|$)', 1) AS BIGINT) AS value
    FROM survey_question_options
),
listed AS (
    SELECT
        survey_id, question_ordinal,
        CASE WHEN count(value) = count(*) THEN min(value) ELSE 1 END AS lowest,
        CASE WHEN count(value) = count(*) THEN max(value) ELSE count(*) END AS highest
    FROM numbered
    GROUP BY survey_id, question_ordinal
    HAVING count(*) >= 2
),
named AS (
    SELECT
        defined.*, survey.name AS survey_name, listed.lowest, listed.highest,
        try_cast(regexp_extract(options_properties, '"range"\s*:\s*"?([0-9]{1,2})\s*["},]', 1) AS BIGINT) AS value_range,
        CASE
            WHEN defined.question_type IS DISTINCT FROM 'LIKERT' THEN NULL
            WHEN listed.highest IS NOT NULL THEN 'options'
            WHEN value_range >= 2 THEN 'properties'
        END AS scale_source
    FROM defined
    LEFT JOIN surveys AS survey ON survey.id = defined.survey_id
    LEFT JOIN listed ON listed.survey_id = defined.survey_id AND listed.question_ordinal = defined.question_ordinal
)
SELECT
    survey_id, question_id, survey_name, question_ordinal, question_type, question_text, left_label, right_label,
    CASE scale_source WHEN 'options' THEN lowest WHEN 'properties' THEN 1 END AS scale_min,
    CASE scale_source WHEN 'options' THEN highest WHEN 'properties' THEN value_range END AS scale_max,
    scale_source
FROM named
