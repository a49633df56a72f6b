-- The versions of every survey's set of questions: which questions it had, in which order, from when until when.
--
-- One row: one version of one survey's set of questions; key (survey_id, set_version).
-- Left out: surveys that no scan saw, definitions without an id, and the time in which a survey had no questions. Times
-- are UTC. A question that is reworded, or gets other options, makes no version. A question that is named twice stands
-- at its first position.
--
-- Columns:
--   survey_id: The survey.
--   set_version: Number of the version, from 1.
--   question_ids: The questions, in their order.
--   valid_from: Start of the scan that first saw the version.
--   shown_from: Sessions from then on were shown this version; NULL for the first version: from the beginning.
--   shown_until: Sessions before then were shown this version; NULL for the last one.
WITH defined AS (
    SELECT
        survey_id, question_id, question_ordinal, valid_from, coalesce(valid_to, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends
    FROM survey_question_history
    WHERE question_id IS NOT NULL
),
moments AS (
    SELECT survey_id, valid_from AS moment FROM defined
    UNION
    SELECT survey_id, ends FROM defined
),
placed AS (
    SELECT moments.survey_id, moments.moment, defined.question_id, min(defined.question_ordinal) AS question_ordinal
    FROM moments
    JOIN defined
        ON defined.survey_id = moments.survey_id AND defined.valid_from <= moments.moment AND defined.ends > moments.moment
    GROUP BY moments.survey_id, moments.moment, defined.question_id
),
sets AS (
    SELECT survey_id, moment, list(question_id ORDER BY question_ordinal) AS question_ids
    FROM placed
    GROUP BY survey_id, moment
),
begun AS (
    SELECT * FROM sets
    QUALIFY question_ids IS DISTINCT FROM lag(question_ids) OVER (PARTITION BY survey_id ORDER BY moment)
)
SELECT
    survey_id, row_number() OVER survey AS set_version, question_ids, moment AS valid_from,
    CASE WHEN row_number() OVER survey > 1 THEN moment END AS shown_from,
    lead(moment) OVER survey AS shown_until
FROM begun
WINDOW survey AS (PARTITION BY survey_id ORDER BY moment)
