-- The views of studysync for PostgreSQL 14 or newer. Written by scripts/readers/dialects.py from the views of DuckDB.
--
-- Run this once, and again after an update of studysync: psql -f views.sql. If the tables are not in the schema studysync, replace it
-- in the next three lines. Days, weeks and months are UTC.
DROP SCHEMA IF EXISTS studysync_views CASCADE;
CREATE SCHEMA studysync_views;
SET search_path = studysync_views, studysync;

-- The tables, so that one schema has all.
CREATE VIEW erasures AS SELECT * FROM erasures;
CREATE VIEW rejects AS SELECT * FROM rejects;
CREATE VIEW response_choices AS SELECT * FROM response_choices;
CREATE VIEW response_custom_metadata AS SELECT * FROM response_custom_metadata;
CREATE VIEW response_history AS SELECT * FROM response_history;
CREATE VIEW response_matrix_cells AS SELECT * FROM response_matrix_cells;
CREATE VIEW response_maxdiff_items AS SELECT * FROM response_maxdiff_items;
CREATE VIEW response_media AS SELECT * FROM response_media;
CREATE VIEW response_ranks AS SELECT * FROM response_ranks;
CREATE VIEW responses AS SELECT * FROM responses;
CREATE VIEW survey_constraint_history AS SELECT * FROM survey_constraint_history;
CREATE VIEW survey_constraints AS SELECT * FROM survey_constraints;
CREATE VIEW survey_history AS SELECT * FROM survey_history;
CREATE VIEW survey_question_history AS SELECT * FROM survey_question_history;
CREATE VIEW survey_question_option_history AS SELECT * FROM survey_question_option_history;
CREATE VIEW survey_question_options AS SELECT * FROM survey_question_options;
CREATE VIEW survey_questions AS SELECT * FROM survey_questions;
CREATE VIEW survey_status_changes AS SELECT * FROM survey_status_changes;
CREATE VIEW surveys AS SELECT * FROM surveys;
CREATE VIEW sync_runs AS SELECT * FROM sync_runs;
CREATE VIEW sync_windows AS SELECT * FROM sync_windows;
CREATE VIEW theme_history AS SELECT * FROM theme_history;
CREATE VIEW themes AS SELECT * FROM themes;
CREATE VIEW user_attributes AS SELECT * FROM user_attributes;
CREATE VIEW user_events AS SELECT * FROM user_events;
CREATE VIEW users AS SELECT * FROM users;
CREATE VIEW visitor_snapshot_attributes AS SELECT * FROM visitor_snapshot_attributes;
CREATE VIEW visitor_snapshot_history AS SELECT * FROM visitor_snapshot_history;
CREATE VIEW visitor_snapshots AS SELECT * FROM visitor_snapshots;
CREATE VIEW webhook_events AS SELECT * FROM webhook_events;
CREATE VIEW webhook_questions AS SELECT * FROM webhook_questions;

-- The report time zone: how far its local time is ahead of UTC, from one change of the clock to the next.
-- One row: one offset; UTC has a single one.
-- Join it to a time, for days of your own: at >= coalesce(valid_from, at) AND at < coalesce(valid_to, TIMESTAMP 'infinity'), then at + to_seconds(offset_seconds) is the local time.
-- Days, weeks and months of the other views are of this zone: [warehouse] report_time_zone, or --time-zone.
-- Left out: changes of the clock before 1970 and from 2100.
-- Stored times stay UTC.
CREATE VIEW time_zone_offsets AS
SELECT
  'UTC' AS time_zone,
  CAST(offsets.valid_from AS TIMESTAMP) AS valid_from,
  CAST(offsets.valid_to AS TIMESTAMP) AS valid_to,
  CAST(offsets.offset_seconds AS BIGINT) AS offset_seconds
FROM (VALUES
  (NULL, NULL, 0)) AS offsets(valid_from, valid_to, offset_seconds);

-- The current answers.
-- One row: one answered (or skipped) question of one session; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service, and internal columns.
-- An empty external_user_id or partner_anonymous_id reads as NULL.
-- Times are UTC.
CREATE VIEW current_responses AS
SELECT
  responses.response_group_uid AS response_group_uid,
  responses.question_id AS question_id,
  responses.survey_id AS survey_id,
  responses.visitor_id AS visitor_id,
  responses.visitor_uuid AS visitor_uuid,
  NULLIF(responses.external_user_id, '') AS external_user_id,
  NULLIF(responses.partner_anonymous_id, '') AS partner_anonymous_id,
  responses.question_type AS question_type,
  responses.question_text AS question_text,
  responses.created_at AS created_at,
  responses.updated_at AS updated_at,
  responses.answer_text AS answer_text,
  responses.answer_number AS answer_number,
  responses.answer_bool AS answer_bool,
  responses.answer_json AS answer_json,
  responses.is_skipped AS is_skipped,
  responses.selected_indexes AS selected_indexes,
  responses.url AS url,
  responses.meta_browser AS meta_browser,
  responses.meta_os AS meta_os,
  responses.meta_language AS meta_language,
  responses.meta_href AS meta_href,
  responses.meta_user_agent AS meta_user_agent,
  responses.meta_client_width AS meta_client_width,
  responses.meta_client_height AS meta_client_height,
  responses.meta_screen_width AS meta_screen_width,
  responses.meta_screen_height AS meta_screen_height,
  responses.meta_extra AS meta_extra,
  responses.custom_metadata AS custom_metadata,
  responses.extra AS extra,
  responses._first_seen_at AS _first_seen_at,
  responses._synced_at AS _synced_at
FROM responses AS responses
WHERE
  responses.deleted_at IS NULL AND responses._vanished_at IS NULL;

-- The versions of every question: wording, options and position, in the order in which scans saw them.
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without an id.
-- Times are UTC.
-- A scan sees a change some time after it was made, so shown_from and shown_until are only as exact as the interval between scans of surveys.
-- For the version that an answer was given to see answer_versions.
-- A survey that names a question twice: the first of them.
CREATE VIEW question_versions AS
WITH defined AS (
  SELECT
    survey_question_history.survey_id AS survey_id,
    survey_question_history.question_id AS question_id,
    survey_question_history.question_ordinal AS question_ordinal,
    survey_question_history.valid_from AS valid_from,
    COALESCE(survey_question_history.valid_to, CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP)) AS ends
  FROM survey_question_history AS survey_question_history
  WHERE
    NOT survey_question_history.question_id IS NULL
), candidates AS (
  SELECT
    defined.survey_id AS survey_id,
    defined.question_id AS question_id,
    defined.question_ordinal AS question_ordinal,
    defined.valid_from AS valid_from,
    defined.ends AS ends,
    defined.valid_from AS begins
  FROM defined AS defined
  UNION ALL
  SELECT DISTINCT
    later.survey_id AS survey_id,
    later.question_id AS question_id,
    later.question_ordinal AS question_ordinal,
    later.valid_from AS valid_from,
    later.ends AS ends,
    earlier.ends AS ends
  FROM defined AS later
  JOIN defined AS earlier
    ON earlier.survey_id = later.survey_id
    AND earlier.question_id = later.question_id
    AND earlier.question_ordinal < later.question_ordinal
    AND earlier.ends > later.valid_from
    AND earlier.ends < later.ends
), numbered AS (
  SELECT
    candidate.survey_id AS survey_id,
    candidate.question_id AS question_id,
    candidate.question_ordinal AS question_ordinal,
    candidate.valid_from AS valid_from,
    candidate.ends AS ends,
    candidate.begins AS begins,
    ROW_NUMBER() OVER question AS version,
    LEAD(candidate.begins) OVER question AS shown_until
  FROM candidates AS candidate
  WHERE
    NOT EXISTS(
      SELECT
        1
      FROM defined AS earlier
      WHERE
        earlier.survey_id = candidate.survey_id
        AND earlier.question_id = candidate.question_id
        AND earlier.question_ordinal < candidate.question_ordinal
        AND earlier.valid_from <= candidate.begins
        AND earlier.ends > candidate.begins
    )
  WINDOW question AS (PARTITION BY candidate.survey_id, candidate.question_id ORDER BY candidate.begins)
), labelled AS (
  SELECT
    question.survey_id AS survey_id,
    question.question_ordinal AS question_ordinal,
    question.valid_from AS valid_from,
    ARRAY_AGG(option.label ORDER BY option.option_ordinal) AS option_labels
  FROM survey_question_history AS question
  JOIN survey_question_option_history AS option
    ON option.survey_id = question.survey_id
    AND option.question_ordinal = question.question_ordinal
    AND option.valid_from <= question.valid_from
    AND COALESCE(option.valid_to, CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP)) > question.valid_from
  GROUP BY
    question.survey_id,
    question.question_ordinal,
    question.valid_from
)
SELECT
  numbered.survey_id AS survey_id,
  numbered.question_id AS question_id,
  numbered.version AS version,
  numbered.question_ordinal AS question_ordinal,
  question.question_type AS question_type,
  question.question_text AS question_text,
  question.intro_text AS intro_text,
  question.left_label AS left_label,
  question.right_label AS right_label,
  question.options AS options,
  question.options_properties AS options_properties,
  question.routing_options AS routing_options,
  numbered.begins AS valid_from,
  LEAST(question.valid_to, numbered.shown_until) AS valid_to,
  CASE WHEN numbered.version > 1 THEN numbered.begins END AS shown_from,
  numbered.shown_until AS shown_until,
  LEAST(question.valid_to, numbered.shown_until) IS NULL AS is_current,
  labelled.option_labels AS option_labels
FROM numbered AS numbered
JOIN survey_question_history AS question
  ON question.survey_id = numbered.survey_id
  AND question.question_ordinal = numbered.question_ordinal
  AND question.valid_from = numbered.valid_from
LEFT JOIN labelled AS labelled
  ON labelled.survey_id = numbered.survey_id
  AND labelled.question_ordinal = numbered.question_ordinal
  AND labelled.valid_from = numbered.valid_from;

-- The versions of every survey's set of questions: which questions it had, in which order, from when until when.
-- One row: one version of one survey's set of questions; key (survey_id, set_version).
-- Left out: surveys that no scan saw, definitions without an id, and the time in which a survey had no questions.
-- Times are UTC.
-- A question that is reworded, or gets other options, makes no version.
-- A question that is named twice stands at its first position.
CREATE VIEW survey_question_sets AS
WITH defined AS (
  SELECT
    survey_question_history.survey_id AS survey_id,
    survey_question_history.question_id AS question_id,
    survey_question_history.question_ordinal AS question_ordinal,
    survey_question_history.valid_from AS valid_from,
    COALESCE(survey_question_history.valid_to, CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP)) AS ends
  FROM survey_question_history AS survey_question_history
  WHERE
    NOT survey_question_history.question_id IS NULL
), moments AS (
  SELECT
    defined.survey_id AS survey_id,
    defined.valid_from AS moment
  FROM defined AS defined
  UNION
  SELECT
    defined.survey_id AS survey_id,
    defined.ends AS ends
  FROM defined AS defined
), placed AS (
  SELECT
    moments.survey_id AS survey_id,
    moments.moment AS moment,
    defined.question_id AS question_id,
    MIN(defined.question_ordinal) AS question_ordinal
  FROM moments AS moments
  JOIN defined AS defined
    ON defined.survey_id = moments.survey_id AND defined.valid_from <= moments.moment AND defined.ends > moments.moment
  GROUP BY
    moments.survey_id,
    moments.moment,
    defined.question_id
), sets AS (
  SELECT
    placed.survey_id AS survey_id,
    placed.moment AS moment,
    ARRAY_AGG(placed.question_id ORDER BY placed.question_ordinal) AS question_ids
  FROM placed AS placed
  GROUP BY
    placed.survey_id,
    placed.moment
), begun AS (
  SELECT
    qualified.survey_id,
    qualified.moment,
    qualified.question_ids
  FROM (
    SELECT
      sets.survey_id AS survey_id,
      sets.moment AS moment,
      sets.question_ids AS question_ids,
      sets.question_ids IS DISTINCT FROM LAG(sets.question_ids) OVER (PARTITION BY sets.survey_id ORDER BY sets.moment) AS is_kept
    FROM sets AS sets
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  begun.survey_id AS survey_id,
  ROW_NUMBER() OVER survey AS set_version,
  begun.question_ids AS question_ids,
  begun.moment AS valid_from,
  CASE WHEN ROW_NUMBER() OVER survey > 1 THEN begun.moment END AS shown_from,
  LEAD(begun.moment) OVER survey AS shown_until
FROM begun AS begun
WINDOW survey AS (PARTITION BY begun.survey_id ORDER BY begun.moment);

-- The rows of current matrix answers (MATRIX).
-- One row: one row of the matrix of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE VIEW current_matrix_cells AS
SELECT
  part.response_group_uid AS response_group_uid,
  part.question_id AS question_id,
  part.survey_id AS survey_id,
  part.created_at AS created_at,
  part.row_label AS row_label,
  part.row_ordinal AS row_ordinal,
  part.column_label AS column_label,
  part.column_number AS column_number
FROM response_matrix_cells AS part
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM (
      SELECT
        responses.response_group_uid AS response_group_uid,
        responses.question_id AS question_id
      FROM responses AS responses
      WHERE
        NOT responses.deleted_at IS NULL OR NOT responses._vanished_at IS NULL
    ) AS gone
    WHERE
      part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
  );

-- The ranked options of current answers (RANKORDER).
-- One row: one option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE VIEW current_ranks AS
SELECT
  part.response_group_uid AS response_group_uid,
  part.question_id AS question_id,
  part.survey_id AS survey_id,
  part.created_at AS created_at,
  part.option_label AS option_label,
  part.rank AS rank
FROM response_ranks AS part
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM (
      SELECT
        responses.response_group_uid AS response_group_uid,
        responses.question_id AS question_id
      FROM responses AS responses
      WHERE
        NOT responses.deleted_at IS NULL OR NOT responses._vanished_at IS NULL
    ) AS gone
    WHERE
      part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
  );

-- The items shown in current answers (MAXDIFF).
-- One row: one item in one round of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE VIEW current_maxdiff_items AS
SELECT
  part.response_group_uid AS response_group_uid,
  part.question_id AS question_id,
  part.survey_id AS survey_id,
  part.created_at AS created_at,
  part.round AS round,
  part.item_ordinal AS item_ordinal,
  part.item_id AS item_id,
  part.option AS option,
  part.selected AS selected
FROM response_maxdiff_items AS part
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM (
      SELECT
        responses.response_group_uid AS response_group_uid,
        responses.question_id AS question_id
      FROM responses AS responses
      WHERE
        NOT responses.deleted_at IS NULL OR NOT responses._vanished_at IS NULL
    ) AS gone
    WHERE
      part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
  );

-- The themes of current answers.
-- One row: one theme on one answer; key (id, response_group_uid, question_id).
-- Left out: themes that have vanished, and those of answers that are deleted or have vanished.
-- Times are UTC.
CREATE VIEW current_themes AS
SELECT
  found.id AS id,
  found.response_group_uid AS response_group_uid,
  found.question_id AS question_id,
  found.survey_id AS survey_id,
  found.visitor_id AS visitor_id,
  found.created_at AS found_at,
  COALESCE(answer.created_at, found.created_at) AS answered_at,
  found.theme AS theme,
  found.theme_description AS theme_description,
  found.response AS response
FROM themes AS found
LEFT JOIN responses AS answer
  ON answer.response_group_uid = found.response_group_uid AND answer.question_id = found.question_id
WHERE
  found._vanished_at IS NULL AND answer.deleted_at IS NULL AND answer._vanished_at IS NULL;

-- The current attributes of people.
-- One row: one attribute of one person; key (external_user_id, name).
-- Left out: earlier values, and people whom the service no longer knows.
-- Times are UTC.
CREATE VIEW current_user_attributes AS
SELECT
  attribute.external_user_id AS external_user_id,
  attribute.name AS name,
  attribute.value_text AS value_text,
  attribute.value_number AS value_number,
  attribute.value_bool AS value_bool,
  attribute.valid_from AS known_since
FROM user_attributes AS attribute
WHERE
  attribute.is_current;

-- The questions of the current definition of every survey.
-- One row: one question of one survey.
-- A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- A survey that vanished keeps its last definition.
CREATE VIEW current_questions AS
SELECT
  survey_questions.survey_id AS survey_id,
  survey_questions.question_id AS question_id,
  MIN(survey_questions.question_ordinal) AS question_ordinal,
  (
    ARRAY_AGG(survey_questions.question_type ORDER BY survey_questions.question_ordinal ASC)
  )[1] AS question_type,
  (
    ARRAY_AGG(survey_questions.question_text ORDER BY survey_questions.question_ordinal ASC)
  )[1] AS question_text,
  (
    ARRAY_AGG(survey_questions.left_label ORDER BY survey_questions.question_ordinal ASC)
  )[1] AS left_label,
  (
    ARRAY_AGG(survey_questions.right_label ORDER BY survey_questions.question_ordinal ASC)
  )[1] AS right_label
FROM survey_questions AS survey_questions
WHERE
  NOT survey_questions.question_id IS NULL
GROUP BY
  survey_questions.survey_id,
  survey_questions.question_id;

-- The sessions in which visitors answered surveys.
-- One row: one session of one survey; key (survey_id, response_group_uid).
-- Left out: answers that are deleted or have vanished at the service, and sessions that have no other answers.
-- Where the answers of a session disagree about the visitor, the greatest value is used.
-- Times are UTC.
CREATE VIEW sessions AS
SELECT
  current_responses.survey_id AS survey_id,
  current_responses.response_group_uid AS response_group_uid,
  MAX(current_responses.visitor_id) AS visitor_id,
  MAX(current_responses.visitor_uuid) AS visitor_uuid,
  MAX(current_responses.external_user_id) AS external_user_id,
  MIN(current_responses.created_at) AS started_at,
  MAX(current_responses.created_at) AS ended_at,
  (
    CAST(EXTRACT(EPOCH FROM MAX(current_responses.created_at)) * 1000000 AS BIGINT) - CAST(EXTRACT(EPOCH FROM MIN(current_responses.created_at)) * 1000000 AS BIGINT)
  ) / 1e6 AS duration_secs,
  COUNT(*) AS questions,
  COUNT(*) FILTER(WHERE
    NOT current_responses.is_skipped AND current_responses.question_type IS DISTINCT FROM 'TEXTURLPROMPT') AS answered,
  COUNT(*) FILTER(WHERE
    current_responses.is_skipped) AS skipped
FROM current_responses AS current_responses
GROUP BY
  current_responses.survey_id,
  current_responses.response_group_uid;

-- The NPS answers that count: what the views nps_by_* add up. Start here for a breakdown of your own.
-- One row: one answer to a question of type NPS; key (response_group_uid, question_id).
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Days, weeks and months are those of the report time zone, UTC by default; a week begins on Monday (ISO).
CREATE VIEW nps_answers AS
WITH timed AS (
  SELECT
    current_responses.response_group_uid AS response_group_uid,
    current_responses.question_id AS question_id,
    current_responses.survey_id AS survey_id,
    current_responses.visitor_id AS visitor_id,
    current_responses.visitor_uuid AS visitor_uuid,
    current_responses.external_user_id AS external_user_id,
    current_responses.partner_anonymous_id AS partner_anonymous_id,
    current_responses.question_type AS question_type,
    current_responses.question_text AS question_text,
    current_responses.created_at AS created_at,
    current_responses.updated_at AS updated_at,
    current_responses.answer_text AS answer_text,
    current_responses.answer_number AS answer_number,
    current_responses.answer_bool AS answer_bool,
    current_responses.answer_json AS answer_json,
    current_responses.is_skipped AS is_skipped,
    current_responses.selected_indexes AS selected_indexes,
    current_responses.url AS url,
    current_responses.meta_browser AS meta_browser,
    current_responses.meta_os AS meta_os,
    current_responses.meta_language AS meta_language,
    current_responses.meta_href AS meta_href,
    current_responses.meta_user_agent AS meta_user_agent,
    current_responses.meta_client_width AS meta_client_width,
    current_responses.meta_client_height AS meta_client_height,
    current_responses.meta_screen_width AS meta_screen_width,
    current_responses.meta_screen_height AS meta_screen_height,
    current_responses.meta_extra AS meta_extra,
    current_responses.custom_metadata AS custom_metadata,
    current_responses.extra AS extra,
    current_responses._first_seen_at AS _first_seen_at,
    current_responses._synced_at AS _synced_at,
    current_responses.created_at AS local_at
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
    AND current_responses.answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
)
SELECT
  timed.response_group_uid AS response_group_uid,
  timed.question_id AS question_id,
  timed.survey_id AS survey_id,
  COALESCE(CAST(timed.visitor_id AS TEXT), timed.visitor_uuid, timed.response_group_uid) AS visitor_key,
  timed.question_text AS question_text,
  timed.created_at AS created_at,
  CAST(timed.local_at AS DATE) AS day,
  CAST(DATE_TRUNC('WEEK', timed.local_at) AS DATE) AS week,
  CAST(DATE_TRUNC('MONTH', timed.local_at) AS DATE) AS month,
  timed.answer_number AS score
FROM timed AS timed;

-- NPS by day, over all surveys.
-- One row: one day.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_day AS
WITH tallied AS (
  SELECT
    nps_answers.day AS day,
    nps_answers.score AS score,
    COUNT(*) AS answers
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.day,
    nps_answers.score
), counted AS (
  SELECT
    tallied.day AS day,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.day
), scored AS (
  SELECT
    counted.day AS day,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE PRECISION) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE PRECISION), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.day AS day,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS by day, over all surveys; each visitor counts once.
-- One row: one day.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a day: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_day_latest AS
WITH tallied AS (
  SELECT
    _0.day AS day,
    _0.score AS score,
    COUNT(*) AS answers
  FROM (
    SELECT
      nps_answers.day AS day,
      nps_answers.visitor_key AS visitor_key,
      (
        ARRAY_AGG(
          nps_answers.score ORDER BY nps_answers.created_at DESC NULLS LAST, nps_answers.response_group_uid DESC NULLS LAST, nps_answers.question_id DESC NULLS LAST
        )
      )[1] AS score
    FROM nps_answers AS nps_answers
    GROUP BY
      nps_answers.day,
      nps_answers.visitor_key
  ) AS _0
  GROUP BY
    _0.day,
    _0.score
), counted AS (
  SELECT
    tallied.day AS day,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.day
), scored AS (
  SELECT
    counted.day AS day,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE PRECISION) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE PRECISION), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.day AS day,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS by day, for each question.
-- One row: one day of one question of one survey.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_day_per_question AS
WITH tallied AS (
  SELECT
    nps_answers.day AS day,
    nps_answers.survey_id AS survey_id,
    nps_answers.question_id AS question_id,
    nps_answers.score AS score,
    COUNT(*) AS answers,
    NULL AS shown
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.day,
    nps_answers.survey_id,
    nps_answers.question_id,
    nps_answers.score
  UNION ALL
  SELECT
    NULL AS _col_0,
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_3,
    NULL AS _col_4,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS _col_5
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), counted AS (
  SELECT
    tallied.day AS day,
    tallied.survey_id AS survey_id,
    tallied.question_id AS question_id,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors,
    MAX(tallied.shown) AS shown
  FROM tallied AS tallied
  GROUP BY
    tallied.day,
    tallied.survey_id,
    tallied.question_id
), scored AS (
  SELECT
    qualified.day,
    qualified.survey_id,
    qualified.question_id,
    qualified.responses,
    qualified.promoters,
    qualified.passives,
    qualified.detractors,
    qualified.shown,
    qualified.nps,
    qualified.standard_error,
    qualified.last_shown
  FROM (
    SELECT
      counted.day AS day,
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.responses AS responses,
      counted.promoters AS promoters,
      counted.passives AS passives,
      counted.detractors AS detractors,
      counted.shown AS shown,
      100 * CAST((
        counted.promoters - counted.detractors
      ) AS DOUBLE PRECISION) / counted.responses AS nps,
      100 * SQRT(
        GREATEST(
          counted.promoters + counted.detractors - POWER(CAST((
            counted.promoters - counted.detractors
          ) AS DOUBLE PRECISION), 2) / counted.responses,
          0
        ) / NULLIF(counted.responses - 1, 0) / counted.responses
      ) AS standard_error,
      MAX(counted.shown) OVER (PARTITION BY counted.survey_id, counted.question_id) AS last_shown,
      NOT counted.day IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  scored.day AS day,
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, scored.last_shown) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by day, for each question; each visitor counts once.
-- One row: one day of one question of one survey.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a day and question: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_day_per_question_latest AS
WITH tallied AS (
  SELECT
    _0.day AS day,
    _0.survey_id AS survey_id,
    _0.question_id AS question_id,
    _0.score AS score,
    COUNT(*) AS answers,
    NULL AS shown
  FROM (
    SELECT
      nps_answers.day AS day,
      nps_answers.survey_id AS survey_id,
      nps_answers.question_id AS question_id,
      nps_answers.visitor_key AS visitor_key,
      (
        ARRAY_AGG(
          nps_answers.score ORDER BY nps_answers.created_at DESC NULLS LAST, nps_answers.response_group_uid DESC NULLS LAST, nps_answers.question_id DESC NULLS LAST
        )
      )[1] AS score
    FROM nps_answers AS nps_answers
    GROUP BY
      nps_answers.day,
      nps_answers.survey_id,
      nps_answers.question_id,
      nps_answers.visitor_key
  ) AS _0
  GROUP BY
    _0.day,
    _0.survey_id,
    _0.question_id,
    _0.score
  UNION ALL
  SELECT
    NULL AS _col_0,
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_3,
    NULL AS _col_4,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS _col_5
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), counted AS (
  SELECT
    tallied.day AS day,
    tallied.survey_id AS survey_id,
    tallied.question_id AS question_id,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors,
    MAX(tallied.shown) AS shown
  FROM tallied AS tallied
  GROUP BY
    tallied.day,
    tallied.survey_id,
    tallied.question_id
), scored AS (
  SELECT
    qualified.day,
    qualified.survey_id,
    qualified.question_id,
    qualified.responses,
    qualified.promoters,
    qualified.passives,
    qualified.detractors,
    qualified.shown,
    qualified.nps,
    qualified.standard_error,
    qualified.last_shown
  FROM (
    SELECT
      counted.day AS day,
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.responses AS responses,
      counted.promoters AS promoters,
      counted.passives AS passives,
      counted.detractors AS detractors,
      counted.shown AS shown,
      100 * CAST((
        counted.promoters - counted.detractors
      ) AS DOUBLE PRECISION) / counted.responses AS nps,
      100 * SQRT(
        GREATEST(
          counted.promoters + counted.detractors - POWER(CAST((
            counted.promoters - counted.detractors
          ) AS DOUBLE PRECISION), 2) / counted.responses,
          0
        ) / NULLIF(counted.responses - 1, 0) / counted.responses
      ) AS standard_error,
      MAX(counted.shown) OVER (PARTITION BY counted.survey_id, counted.question_id) AS last_shown,
      NOT counted.day IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  scored.day AS day,
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, scored.last_shown) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by week, over all surveys.
-- One row: one week.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_week AS
WITH tallied AS (
  SELECT
    nps_answers.week AS week,
    nps_answers.score AS score,
    COUNT(*) AS answers
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.week,
    nps_answers.score
), counted AS (
  SELECT
    tallied.week AS week,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.week
), scored AS (
  SELECT
    counted.week AS week,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE PRECISION) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE PRECISION), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.week AS week,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS by week, over all surveys; each visitor counts once.
-- One row: one week.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a week: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_week_latest AS
WITH tallied AS (
  SELECT
    _0.week AS week,
    _0.score AS score,
    COUNT(*) AS answers
  FROM (
    SELECT
      nps_answers.week AS week,
      nps_answers.visitor_key AS visitor_key,
      (
        ARRAY_AGG(
          nps_answers.score ORDER BY nps_answers.created_at DESC NULLS LAST, nps_answers.response_group_uid DESC NULLS LAST, nps_answers.question_id DESC NULLS LAST
        )
      )[1] AS score
    FROM nps_answers AS nps_answers
    GROUP BY
      nps_answers.week,
      nps_answers.visitor_key
  ) AS _0
  GROUP BY
    _0.week,
    _0.score
), counted AS (
  SELECT
    tallied.week AS week,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.week
), scored AS (
  SELECT
    counted.week AS week,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE PRECISION) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE PRECISION), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.week AS week,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS by week, for each question.
-- One row: one week of one question of one survey.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_week_per_question AS
WITH tallied AS (
  SELECT
    nps_answers.week AS week,
    nps_answers.survey_id AS survey_id,
    nps_answers.question_id AS question_id,
    nps_answers.score AS score,
    COUNT(*) AS answers,
    NULL AS shown
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.week,
    nps_answers.survey_id,
    nps_answers.question_id,
    nps_answers.score
  UNION ALL
  SELECT
    NULL AS _col_0,
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_3,
    NULL AS _col_4,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS _col_5
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), counted AS (
  SELECT
    tallied.week AS week,
    tallied.survey_id AS survey_id,
    tallied.question_id AS question_id,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors,
    MAX(tallied.shown) AS shown
  FROM tallied AS tallied
  GROUP BY
    tallied.week,
    tallied.survey_id,
    tallied.question_id
), scored AS (
  SELECT
    qualified.week,
    qualified.survey_id,
    qualified.question_id,
    qualified.responses,
    qualified.promoters,
    qualified.passives,
    qualified.detractors,
    qualified.shown,
    qualified.nps,
    qualified.standard_error,
    qualified.last_shown
  FROM (
    SELECT
      counted.week AS week,
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.responses AS responses,
      counted.promoters AS promoters,
      counted.passives AS passives,
      counted.detractors AS detractors,
      counted.shown AS shown,
      100 * CAST((
        counted.promoters - counted.detractors
      ) AS DOUBLE PRECISION) / counted.responses AS nps,
      100 * SQRT(
        GREATEST(
          counted.promoters + counted.detractors - POWER(CAST((
            counted.promoters - counted.detractors
          ) AS DOUBLE PRECISION), 2) / counted.responses,
          0
        ) / NULLIF(counted.responses - 1, 0) / counted.responses
      ) AS standard_error,
      MAX(counted.shown) OVER (PARTITION BY counted.survey_id, counted.question_id) AS last_shown,
      NOT counted.week IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  scored.week AS week,
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, scored.last_shown) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by week, for each question; each visitor counts once.
-- One row: one week of one question of one survey.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a week and question: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_week_per_question_latest AS
WITH tallied AS (
  SELECT
    _0.week AS week,
    _0.survey_id AS survey_id,
    _0.question_id AS question_id,
    _0.score AS score,
    COUNT(*) AS answers,
    NULL AS shown
  FROM (
    SELECT
      nps_answers.week AS week,
      nps_answers.survey_id AS survey_id,
      nps_answers.question_id AS question_id,
      nps_answers.visitor_key AS visitor_key,
      (
        ARRAY_AGG(
          nps_answers.score ORDER BY nps_answers.created_at DESC NULLS LAST, nps_answers.response_group_uid DESC NULLS LAST, nps_answers.question_id DESC NULLS LAST
        )
      )[1] AS score
    FROM nps_answers AS nps_answers
    GROUP BY
      nps_answers.week,
      nps_answers.survey_id,
      nps_answers.question_id,
      nps_answers.visitor_key
  ) AS _0
  GROUP BY
    _0.week,
    _0.survey_id,
    _0.question_id,
    _0.score
  UNION ALL
  SELECT
    NULL AS _col_0,
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_3,
    NULL AS _col_4,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS _col_5
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), counted AS (
  SELECT
    tallied.week AS week,
    tallied.survey_id AS survey_id,
    tallied.question_id AS question_id,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors,
    MAX(tallied.shown) AS shown
  FROM tallied AS tallied
  GROUP BY
    tallied.week,
    tallied.survey_id,
    tallied.question_id
), scored AS (
  SELECT
    qualified.week,
    qualified.survey_id,
    qualified.question_id,
    qualified.responses,
    qualified.promoters,
    qualified.passives,
    qualified.detractors,
    qualified.shown,
    qualified.nps,
    qualified.standard_error,
    qualified.last_shown
  FROM (
    SELECT
      counted.week AS week,
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.responses AS responses,
      counted.promoters AS promoters,
      counted.passives AS passives,
      counted.detractors AS detractors,
      counted.shown AS shown,
      100 * CAST((
        counted.promoters - counted.detractors
      ) AS DOUBLE PRECISION) / counted.responses AS nps,
      100 * SQRT(
        GREATEST(
          counted.promoters + counted.detractors - POWER(CAST((
            counted.promoters - counted.detractors
          ) AS DOUBLE PRECISION), 2) / counted.responses,
          0
        ) / NULLIF(counted.responses - 1, 0) / counted.responses
      ) AS standard_error,
      MAX(counted.shown) OVER (PARTITION BY counted.survey_id, counted.question_id) AS last_shown,
      NOT counted.week IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  scored.week AS week,
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, scored.last_shown) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by month, over all surveys.
-- One row: one month.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_month AS
WITH tallied AS (
  SELECT
    nps_answers.month AS month,
    nps_answers.score AS score,
    COUNT(*) AS answers
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.month,
    nps_answers.score
), counted AS (
  SELECT
    tallied.month AS month,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.month
), scored AS (
  SELECT
    counted.month AS month,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE PRECISION) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE PRECISION), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.month AS month,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS by month, over all surveys; each visitor counts once.
-- One row: one month.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a month: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_month_latest AS
WITH tallied AS (
  SELECT
    _0.month AS month,
    _0.score AS score,
    COUNT(*) AS answers
  FROM (
    SELECT
      nps_answers.month AS month,
      nps_answers.visitor_key AS visitor_key,
      (
        ARRAY_AGG(
          nps_answers.score ORDER BY nps_answers.created_at DESC NULLS LAST, nps_answers.response_group_uid DESC NULLS LAST, nps_answers.question_id DESC NULLS LAST
        )
      )[1] AS score
    FROM nps_answers AS nps_answers
    GROUP BY
      nps_answers.month,
      nps_answers.visitor_key
  ) AS _0
  GROUP BY
    _0.month,
    _0.score
), counted AS (
  SELECT
    tallied.month AS month,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.month
), scored AS (
  SELECT
    counted.month AS month,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE PRECISION) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE PRECISION), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.month AS month,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS by month, for each question.
-- One row: one month of one question of one survey.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_month_per_question AS
WITH tallied AS (
  SELECT
    nps_answers.month AS month,
    nps_answers.survey_id AS survey_id,
    nps_answers.question_id AS question_id,
    nps_answers.score AS score,
    COUNT(*) AS answers,
    NULL AS shown
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.month,
    nps_answers.survey_id,
    nps_answers.question_id,
    nps_answers.score
  UNION ALL
  SELECT
    NULL AS _col_0,
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_3,
    NULL AS _col_4,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS _col_5
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), counted AS (
  SELECT
    tallied.month AS month,
    tallied.survey_id AS survey_id,
    tallied.question_id AS question_id,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors,
    MAX(tallied.shown) AS shown
  FROM tallied AS tallied
  GROUP BY
    tallied.month,
    tallied.survey_id,
    tallied.question_id
), scored AS (
  SELECT
    qualified.month,
    qualified.survey_id,
    qualified.question_id,
    qualified.responses,
    qualified.promoters,
    qualified.passives,
    qualified.detractors,
    qualified.shown,
    qualified.nps,
    qualified.standard_error,
    qualified.last_shown
  FROM (
    SELECT
      counted.month AS month,
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.responses AS responses,
      counted.promoters AS promoters,
      counted.passives AS passives,
      counted.detractors AS detractors,
      counted.shown AS shown,
      100 * CAST((
        counted.promoters - counted.detractors
      ) AS DOUBLE PRECISION) / counted.responses AS nps,
      100 * SQRT(
        GREATEST(
          counted.promoters + counted.detractors - POWER(CAST((
            counted.promoters - counted.detractors
          ) AS DOUBLE PRECISION), 2) / counted.responses,
          0
        ) / NULLIF(counted.responses - 1, 0) / counted.responses
      ) AS standard_error,
      MAX(counted.shown) OVER (PARTITION BY counted.survey_id, counted.question_id) AS last_shown,
      NOT counted.month IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  scored.month AS month,
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, scored.last_shown) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by month, for each question; each visitor counts once.
-- One row: one month of one question of one survey.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a month and question: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE VIEW nps_by_month_per_question_latest AS
WITH tallied AS (
  SELECT
    _0.month AS month,
    _0.survey_id AS survey_id,
    _0.question_id AS question_id,
    _0.score AS score,
    COUNT(*) AS answers,
    NULL AS shown
  FROM (
    SELECT
      nps_answers.month AS month,
      nps_answers.survey_id AS survey_id,
      nps_answers.question_id AS question_id,
      nps_answers.visitor_key AS visitor_key,
      (
        ARRAY_AGG(
          nps_answers.score ORDER BY nps_answers.created_at DESC NULLS LAST, nps_answers.response_group_uid DESC NULLS LAST, nps_answers.question_id DESC NULLS LAST
        )
      )[1] AS score
    FROM nps_answers AS nps_answers
    GROUP BY
      nps_answers.month,
      nps_answers.survey_id,
      nps_answers.question_id,
      nps_answers.visitor_key
  ) AS _0
  GROUP BY
    _0.month,
    _0.survey_id,
    _0.question_id,
    _0.score
  UNION ALL
  SELECT
    NULL AS _col_0,
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_3,
    NULL AS _col_4,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS _col_5
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), counted AS (
  SELECT
    tallied.month AS month,
    tallied.survey_id AS survey_id,
    tallied.question_id AS question_id,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors,
    MAX(tallied.shown) AS shown
  FROM tallied AS tallied
  GROUP BY
    tallied.month,
    tallied.survey_id,
    tallied.question_id
), scored AS (
  SELECT
    qualified.month,
    qualified.survey_id,
    qualified.question_id,
    qualified.responses,
    qualified.promoters,
    qualified.passives,
    qualified.detractors,
    qualified.shown,
    qualified.nps,
    qualified.standard_error,
    qualified.last_shown
  FROM (
    SELECT
      counted.month AS month,
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.responses AS responses,
      counted.promoters AS promoters,
      counted.passives AS passives,
      counted.detractors AS detractors,
      counted.shown AS shown,
      100 * CAST((
        counted.promoters - counted.detractors
      ) AS DOUBLE PRECISION) / counted.responses AS nps,
      100 * SQRT(
        GREATEST(
          counted.promoters + counted.detractors - POWER(CAST((
            counted.promoters - counted.detractors
          ) AS DOUBLE PRECISION), 2) / counted.responses,
          0
        ) / NULLIF(counted.responses - 1, 0) / counted.responses
      ) AS standard_error,
      MAX(counted.shown) OVER (PARTITION BY counted.survey_id, counted.question_id) AS last_shown,
      NOT counted.month IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  scored.month AS month,
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, scored.last_shown) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS of each question over all its answers, with the shares of promoters, passives and detractors.
-- One row: one question of one survey.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error as in nps_by_week.
CREATE VIEW nps_per_question AS
WITH counted AS (
  SELECT
    nps_answers.survey_id AS survey_id,
    nps_answers.question_id AS question_id,
    COUNT(*) AS responses,
    COUNT(*) FILTER(WHERE
      nps_answers.score >= 9) AS promoters,
    COUNT(*) FILTER(WHERE
      nps_answers.score BETWEEN 7 AND 8) AS passives,
    COUNT(*) FILTER(WHERE
      nps_answers.score <= 6) AS detractors
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.survey_id,
    nps_answers.question_id
), shown AS (
  SELECT
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS answer
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), scored AS (
  SELECT
    counted.survey_id AS survey_id,
    counted.question_id AS question_id,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE PRECISION) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE PRECISION), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, shown.answer) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  CAST(scored.promoters AS DOUBLE PRECISION) / scored.responses AS promoter_share,
  CAST(scored.passives AS DOUBLE PRECISION) / scored.responses AS passive_share,
  CAST(scored.detractors AS DOUBLE PRECISION) / scored.responses AS detractor_share,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN shown AS shown
  ON shown.survey_id IS NOT DISTINCT FROM scored.survey_id AND shown.question_id = scored.question_id
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- How the rows of matrix questions were answered (MATRIX).
-- One row: one column chosen in one row of one question of one survey.
-- Columns that nobody chose have no row.
-- Left out: rows that were skipped, answers that are deleted or have vanished.
CREATE VIEW matrix_distribution AS
WITH counted AS (
  SELECT
    current_matrix_cells.survey_id AS survey_id,
    current_matrix_cells.question_id AS question_id,
    current_matrix_cells.row_label AS row_label,
    current_matrix_cells.column_label AS column_label,
    MAX(current_matrix_cells.column_number) AS column_number,
    COUNT(*) AS answers,
    NULL AS shown_answer
  FROM current_matrix_cells AS current_matrix_cells
  WHERE
    NOT current_matrix_cells.column_label IS NULL
  GROUP BY
    current_matrix_cells.survey_id,
    current_matrix_cells.question_id,
    current_matrix_cells.row_label,
    current_matrix_cells.column_label
  UNION ALL
  SELECT
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_2,
    NULL AS _col_3,
    NULL AS _col_4,
    NULL AS _col_5,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS _col_6
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'MATRIX'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), based AS (
  SELECT
    qualified.survey_id,
    qualified.question_id,
    qualified.row_label,
    qualified.column_label,
    qualified.column_number,
    qualified.answers,
    qualified.answered,
    qualified.shown_answer
  FROM (
    SELECT
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.row_label AS row_label,
      counted.column_label AS column_label,
      counted.column_number AS column_number,
      counted.answers AS answers,
      CAST((
        SUM(counted.answers) OVER (PARTITION BY counted.survey_id, counted.question_id, counted.row_label)
      ) AS BIGINT) AS answered,
      MAX(counted.shown_answer) OVER (PARTITION BY counted.survey_id, counted.question_id) AS shown_answer,
      NOT counted.answers IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  based.survey_id AS survey_id,
  based.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, based.shown_answer) AS question_text,
  based.row_label AS row_label,
  based.column_label AS column_label,
  based.column_number AS column_number,
  based.answers AS answers,
  based.answered AS answered,
  CAST(based.answers AS DOUBLE PRECISION) / based.answered AS share
FROM based AS based
LEFT JOIN surveys AS survey
  ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = based.survey_id AND question.question_id = based.question_id;

-- How options were ranked (RANKORDER).
-- One row: one option of one question of one survey that was ranked at least once.
-- Left out: options that an answer did not rank, ranks outside 1 to the number of its options, answers that are deleted or have vanished.
CREATE VIEW rank_summary AS
WITH sized AS (
  SELECT
    current_ranks.response_group_uid AS response_group_uid,
    current_ranks.question_id AS question_id,
    current_ranks.survey_id AS survey_id,
    current_ranks.created_at AS created_at,
    current_ranks.option_label AS option_label,
    current_ranks.rank AS rank,
    COUNT(*) OVER (PARTITION BY current_ranks.survey_id, current_ranks.question_id, current_ranks.response_group_uid) AS options
  FROM current_ranks AS current_ranks
), counted AS (
  SELECT
    sized.survey_id AS survey_id,
    sized.question_id AS question_id,
    sized.option_label AS option_label,
    sized.options AS options,
    COUNT(*) AS answers,
    CAST(SUM(sized.rank) AS BIGINT) AS ranks,
    COUNT(*) FILTER(WHERE
      sized.rank = 1) AS first_places,
    CAST(SUM(sized.options - sized.rank) AS BIGINT) AS points
  FROM sized AS sized
  WHERE
    sized.rank BETWEEN 1 AND sized.options
  GROUP BY
    sized.survey_id,
    sized.question_id,
    sized.option_label,
    sized.options
), summed AS (
  SELECT
    counted.survey_id AS survey_id,
    counted.question_id AS question_id,
    counted.option_label AS option_label,
    CAST(SUM(counted.answers) AS BIGINT) AS answers,
    CAST(CAST(SUM(counted.ranks) AS BIGINT) AS DOUBLE PRECISION) / CAST(SUM(counted.answers) AS BIGINT) AS mean_rank,
    CAST(SUM(counted.first_places) AS BIGINT) AS first_places,
    CAST(SUM(counted.points) AS BIGINT) AS borda_points,
    SUM(CAST(counted.points AS DOUBLE PRECISION) / (
      counted.options - 1
    )) FILTER(WHERE
      counted.options > 1) / SUM(counted.answers) FILTER(WHERE
      counted.options > 1) AS borda_score,
    NULL AS shown_answer
  FROM counted AS counted
  GROUP BY
    counted.survey_id,
    counted.question_id,
    counted.option_label
  UNION ALL
  SELECT
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_2,
    NULL AS _col_3,
    NULL AS _col_4,
    NULL AS _col_5,
    NULL AS _col_6,
    NULL AS _col_7,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS _col_8
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'RANKORDER'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), named AS (
  SELECT
    qualified.survey_id,
    qualified.question_id,
    qualified.option_label,
    qualified.answers,
    qualified.mean_rank,
    qualified.first_places,
    qualified.borda_points,
    qualified.borda_score,
    qualified.shown_answer
  FROM (
    SELECT
      summed.survey_id AS survey_id,
      summed.question_id AS question_id,
      summed.option_label AS option_label,
      summed.answers AS answers,
      summed.mean_rank AS mean_rank,
      summed.first_places AS first_places,
      summed.borda_points AS borda_points,
      summed.borda_score AS borda_score,
      MAX(summed.shown_answer) OVER (PARTITION BY summed.survey_id, summed.question_id) AS shown_answer,
      NOT summed.answers IS NULL AS is_kept
    FROM summed AS summed
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  named.survey_id AS survey_id,
  named.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, named.shown_answer) AS question_text,
  named.option_label AS option_label,
  named.answers AS answers,
  named.mean_rank AS mean_rank,
  named.first_places AS first_places,
  CAST(named.first_places AS DOUBLE PRECISION) / named.answers AS first_place_share,
  named.borda_points AS borda_points,
  named.borda_score AS borda_score
FROM named AS named
LEFT JOIN surveys AS survey
  ON survey.id = named.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = named.survey_id AND question.question_id = named.question_id;

-- Themes of answers, by week of the answer.
-- One row: one theme in one survey in one week.
-- Left out: themes that have vanished, and those of answers that are deleted or have vanished.
-- answers of several weeks, or of several surveys, may be added up; themed_answers of several themes may not.
CREATE VIEW theme_trend AS
WITH dated AS (
  SELECT
    CAST(DATE_TRUNC('WEEK', current_themes.answered_at) AS DATE) AS week,
    current_themes.survey_id AS survey_id,
    current_themes.theme AS theme,
    (current_themes.response_group_uid, current_themes.question_id) AS answer
  FROM current_themes AS current_themes
), counted AS (
  SELECT
    dated.week AS week,
    dated.survey_id AS survey_id,
    dated.theme AS theme,
    COUNT(DISTINCT dated.answer) AS answers
  FROM dated AS dated
  GROUP BY
    dated.week,
    dated.survey_id,
    dated.theme
), based AS (
  SELECT
    dated.week AS week,
    dated.survey_id AS survey_id,
    COUNT(DISTINCT dated.answer) AS themed_answers
  FROM dated AS dated
  GROUP BY
    dated.week,
    dated.survey_id
)
SELECT
  counted.week AS week,
  counted.survey_id AS survey_id,
  survey.name AS survey_name,
  counted.theme AS theme,
  counted.answers AS answers,
  based.themed_answers AS themed_answers,
  CAST(counted.answers AS DOUBLE PRECISION) / based.themed_answers AS share
FROM counted AS counted
JOIN based AS based
  ON based.week = counted.week AND based.survey_id IS NOT DISTINCT FROM counted.survey_id
LEFT JOIN surveys AS survey
  ON survey.id = counted.survey_id;

-- How far visitors get in a survey: question by question, how many of its sessions were shown it and answered it.
-- One row: one question of one survey that was shown at least once.
-- Order by question_ordinal.
-- Left out: answers that are deleted or have vanished at the service.
CREATE VIEW survey_funnel AS
WITH counted AS (
  SELECT
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    COUNT(*) AS shown,
    COUNT(*) FILTER(WHERE
      NOT current_responses.is_skipped) AS answered,
    COUNT(*) FILTER(WHERE
      current_responses.is_skipped) AS skipped,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS shown_answer,
    CAST(NULL AS BIGINT) AS sessions
  FROM current_responses AS current_responses
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
  UNION ALL
  SELECT
    current_responses.survey_id AS survey_id,
    NULL AS _col_1,
    NULL AS _col_2,
    NULL AS _col_3,
    NULL AS _col_4,
    NULL AS _col_5,
    COUNT(DISTINCT current_responses.response_group_uid) AS _col_6
  FROM current_responses AS current_responses
  GROUP BY
    current_responses.survey_id
), shown AS (
  SELECT
    qualified.survey_id,
    qualified.question_id,
    qualified.shown,
    qualified.answered,
    qualified.skipped,
    qualified.shown_answer,
    qualified.sessions
  FROM (
    SELECT
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.shown AS shown,
      counted.answered AS answered,
      counted.skipped AS skipped,
      counted.shown_answer AS shown_answer,
      MAX(counted.sessions) OVER (PARTITION BY counted.survey_id) AS sessions,
      NOT counted.question_id IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  shown.survey_id AS survey_id,
  survey.name AS survey_name,
  question.question_ordinal AS question_ordinal,
  shown.question_id AS question_id,
  COALESCE(question.question_text, shown.shown_answer) AS question_text,
  shown.sessions AS sessions,
  shown.shown AS shown,
  shown.answered AS answered,
  shown.skipped AS skipped,
  CAST(shown.shown AS DOUBLE PRECISION) / shown.sessions AS shown_share,
  CAST(shown.answered AS DOUBLE PRECISION) / shown.sessions AS answered_share
FROM shown AS shown
LEFT JOIN surveys AS survey
  ON survey.id = shown.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = shown.survey_id AND question.question_id = shown.question_id;

-- Answers, sessions and visitors by day and survey.
-- One row: one survey on one day on which it was answered.
-- Left out: answers that are deleted or have vanished at the service.
-- A session that lasts past midnight is counted on both days, a visitor on every day: only answers may be added up.
CREATE VIEW daily_breakdown AS
WITH counted AS (
  SELECT
    CAST(current_responses.created_at AS DATE) AS day,
    current_responses.survey_id AS survey_id,
    COUNT(DISTINCT current_responses.response_group_uid) AS sessions,
    COUNT(DISTINCT current_responses.visitor_id) AS visitors,
    COUNT(*) AS answers,
    COUNT(*) FILTER(WHERE
      NOT current_responses.is_skipped) AS answered,
    COUNT(*) FILTER(WHERE
      current_responses.is_skipped) AS skipped
  FROM current_responses AS current_responses
  GROUP BY
    CAST(current_responses.created_at AS DATE),
    current_responses.survey_id
)
SELECT
  counted.day AS day,
  counted.survey_id AS survey_id,
  survey.name AS survey_name,
  counted.sessions AS sessions,
  counted.visitors AS visitors,
  counted.answers AS answers,
  counted.answered AS answered,
  counted.skipped AS skipped
FROM counted AS counted
LEFT JOIN surveys AS survey
  ON survey.id = counted.survey_id;

-- Which questions are skipped, and how the service sends skips.
-- One row: one question of one survey that was shown at least once.
-- Left out: texts that ask nothing (TEXTURLPROMPT), answers that are deleted or have vanished at the service.
-- A question that a session never reached has no answer at all, and is not a skip: see survey_funnel.
CREATE VIEW skips AS
WITH counted AS (
  SELECT
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    MAX(current_responses.question_type) AS question_type,
    (
      ARRAY_AGG(
        current_responses.question_text ORDER BY current_responses.created_at DESC NULLS LAST, current_responses.question_text DESC NULLS LAST
      ) FILTER(WHERE
        NOT current_responses.question_text IS NULL)
    )[1] AS shown_answer,
    COUNT(*) AS shown,
    COUNT(*) FILTER(WHERE
      NOT current_responses.is_skipped) AS answered,
    COUNT(*) FILTER(WHERE
      current_responses.is_skipped) AS skipped,
    COUNT(*) FILTER(WHERE
      current_responses.is_skipped AND current_responses.answer_json = 'null') AS sent_null,
    COUNT(*) FILTER(WHERE
      current_responses.is_skipped AND current_responses.answer_json <> 'null') AS sent_empty,
    COUNT(*) FILTER(WHERE
      current_responses.is_skipped AND current_responses.answer_json IS NULL) AS sent_nothing
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type IS DISTINCT FROM 'TEXTURLPROMPT'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
)
SELECT
  counted.survey_id AS survey_id,
  counted.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, counted.shown_answer) AS question_text,
  counted.question_type AS question_type,
  counted.shown AS shown,
  counted.answered AS answered,
  counted.skipped AS skipped,
  CAST(counted.skipped AS DOUBLE PRECISION) / counted.shown AS skipped_share,
  counted.sent_null AS sent_null,
  counted.sent_empty AS sent_empty,
  counted.sent_nothing AS sent_nothing
FROM counted AS counted
LEFT JOIN surveys AS survey
  ON survey.id = counted.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id;

-- How long each survey was in each status, and how many questions were answered in that time.
-- One row: one survey in one status, from one change to the next.
-- Order by survey_id, since.
-- Left out: the time before a survey was first seen, and the time in which it had vanished at the service.
-- Times are UTC.
-- The earlier of webhook and scan gives the time of a change.
-- The current status lasts until the time of the last answer that a scan could have read.
CREATE VIEW survey_status_timeline AS
WITH ordered AS (
  SELECT
    survey_status_changes.survey_id AS survey_id,
    survey_status_changes.changed_at AS since,
    survey_status_changes.new_status AS status,
    survey_status_changes.seen_by AS seen_by,
    LEAD(survey_status_changes.changed_at) OVER (
      PARTITION BY survey_status_changes.survey_id
      ORDER BY survey_status_changes.changed_at, survey_status_changes.new_status
    ) AS until
  FROM survey_status_changes AS survey_status_changes
), known AS (
  SELECT
    MAX(sync_windows.window_end) AS scanned_until
  FROM sync_windows AS sync_windows
  WHERE
    sync_windows.stream = 'responses'
), ended AS (
  SELECT
    ordered.survey_id AS survey_id,
    ordered.since AS since,
    ordered.status AS status,
    ordered.seen_by AS seen_by,
    ordered.until AS until,
    GREATEST(COALESCE(ordered.until, known.scanned_until, ordered.since), ordered.since) AS ends
  FROM ordered AS ordered
  CROSS JOIN known AS known
  WHERE
    NOT ordered.status IS NULL
), timed AS (
  SELECT
    ended.survey_id AS survey_id,
    ended.status AS status,
    ended.since AS since,
    ended.until AS until,
    ended.seen_by AS seen_by,
    (
      CAST(EXTRACT(EPOCH FROM ended.ends) * 1000000 AS BIGINT) - CAST(EXTRACT(EPOCH FROM ended.since) * 1000000 AS BIGINT)
    ) / 86400e6 AS days,
    COUNT(answer.question_id) AS answers
  FROM ended AS ended
  LEFT JOIN current_responses AS answer
    ON answer.survey_id = ended.survey_id
    AND NOT answer.is_skipped
    AND answer.created_at >= ended.since
    AND answer.created_at < ended.ends
  GROUP BY
    ended.survey_id,
    ended.status,
    ended.since,
    ended.until,
    ended.seen_by,
    ended.ends
)
SELECT
  timed.survey_id AS survey_id,
  survey.name AS survey_name,
  timed.status AS status,
  timed.since AS since,
  timed.until AS until,
  timed.seen_by AS seen_by,
  timed.days AS days,
  timed.answers AS answers,
  CASE WHEN timed.days > 0 THEN CAST(timed.answers AS DOUBLE PRECISION) / timed.days END AS answers_per_day
FROM timed AS timed
LEFT JOIN surveys AS survey
  ON survey.id = timed.survey_id;

-- Answers that only one source has: reported by a webhook and found by no scan, or found by a scan and reported by no webhook.
-- One row: one answer of one session.
-- Order by answered_at.
-- Left out: times that scans have not reached yet, and answers from before the first webhook of an answer.
-- Webhooks are sent once and may be lost, so rows known by a scan alone are normal; rows known by a webhook alone were deleted before a scan came by, or call for a look.
CREATE VIEW webhook_mismatches AS
WITH told AS (
  SELECT DISTINCT
    webhook_events.survey_id AS survey_id,
    webhook_events.response_group_uid AS response_group_uid,
    webhook_events.question_text AS question_text,
    COALESCE(webhook_events.occurred_at, webhook_events.received_at) AS answered_at,
    COALESCE(
      CASE
        WHEN webhook_events.response_group_uid ~ '^[{]?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}[}]?$'
        THEN LOWER(TRANSLATE(webhook_events.response_group_uid, '{}', ''))
      END,
      webhook_events.response_group_uid
    ) AS session
  FROM webhook_events AS webhook_events
  WHERE
    webhook_events.kind = 'answer_submitted'
), held AS (
  SELECT
    responses.survey_id AS survey_id,
    responses.response_group_uid AS response_group_uid,
    responses.question_text AS question_text,
    responses.question_id AS question_id,
    responses.created_at AS created_at,
    COALESCE(
      CASE
        WHEN responses.response_group_uid ~ '^[{]?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}[}]?$'
        THEN LOWER(TRANSLATE(responses.response_group_uid, '{}', ''))
      END,
      responses.response_group_uid
    ) AS session
  FROM responses AS responses
), span AS (
  SELECT
    (
      SELECT
        MIN(told.answered_at) AS _col_0
      FROM told AS told
    ) AS first_told,
    (
      SELECT
        MAX(sync_windows.window_end) AS _col_0
      FROM sync_windows AS sync_windows
      WHERE
        sync_windows.stream = 'responses'
    ) AS scanned_until
)
SELECT
  'webhook' AS known_by,
  told.survey_id AS survey_id,
  told.response_group_uid AS response_group_uid,
  told.question_text AS question_text,
  CAST(NULL AS BIGINT) AS question_id,
  told.answered_at AS answered_at
FROM told AS told
CROSS JOIN span AS span
WHERE
  told.answered_at < span.scanned_until
  AND NOT EXISTS(
    SELECT
      1 AS "1"
    FROM held AS held
    WHERE
      held.session = told.session AND held.question_text = told.question_text
  )
UNION ALL
SELECT
  'scan' AS known_by,
  held.survey_id AS survey_id,
  held.response_group_uid AS response_group_uid,
  held.question_text AS question_text,
  held.question_id AS question_id,
  held.created_at AS answered_at
FROM held AS held
CROSS JOIN span AS span
WHERE
  held.created_at >= span.first_told
  AND NOT EXISTS(
    SELECT
      1 AS "1"
    FROM told AS told
    WHERE
      held.session = told.session AND held.question_text = told.question_text
  );

-- Keys that several records of the service have had: one record is current, the others are in response_history.
-- One row: one key (response_group_uid, question_id) that ever collided, also if its records are gone by now.
-- Order by last_found_at.
-- Left out: themes with one key; rejects has them, with the reason key_collision.
-- Times are UTC.
CREATE VIEW key_collisions AS
WITH lost AS (
  SELECT
    response_history.response_group_uid AS response_group_uid,
    response_history.question_id AS question_id,
    response_history.created_at AS created_at,
    response_history.updated_at AS updated_at,
    response_history.answer_json AS answer_json,
    response_history.valid_to AS valid_to,
    response_history._row_hash AS _row_hash,
    ROW_NUMBER() OVER (
      PARTITION BY response_history.response_group_uid, response_history.question_id
      ORDER BY response_history.valid_to DESC NULLS LAST, response_history.created_at DESC NULLS LAST, response_history._row_hash
    ) AS ordinal
  FROM response_history AS response_history
  WHERE
    response_history.reason = 'collision'
), keys AS (
  SELECT
    lost.response_group_uid AS response_group_uid,
    lost.question_id AS question_id,
    COUNT(DISTINCT (lost.created_at, lost._row_hash)) AS lost_records,
    MIN(lost.valid_to) AS first_found_at,
    MAX(lost.valid_to) AS last_found_at,
    MAX(lost.created_at) FILTER(WHERE
      lost.ordinal = 1) AS lost_created_at,
    MAX(lost.updated_at) FILTER(WHERE
      lost.ordinal = 1) AS lost_updated_at,
    MAX(lost.answer_json) FILTER(WHERE
      lost.ordinal = 1) AS lost_answer_json
  FROM lost AS lost
  GROUP BY
    lost.response_group_uid,
    lost.question_id
)
SELECT
  keys.response_group_uid AS response_group_uid,
  keys.question_id AS question_id,
  winner.survey_id AS survey_id,
  winner.question_text AS question_text,
  keys.lost_records AS lost_records,
  keys.first_found_at AS first_found_at,
  keys.last_found_at AS last_found_at,
  winner.created_at AS current_created_at,
  winner.updated_at AS current_updated_at,
  winner.answer_json AS current_answer_json,
  keys.lost_created_at AS lost_created_at,
  keys.lost_updated_at AS lost_updated_at,
  keys.lost_answer_json AS lost_answer_json
FROM keys AS keys
LEFT JOIN responses AS winner
  ON winner.response_group_uid = keys.response_group_uid
  AND winner.question_id = keys.question_id
  AND winner._vanished_at IS NULL;

-- Left out: question_scales, because regular expressions of PostgreSQL have no classes of Unicode.
-- Left out: response_versions, because PostgreSQL has no structs without a declared type.
-- Left out: theme_versions, because PostgreSQL has no structs without a declared type.
-- Left out: session_stages, because it takes lists of a window apart.
-- Left out: open_answers, because regular expressions of PostgreSQL have no classes of Unicode.
-- Left out: untrusted, because its functions for JSON fail for texts that are no JSON.
-- Left out: answer_versions, because it reads question_scales.
-- Left out: response_question_versions, because it reads answer_versions.
-- Left out: current_choices, because it reads answer_versions.
-- Left out: questions, because it reads question_scales.
-- Left out: likert_values, because it reads answer_versions.
-- Left out: likert_distribution, because it reads likert_values.
-- Left out: likert_top_two, because it reads likert_values.
-- Left out: choice_share, because it reads current_choices.
-- Left out: figures, because it reads likert_top_two.
-- Left out: maxdiff_scores, because it reads answer_versions.
-- Left out: response_rates, because it reads session_stages.
