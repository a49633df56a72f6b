-- Keys that several records of the service have had: one record is current, the others are in response_history.
--
-- One row: one key (response_group_uid, question_id) that ever collided, also if its records are gone by now. Order by last_found_at.
-- Left out: themes with one key; rejects has them, with the reason key_collision. Times are UTC.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey of the current record.
--   question_text: The wording in the current record.
--   lost_records: Number of other records, each version counted.
--   first_found_at: When a scan first found two records.
--   last_found_at: When a scan last found another record.
--   current_created_at: Creation time of the current record; NULL if no record with this key is current.
--   current_updated_at: When the service last changed the current record.
--   current_answer_json: The answer of the current record.
--   lost_created_at: Creation time of the record that lost last.
--   lost_updated_at: When the service last changed that record.
--   lost_answer_json: The answer of that record.
WITH lost AS (
    SELECT response_group_uid, question_id, created_at, updated_at, answer_json, valid_to, _row_hash,
        row_number() OVER (PARTITION BY response_group_uid, question_id ORDER BY valid_to DESC, created_at DESC, _row_hash) AS ordinal
    FROM response_history
    WHERE reason = 'collision'
),
keys AS (
    SELECT
        response_group_uid, question_id,
        count(DISTINCT (created_at, _row_hash)) AS lost_records,
        min(valid_to) AS first_found_at, max(valid_to) AS last_found_at,
        any_value(created_at) FILTER (ordinal = 1) AS lost_created_at,
        any_value(updated_at) FILTER (ordinal = 1) AS lost_updated_at,
        any_value(answer_json) FILTER (ordinal = 1) AS lost_answer_json
    FROM lost
    GROUP BY response_group_uid, question_id
)
SELECT
    keys.response_group_uid, keys.question_id, winner.survey_id, winner.question_text,
    keys.lost_records, keys.first_found_at, keys.last_found_at,
    winner.created_at AS current_created_at, winner.updated_at AS current_updated_at, winner.answer_json AS current_answer_json,
    keys.lost_created_at, keys.lost_updated_at, keys.lost_answer_json
FROM keys
LEFT JOIN responses AS winner
    ON winner.response_group_uid = keys.response_group_uid AND winner.question_id = keys.question_id
    AND winner._vanished_at IS NULL
