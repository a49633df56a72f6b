-- The versions of every question: wording, options and position, in the order in which scans saw them.
--
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without an id. Times are UTC.
-- A scan sees a change some time after it was made, so shown_from and shown_until are only as exact as the interval between scans of surveys. For the
-- version that an answer was given to see response_question_versions. A survey that names a question twice: the first of them.
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
WITH firsts AS (
    SELECT * FROM survey_question_history
    WHERE question_id IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY survey_id, question_id, valid_from ORDER BY question_ordinal) = 1
),
numbered AS (
    SELECT
        *, row_number() OVER question AS version, lead(valid_from) OVER question AS shown_until
    FROM firsts
    WINDOW question AS (PARTITION BY survey_id, question_id ORDER BY valid_from)
)
SELECT
    survey_id, question_id, version, question_ordinal, question_type, question_text, intro_text, left_label, right_label,
    options, options_properties, routing_options, valid_from, valid_to,
    CASE WHEN version > 1 THEN valid_from END AS shown_from, shown_until, is_current
FROM numbered
