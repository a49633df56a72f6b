-- The versions of every question: wording, options and position, in the order in which scans saw them.
--
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without an id. Times are UTC.
-- A scan sees a change some time after it was made, so shown_from and shown_until are only as exact as the interval
-- between scans of surveys. For the version that an answer was given to see answer_versions. A survey that names a
-- question twice: the first of them.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   version: Number of the version, from 1.
--   question_ordinal: Position in the survey, from 1.
--   question_type: NPS, LIKERT, OPEN and so on.
--   question_text: The wording.
--   intro_text: Text shown before the options.
--   left_label: Label of the left end of the scale, or of the left choice.
--   right_label: Label of the right end of the scale, or of the right choice.
--   options: Options, JSON as sent.
--   options_properties: Properties of the options, JSON as sent.
--   routing_options: Routing, JSON as sent.
--   valid_from: Start of the scan that first saw the version.
--   valid_to: Start of the scan that no longer saw it; NULL for the current version.
--   shown_from: Answers from then on were given to this version; NULL for the first version: from the beginning.
--   shown_until: Answers before then were given to this version; NULL for the last one.
--   is_current: True if this is the current version.
--   option_labels: Wordings of the options, in their order; NULL for a question without options.
WITH defined AS (
    SELECT
        survey_id, question_id, question_ordinal, valid_from,
        coalesce(valid_to, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends
    FROM survey_question_history
    WHERE question_id IS NOT NULL
),
-- Of definitions that stand at the same time the first counts; another counts from the end of the first.
candidates AS (
    SELECT *, valid_from AS begins FROM defined
    UNION ALL
    SELECT DISTINCT later.*, earlier.ends
    FROM defined AS later
    JOIN defined AS earlier
        ON earlier.survey_id = later.survey_id AND earlier.question_id = later.question_id
        AND earlier.question_ordinal < later.question_ordinal
        AND earlier.ends > later.valid_from AND earlier.ends < later.ends
),
numbered AS (
    SELECT
        candidate.*, row_number() OVER question AS version, lead(candidate.begins) OVER question AS shown_until
    FROM candidates AS candidate
    ANTI JOIN defined AS earlier
        ON earlier.survey_id = candidate.survey_id AND earlier.question_id = candidate.question_id
        AND earlier.question_ordinal < candidate.question_ordinal
        AND earlier.valid_from <= candidate.begins AND earlier.ends > candidate.begins
    WINDOW question AS (PARTITION BY candidate.survey_id, candidate.question_id ORDER BY candidate.begins)
),
labelled AS (
    SELECT
        question.survey_id, question.question_ordinal, question.valid_from,
        list(option.label ORDER BY option.option_ordinal) AS option_labels
    FROM survey_question_history AS question
    JOIN survey_question_option_history AS option
        ON option.survey_id = question.survey_id AND option.question_ordinal = question.question_ordinal
        AND option.valid_from <= question.valid_from
        AND coalesce(option.valid_to, TIMESTAMP '9999-12-31 23:59:59.999999') > question.valid_from
    GROUP BY question.survey_id, question.question_ordinal, question.valid_from
)
SELECT
    numbered.survey_id, numbered.question_id, version, numbered.question_ordinal, question_type, question_text, intro_text,
    left_label, right_label, options, options_properties, routing_options, begins AS valid_from,
    least(valid_to, shown_until) AS valid_to,
    CASE WHEN version > 1 THEN begins END AS shown_from, shown_until,
    least(valid_to, shown_until) IS NULL AS is_current,
    labelled.option_labels
FROM numbered
JOIN survey_question_history AS question
    ON question.survey_id = numbered.survey_id AND question.question_ordinal = numbered.question_ordinal
    AND question.valid_from = numbered.valid_from
LEFT JOIN labelled
    ON labelled.survey_id = numbered.survey_id AND labelled.question_ordinal = numbered.question_ordinal
    AND labelled.valid_from = numbered.valid_from
