-- The tables and views of studysync over its Parquet files, for plain DuckDB. Written by `studysync schema --format parquet`.
--
-- Set the folder of the Parquet files here, then run this file in each session: duckdb -init parquet_views.sql
SET VARIABLE studysync_root = 'warehouse-parquet';

-- Tables. A table without files is empty; run this file again when it has some. Tables that are partitioned by time have one
-- more column than in the DuckDB file, such as created_month (or created_date): a condition on it skips the other files.

-- Answers: one row for each answered question. Includes deleted and vanished answers: filter on deleted_at IS NULL AND _vanished_at IS NULL for those that count today.
SET VARIABLE studysync_responses = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "question_id", "survey_id", "visitor_id", "visitor_uuid", "external_user_id", "partner_anonymous_id", "question_type", "question_text", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", make_timestamp(epoch_us("deleted_at")) AS "deleted_at", "answer_text", "answer_number", "answer_bool", "answer_json", "is_skipped", "selected_indexes", "url", "meta_browser", "meta_os", "meta_language", "meta_href", "meta_user_agent", "meta_client_width", "meta_client_height", "meta_screen_width", "meta_screen_height", "meta_extra", "custom_metadata", "extra", "_row_hash", "_flags", make_timestamp(epoch_us("_first_seen_at")) AS "_first_seen_at", make_timestamp(epoch_us("_vanished_at")) AS "_vanished_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::VARCHAR AS "visitor_uuid", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "partner_anonymous_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::TIMESTAMP WITH TIME ZONE AS "deleted_at", NULL::VARCHAR AS "answer_text", NULL::DOUBLE AS "answer_number", NULL::BOOLEAN AS "answer_bool", NULL::VARCHAR AS "answer_json", NULL::BOOLEAN AS "is_skipped", NULL::BIGINT[] AS "selected_indexes", NULL::VARCHAR AS "url", NULL::VARCHAR AS "meta_browser", NULL::VARCHAR AS "meta_os", NULL::VARCHAR AS "meta_language", NULL::VARCHAR AS "meta_href", NULL::VARCHAR AS "meta_user_agent", NULL::BIGINT AS "meta_client_width", NULL::BIGINT AS "meta_client_height", NULL::BIGINT AS "meta_screen_width", NULL::BIGINT AS "meta_screen_height", NULL::VARCHAR AS "meta_extra", NULL::VARCHAR AS "custom_metadata", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::BIGINT AS "_flags", NULL::TIMESTAMP WITH TIME ZONE AS "_first_seen_at", NULL::TIMESTAMP WITH TIME ZONE AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/responses/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::VARCHAR AS "visitor_uuid", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "partner_anonymous_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::TIMESTAMP AS "deleted_at", NULL::VARCHAR AS "answer_text", NULL::DOUBLE AS "answer_number", NULL::BOOLEAN AS "answer_bool", NULL::VARCHAR AS "answer_json", NULL::BOOLEAN AS "is_skipped", NULL::BIGINT[] AS "selected_indexes", NULL::VARCHAR AS "url", NULL::VARCHAR AS "meta_browser", NULL::VARCHAR AS "meta_os", NULL::VARCHAR AS "meta_language", NULL::VARCHAR AS "meta_href", NULL::VARCHAR AS "meta_user_agent", NULL::BIGINT AS "meta_client_width", NULL::BIGINT AS "meta_client_height", NULL::BIGINT AS "meta_screen_width", NULL::BIGINT AS "meta_screen_height", NULL::VARCHAR AS "meta_extra", NULL::VARCHAR AS "custom_metadata", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::BIGINT AS "_flags", NULL::TIMESTAMP AS "_first_seen_at", NULL::TIMESTAMP AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/responses/*/data.parquet'));
CREATE OR REPLACE VIEW "responses" AS FROM query(getvariable('studysync_responses'));

-- Chosen options of MULTIPLECHOICE and MULTIPLESELECT answers.
SET VARIABLE studysync_response_choices = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "question_id", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "choice_ordinal", "selected_index", "label", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::BIGINT AS "choice_ordinal", NULL::BIGINT AS "selected_index", NULL::VARCHAR AS "label", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/response_choices/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::BIGINT AS "choice_ordinal", NULL::BIGINT AS "selected_index", NULL::VARCHAR AS "label", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/response_choices/*/data.parquet'));
CREATE OR REPLACE VIEW "response_choices" AS FROM query(getvariable('studysync_response_choices'));

-- Cells of MATRIX answers.
SET VARIABLE studysync_response_matrix_cells = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "question_id", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "row_label", "row_ordinal", "column_label", "column_number", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::VARCHAR AS "row_label", NULL::BIGINT AS "row_ordinal", NULL::VARCHAR AS "column_label", NULL::BIGINT AS "column_number", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/response_matrix_cells/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::VARCHAR AS "row_label", NULL::BIGINT AS "row_ordinal", NULL::VARCHAR AS "column_label", NULL::BIGINT AS "column_number", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/response_matrix_cells/*/data.parquet'));
CREATE OR REPLACE VIEW "response_matrix_cells" AS FROM query(getvariable('studysync_response_matrix_cells'));

-- Ranks of RANKORDER answers.
SET VARIABLE studysync_response_ranks = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "question_id", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "option_label", "rank", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::VARCHAR AS "option_label", NULL::BIGINT AS "rank", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/response_ranks/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::VARCHAR AS "option_label", NULL::BIGINT AS "rank", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/response_ranks/*/data.parquet'));
CREATE OR REPLACE VIEW "response_ranks" AS FROM query(getvariable('studysync_response_ranks'));

-- Items of MAXDIFF answers.
SET VARIABLE studysync_response_maxdiff_items = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "question_id", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "round", "item_ordinal", "item_id", "option", "selected", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::BIGINT AS "round", NULL::BIGINT AS "item_ordinal", NULL::BIGINT AS "item_id", NULL::VARCHAR AS "option", NULL::VARCHAR AS "selected", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/response_maxdiff_items/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::BIGINT AS "round", NULL::BIGINT AS "item_ordinal", NULL::BIGINT AS "item_id", NULL::VARCHAR AS "option", NULL::VARCHAR AS "selected", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/response_maxdiff_items/*/data.parquet'));
CREATE OR REPLACE VIEW "response_maxdiff_items" AS FROM query(getvariable('studysync_response_maxdiff_items'));

-- Recordings of VIDEOVOICE answers.
SET VARIABLE studysync_response_media = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "question_id", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "upload_id", "media_type", "duration_secs", "transcription", "download_url", "video_url", make_timestamp(epoch_us("media_updated_at")) AS "media_updated_at", "recording_status", "recording_sha256", "recording_media_type", "recording_bytes", "recording_path", make_timestamp(epoch_us("recording_fetched_at")) AS "recording_fetched_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::VARCHAR AS "upload_id", NULL::VARCHAR AS "media_type", NULL::DOUBLE AS "duration_secs", NULL::VARCHAR AS "transcription", NULL::VARCHAR AS "download_url", NULL::VARCHAR AS "video_url", NULL::TIMESTAMP WITH TIME ZONE AS "media_updated_at", NULL::VARCHAR AS "recording_status", NULL::VARCHAR AS "recording_sha256", NULL::VARCHAR AS "recording_media_type", NULL::BIGINT AS "recording_bytes", NULL::VARCHAR AS "recording_path", NULL::TIMESTAMP WITH TIME ZONE AS "recording_fetched_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/response_media/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::VARCHAR AS "upload_id", NULL::VARCHAR AS "media_type", NULL::DOUBLE AS "duration_secs", NULL::VARCHAR AS "transcription", NULL::VARCHAR AS "download_url", NULL::VARCHAR AS "video_url", NULL::TIMESTAMP AS "media_updated_at", NULL::VARCHAR AS "recording_status", NULL::VARCHAR AS "recording_sha256", NULL::VARCHAR AS "recording_media_type", NULL::BIGINT AS "recording_bytes", NULL::VARCHAR AS "recording_path", NULL::TIMESTAMP AS "recording_fetched_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/response_media/*/data.parquet'));
CREATE OR REPLACE VIEW "response_media" AS FROM query(getvariable('studysync_response_media'));

-- The keys of customMetadata of link studies, one row per key; with_custom_metadata.
SET VARIABLE studysync_response_custom_metadata = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "question_id", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "name", "value_text", "value_number", "value_bool", "json_type", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::VARCHAR AS "name", NULL::VARCHAR AS "value_text", NULL::DOUBLE AS "value_number", NULL::BOOLEAN AS "value_bool", NULL::VARCHAR AS "json_type", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/response_custom_metadata/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::VARCHAR AS "name", NULL::VARCHAR AS "value_text", NULL::DOUBLE AS "value_number", NULL::BOOLEAN AS "value_bool", NULL::VARCHAR AS "json_type", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/response_custom_metadata/*/data.parquet'));
CREATE OR REPLACE VIEW "response_custom_metadata" AS FROM query(getvariable('studysync_response_custom_metadata'));

-- Earlier versions of rows of responses, as they stood from valid_from until valid_to.
SET VARIABLE studysync_response_history = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "question_id", "survey_id", "visitor_id", "visitor_uuid", "external_user_id", "partner_anonymous_id", "question_type", "question_text", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", make_timestamp(epoch_us("deleted_at")) AS "deleted_at", "answer_text", "answer_number", "answer_bool", "answer_json", "is_skipped", "selected_indexes", "url", "meta_browser", "meta_os", "meta_language", "meta_href", "meta_user_agent", "meta_client_width", "meta_client_height", "meta_screen_width", "meta_screen_height", "meta_extra", "custom_metadata", "extra", "_row_hash", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "reason", make_timestamp(epoch_us("collided_with")) AS "collided_with", make_timestamp(epoch_us("returned_at")) AS "returned_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::VARCHAR AS "visitor_uuid", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "partner_anonymous_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::TIMESTAMP WITH TIME ZONE AS "deleted_at", NULL::VARCHAR AS "answer_text", NULL::DOUBLE AS "answer_number", NULL::BOOLEAN AS "answer_bool", NULL::VARCHAR AS "answer_json", NULL::BOOLEAN AS "is_skipped", NULL::BIGINT[] AS "selected_indexes", NULL::VARCHAR AS "url", NULL::VARCHAR AS "meta_browser", NULL::VARCHAR AS "meta_os", NULL::VARCHAR AS "meta_language", NULL::VARCHAR AS "meta_href", NULL::VARCHAR AS "meta_user_agent", NULL::BIGINT AS "meta_client_width", NULL::BIGINT AS "meta_client_height", NULL::BIGINT AS "meta_screen_width", NULL::BIGINT AS "meta_screen_height", NULL::VARCHAR AS "meta_extra", NULL::VARCHAR AS "custom_metadata", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::VARCHAR AS "reason", NULL::TIMESTAMP WITH TIME ZONE AS "collided_with", NULL::TIMESTAMP WITH TIME ZONE AS "returned_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/response_history/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::VARCHAR AS "visitor_uuid", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "partner_anonymous_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::TIMESTAMP AS "deleted_at", NULL::VARCHAR AS "answer_text", NULL::DOUBLE AS "answer_number", NULL::BOOLEAN AS "answer_bool", NULL::VARCHAR AS "answer_json", NULL::BOOLEAN AS "is_skipped", NULL::BIGINT[] AS "selected_indexes", NULL::VARCHAR AS "url", NULL::VARCHAR AS "meta_browser", NULL::VARCHAR AS "meta_os", NULL::VARCHAR AS "meta_language", NULL::VARCHAR AS "meta_href", NULL::VARCHAR AS "meta_user_agent", NULL::BIGINT AS "meta_client_width", NULL::BIGINT AS "meta_client_height", NULL::BIGINT AS "meta_screen_width", NULL::BIGINT AS "meta_screen_height", NULL::VARCHAR AS "meta_extra", NULL::VARCHAR AS "custom_metadata", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::VARCHAR AS "reason", NULL::TIMESTAMP AS "collided_with", NULL::TIMESTAMP AS "returned_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/response_history/*/data.parquet'));
CREATE OR REPLACE VIEW "response_history" AS FROM query(getvariable('studysync_response_history'));

-- The visitor as known when the survey was shown; with_snapshots.
SET VARIABLE studysync_visitor_snapshots = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "visitor_id", "external_user_id", "triggering_event", "attributes", "event_properties", "events", "extra", "_row_hash", make_timestamp(epoch_us("_first_seen_at")) AS "_first_seen_at", make_timestamp(epoch_us("_vanished_at")) AS "_vanished_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::VARCHAR AS "visitor_id", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "triggering_event", NULL::VARCHAR AS "attributes", NULL::VARCHAR AS "event_properties", NULL::VARCHAR AS "events", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "_first_seen_at", NULL::TIMESTAMP WITH TIME ZONE AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/visitor_snapshots/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::VARCHAR AS "visitor_id", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "triggering_event", NULL::VARCHAR AS "attributes", NULL::VARCHAR AS "event_properties", NULL::VARCHAR AS "events", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "_first_seen_at", NULL::TIMESTAMP AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/visitor_snapshots/*/data.parquet'));
CREATE OR REPLACE VIEW "visitor_snapshots" AS FROM query(getvariable('studysync_visitor_snapshots'));

-- Attributes of visitor_snapshots, one row per attribute.
SET VARIABLE studysync_visitor_snapshot_attributes = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "name", "value_text", "value_number", "value_bool", "json_type", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::VARCHAR AS "name", NULL::VARCHAR AS "value_text", NULL::DOUBLE AS "value_number", NULL::BOOLEAN AS "value_bool", NULL::VARCHAR AS "json_type", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/visitor_snapshot_attributes/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::VARCHAR AS "name", NULL::VARCHAR AS "value_text", NULL::DOUBLE AS "value_number", NULL::BOOLEAN AS "value_bool", NULL::VARCHAR AS "json_type", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/visitor_snapshot_attributes/*/data.parquet'));
CREATE OR REPLACE VIEW "visitor_snapshot_attributes" AS FROM query(getvariable('studysync_visitor_snapshot_attributes'));

-- Earlier versions of rows of visitor_snapshots: the service later sent another snapshot with the same answer.
SET VARIABLE studysync_visitor_snapshot_history = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "response_group_uid", "survey_id", make_timestamp(epoch_us("created_at")) AS "created_at", "visitor_id", "external_user_id", "triggering_event", "attributes", "event_properties", "events", "extra", "_row_hash", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "reason", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::VARCHAR AS "visitor_id", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "triggering_event", NULL::VARCHAR AS "attributes", NULL::VARCHAR AS "event_properties", NULL::VARCHAR AS "events", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::VARCHAR AS "reason", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/visitor_snapshot_history/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "created_at", NULL::VARCHAR AS "visitor_id", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "triggering_event", NULL::VARCHAR AS "attributes", NULL::VARCHAR AS "event_properties", NULL::VARCHAR AS "events", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::VARCHAR AS "reason", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/visitor_snapshot_history/*/data.parquet'));
CREATE OR REPLACE VIEW "visitor_snapshot_history" AS FROM query(getvariable('studysync_visitor_snapshot_history'));

-- Study configurations in their current state.
SET VARIABLE studysync_surveys = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "id", "id" AS "survey_id", "name", "platform", "type", "status", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", make_timestamp(epoch_us("launched_at")) AS "launched_at", make_timestamp(epoch_us("completed_at")) AS "completed_at", "total_response_limit", "extra", "_row_hash", make_timestamp(epoch_us("_first_seen_at")) AS "_first_seen_at", make_timestamp(epoch_us("_vanished_at")) AS "_vanished_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "id", NULL::BIGINT AS "survey_id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "type", NULL::VARCHAR AS "status", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::TIMESTAMP WITH TIME ZONE AS "launched_at", NULL::TIMESTAMP WITH TIME ZONE AS "completed_at", NULL::BIGINT AS "total_response_limit", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "_first_seen_at", NULL::TIMESTAMP WITH TIME ZONE AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/surveys/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "id", NULL::BIGINT AS "survey_id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "type", NULL::VARCHAR AS "status", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::TIMESTAMP AS "launched_at", NULL::TIMESTAMP AS "completed_at", NULL::BIGINT AS "total_response_limit", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "_first_seen_at", NULL::TIMESTAMP AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/surveys/data.parquet'));
CREATE OR REPLACE VIEW "surveys" AS FROM query(getvariable('studysync_surveys'));

-- Every version of every survey that a scan saw, including the current version.
SET VARIABLE studysync_survey_history = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "id", "id" AS "survey_id", "name", "platform", "type", "status", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", make_timestamp(epoch_us("launched_at")) AS "launched_at", make_timestamp(epoch_us("completed_at")) AS "completed_at", "total_response_limit", "extra", "_row_hash", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "is_current", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "id", NULL::BIGINT AS "survey_id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "type", NULL::VARCHAR AS "status", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::TIMESTAMP WITH TIME ZONE AS "launched_at", NULL::TIMESTAMP WITH TIME ZONE AS "completed_at", NULL::BIGINT AS "total_response_limit", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_history/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "id", NULL::BIGINT AS "survey_id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "type", NULL::VARCHAR AS "status", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::TIMESTAMP AS "launched_at", NULL::TIMESTAMP AS "completed_at", NULL::BIGINT AS "total_response_limit", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/survey_history/data.parquet'));
CREATE OR REPLACE VIEW "survey_history" AS FROM query(getvariable('studysync_survey_history'));

-- Questions of surveys.
SET VARIABLE studysync_survey_questions = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "survey_id", "question_ordinal", "question_id", "question_type", "question_text", "intro_text", "left_label", "right_label", "options", "options_properties", "routing_options", "extra", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "question_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "intro_text", NULL::VARCHAR AS "left_label", NULL::VARCHAR AS "right_label", NULL::VARCHAR AS "options", NULL::VARCHAR AS "options_properties", NULL::VARCHAR AS "routing_options", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_questions/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "question_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "intro_text", NULL::VARCHAR AS "left_label", NULL::VARCHAR AS "right_label", NULL::VARCHAR AS "options", NULL::VARCHAR AS "options_properties", NULL::VARCHAR AS "routing_options", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/survey_questions/data.parquet'));
CREATE OR REPLACE VIEW "survey_questions" AS FROM query(getvariable('studysync_survey_questions'));

-- Options of the questions of surveys.
SET VARIABLE studysync_survey_question_options = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "survey_id", "question_ordinal", "option_ordinal", "question_id", "label", "option_json", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "option_ordinal", NULL::BIGINT AS "question_id", NULL::VARCHAR AS "label", NULL::VARCHAR AS "option_json", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_question_options/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "option_ordinal", NULL::BIGINT AS "question_id", NULL::VARCHAR AS "label", NULL::VARCHAR AS "option_json", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/survey_question_options/data.parquet'));
CREATE OR REPLACE VIEW "survey_question_options" AS FROM query(getvariable('studysync_survey_question_options'));

-- Targeting rules of surveys.
SET VARIABLE studysync_survey_constraints = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "survey_id", "constraint_ordinal", "constraint_type", "comparison_type", "event", "value", "extra", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "constraint_ordinal", NULL::VARCHAR AS "constraint_type", NULL::VARCHAR AS "comparison_type", NULL::VARCHAR AS "event", NULL::DOUBLE AS "value", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_constraints/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "constraint_ordinal", NULL::VARCHAR AS "constraint_type", NULL::VARCHAR AS "comparison_type", NULL::VARCHAR AS "event", NULL::DOUBLE AS "value", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/survey_constraints/data.parquet'));
CREATE OR REPLACE VIEW "survey_constraints" AS FROM query(getvariable('studysync_survey_constraints'));

-- Every version of every survey question that a scan saw, including the current versions.
SET VARIABLE studysync_survey_question_history = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "survey_id", "question_ordinal", "question_id", "question_type", "question_text", "intro_text", "left_label", "right_label", "options", "options_properties", "routing_options", "extra", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "is_current", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "question_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "intro_text", NULL::VARCHAR AS "left_label", NULL::VARCHAR AS "right_label", NULL::VARCHAR AS "options", NULL::VARCHAR AS "options_properties", NULL::VARCHAR AS "routing_options", NULL::VARCHAR AS "extra", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_question_history/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "question_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "intro_text", NULL::VARCHAR AS "left_label", NULL::VARCHAR AS "right_label", NULL::VARCHAR AS "options", NULL::VARCHAR AS "options_properties", NULL::VARCHAR AS "routing_options", NULL::VARCHAR AS "extra", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/survey_question_history/data.parquet'));
CREATE OR REPLACE VIEW "survey_question_history" AS FROM query(getvariable('studysync_survey_question_history'));

-- Every version of every option of survey questions that a scan saw, including the current versions.
SET VARIABLE studysync_survey_question_option_history = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "survey_id", "question_ordinal", "option_ordinal", "question_id", "label", "option_json", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "is_current", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "option_ordinal", NULL::BIGINT AS "question_id", NULL::VARCHAR AS "label", NULL::VARCHAR AS "option_json", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_question_option_history/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "option_ordinal", NULL::BIGINT AS "question_id", NULL::VARCHAR AS "label", NULL::VARCHAR AS "option_json", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/survey_question_option_history/data.parquet'));
CREATE OR REPLACE VIEW "survey_question_option_history" AS FROM query(getvariable('studysync_survey_question_option_history'));

-- Every version of every targeting rule of surveys that a scan saw, including the current versions.
SET VARIABLE studysync_survey_constraint_history = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "survey_id", "constraint_ordinal", "constraint_type", "comparison_type", "event", "value", "extra", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "is_current", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "constraint_ordinal", NULL::VARCHAR AS "constraint_type", NULL::VARCHAR AS "comparison_type", NULL::VARCHAR AS "event", NULL::DOUBLE AS "value", NULL::VARCHAR AS "extra", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_constraint_history/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "survey_id", NULL::BIGINT AS "constraint_ordinal", NULL::VARCHAR AS "constraint_type", NULL::VARCHAR AS "comparison_type", NULL::VARCHAR AS "event", NULL::DOUBLE AS "value", NULL::VARCHAR AS "extra", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/survey_constraint_history/data.parquet'));
CREATE OR REPLACE VIEW "survey_constraint_history" AS FROM query(getvariable('studysync_survey_constraint_history'));

-- Changes of a survey's status, derived from the versions of surveys that scans saw and from the webhooks. A webhook counts from its moment if its old status is the status at this moment, until a scan sees another status.
SET VARIABLE studysync_survey_status_changes = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "survey_id", make_timestamp(epoch_us("changed_at")) AS "changed_at", "old_status", "new_status", "seen_by", make_timestamp(epoch_us("scanned_at")) AS "scanned_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "changed_at", NULL::VARCHAR AS "old_status", NULL::VARCHAR AS "new_status", NULL::VARCHAR AS "seen_by", NULL::TIMESTAMP WITH TIME ZONE AS "scanned_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_status_changes/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "changed_at", NULL::VARCHAR AS "old_status", NULL::VARCHAR AS "new_status", NULL::VARCHAR AS "seen_by", NULL::TIMESTAMP AS "scanned_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/survey_status_changes/data.parquet'));
CREATE OR REPLACE VIEW "survey_status_changes" AS FROM query(getvariable('studysync_survey_status_changes'));

-- Themes that the service found in answers: one row links one theme to one answer.
SET VARIABLE studysync_themes = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "id", "response_group_uid", "question_id", "survey_id", "visitor_id", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", "question_text", "question_type", "response", "theme", "theme_description", "extra", "_row_hash", make_timestamp(epoch_us("_first_seen_at")) AS "_first_seen_at", make_timestamp(epoch_us("_vanished_at")) AS "_vanished_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::BIGINT AS "id", NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "response", NULL::VARCHAR AS "theme", NULL::VARCHAR AS "theme_description", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "_first_seen_at", NULL::TIMESTAMP WITH TIME ZONE AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/themes/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::BIGINT AS "id", NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "response", NULL::VARCHAR AS "theme", NULL::VARCHAR AS "theme_description", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "_first_seen_at", NULL::TIMESTAMP AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/themes/*/data.parquet'));
CREATE OR REPLACE VIEW "themes" AS FROM query(getvariable('studysync_themes'));

-- Earlier versions of rows of themes, as they stood from valid_from until valid_to: other names, descriptions, answers.
SET VARIABLE studysync_theme_history = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "id", "response_group_uid", "question_id", "survey_id", "visitor_id", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", "question_text", "question_type", "response", "theme", "theme_description", "extra", "_row_hash", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "reason", make_timestamp(epoch_us("returned_at")) AS "returned_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::BIGINT AS "id", NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "response", NULL::VARCHAR AS "theme", NULL::VARCHAR AS "theme_description", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::VARCHAR AS "reason", NULL::TIMESTAMP WITH TIME ZONE AS "returned_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/theme_history/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::BIGINT AS "id", NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "response", NULL::VARCHAR AS "theme", NULL::VARCHAR AS "theme_description", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::VARCHAR AS "reason", NULL::TIMESTAMP AS "returned_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/theme_history/*/data.parquet'));
CREATE OR REPLACE VIEW "theme_history" AS FROM query(getvariable('studysync_theme_history'));

-- People who have an id of your own, in their current state at the service. Only people whom a run requested by their id.
SET VARIABLE studysync_users = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "external_user_id", "user_id", make_timestamp(epoch_us("created_at")) AS "created_at", "attributes", "events", "extra", "_row_hash", make_timestamp(epoch_us("_first_seen_at")) AS "_first_seen_at", make_timestamp(epoch_us("_vanished_at")) AS "_vanished_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "user_id", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::VARCHAR AS "attributes", NULL::VARCHAR AS "events", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "_first_seen_at", NULL::TIMESTAMP WITH TIME ZONE AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/users/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "user_id", NULL::TIMESTAMP AS "created_at", NULL::VARCHAR AS "attributes", NULL::VARCHAR AS "events", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "_first_seen_at", NULL::TIMESTAMP AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/users/data.parquet'));
CREATE OR REPLACE VIEW "users" AS FROM query(getvariable('studysync_users'));

-- Every value of every attribute of a person that a scan saw, including the current values.
SET VARIABLE studysync_user_attributes = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "external_user_id", "name", "value_text", "value_number", "value_bool", "json_type", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "is_current", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "value_text", NULL::DOUBLE AS "value_number", NULL::BOOLEAN AS "value_bool", NULL::VARCHAR AS "json_type", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/user_attributes/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "value_text", NULL::DOUBLE AS "value_number", NULL::BOOLEAN AS "value_bool", NULL::VARCHAR AS "json_type", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/user_attributes/data.parquet'));
CREATE OR REPLACE VIEW "user_attributes" AS FROM query(getvariable('studysync_user_attributes'));

-- Events of people, as the service counts them now; replaced with the person.
SET VARIABLE studysync_user_events = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "external_user_id", "event_ordinal", "event", "count", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", "extra", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "external_user_id", NULL::BIGINT AS "event_ordinal", NULL::VARCHAR AS "event", NULL::BIGINT AS "count", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/user_events/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "external_user_id", NULL::BIGINT AS "event_ordinal", NULL::VARCHAR AS "event", NULL::BIGINT AS "count", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/user_events/data.parquet'));
CREATE OR REPLACE VIEW "user_events" AS FROM query(getvariable('studysync_user_events'));

-- Webhooks that `studysync serve` received. They are separate from scans: the other tables are filled from the service's lists alone.
SET VARIABLE studysync_webhook_events = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "event_key", "kind", make_timestamp(epoch_us("received_at")) AS "received_at", make_timestamp(epoch_us("occurred_at")) AS "occurred_at", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", make_timestamp(epoch_us("event_date")) AS "event_date", "body_hash", "webhook_id", "environment_id", "product_id", "product_name", "event_type", "event_name", "action", "record_type", "is_user_interviews", "team_id", "survey_id", "survey_name", "old_status", "status", "response_group_uid", "question_text", "question_type", "export_question_type", "response_json", "response_parsed_json", "response_text", "response_number", "selected_indexes", "theme_name", "visitor_id", "old_visitor_id", "user_id", "anonymous_id", "email", "triggering_event", "platform", "href", "os", "browser", "user_agent", "attributes", "event_properties", "custom_metadata", "questions", "extra", "raw", "raw_base64", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^received_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "event_key", NULL::VARCHAR AS "kind", NULL::TIMESTAMP WITH TIME ZONE AS "received_at", NULL::TIMESTAMP WITH TIME ZONE AS "occurred_at", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::TIMESTAMP WITH TIME ZONE AS "event_date", NULL::VARCHAR AS "body_hash", NULL::BIGINT AS "webhook_id", NULL::VARCHAR AS "environment_id", NULL::VARCHAR AS "product_id", NULL::VARCHAR AS "product_name", NULL::VARCHAR AS "event_type", NULL::VARCHAR AS "event_name", NULL::VARCHAR AS "action", NULL::VARCHAR AS "record_type", NULL::BOOLEAN AS "is_user_interviews", NULL::BIGINT AS "team_id", NULL::BIGINT AS "survey_id", NULL::VARCHAR AS "survey_name", NULL::VARCHAR AS "old_status", NULL::VARCHAR AS "status", NULL::VARCHAR AS "response_group_uid", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "export_question_type", NULL::VARCHAR AS "response_json", NULL::VARCHAR AS "response_parsed_json", NULL::VARCHAR AS "response_text", NULL::DOUBLE AS "response_number", NULL::BIGINT[] AS "selected_indexes", NULL::VARCHAR AS "theme_name", NULL::VARCHAR AS "visitor_id", NULL::BIGINT AS "old_visitor_id", NULL::VARCHAR AS "user_id", NULL::VARCHAR AS "anonymous_id", NULL::VARCHAR AS "email", NULL::VARCHAR AS "triggering_event", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "href", NULL::VARCHAR AS "os", NULL::VARCHAR AS "browser", NULL::VARCHAR AS "user_agent", NULL::VARCHAR AS "attributes", NULL::VARCHAR AS "event_properties", NULL::VARCHAR AS "custom_metadata", NULL::VARCHAR AS "questions", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "raw", NULL::VARCHAR AS "raw_base64", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/webhook_events/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "event_key", NULL::VARCHAR AS "kind", NULL::TIMESTAMP AS "received_at", NULL::TIMESTAMP AS "occurred_at", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::TIMESTAMP AS "event_date", NULL::VARCHAR AS "body_hash", NULL::BIGINT AS "webhook_id", NULL::VARCHAR AS "environment_id", NULL::VARCHAR AS "product_id", NULL::VARCHAR AS "product_name", NULL::VARCHAR AS "event_type", NULL::VARCHAR AS "event_name", NULL::VARCHAR AS "action", NULL::VARCHAR AS "record_type", NULL::BOOLEAN AS "is_user_interviews", NULL::BIGINT AS "team_id", NULL::BIGINT AS "survey_id", NULL::VARCHAR AS "survey_name", NULL::VARCHAR AS "old_status", NULL::VARCHAR AS "status", NULL::VARCHAR AS "response_group_uid", NULL::VARCHAR AS "question_text", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "export_question_type", NULL::VARCHAR AS "response_json", NULL::VARCHAR AS "response_parsed_json", NULL::VARCHAR AS "response_text", NULL::DOUBLE AS "response_number", NULL::BIGINT[] AS "selected_indexes", NULL::VARCHAR AS "theme_name", NULL::VARCHAR AS "visitor_id", NULL::BIGINT AS "old_visitor_id", NULL::VARCHAR AS "user_id", NULL::VARCHAR AS "anonymous_id", NULL::VARCHAR AS "email", NULL::VARCHAR AS "triggering_event", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "href", NULL::VARCHAR AS "os", NULL::VARCHAR AS "browser", NULL::VARCHAR AS "user_agent", NULL::VARCHAR AS "attributes", NULL::VARCHAR AS "event_properties", NULL::VARCHAR AS "custom_metadata", NULL::VARCHAR AS "questions", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "raw", NULL::VARCHAR AS "raw_base64", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS received_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/webhook_events/*/data.parquet'));
CREATE OR REPLACE VIEW "webhook_events" AS FROM query(getvariable('studysync_webhook_events'));

-- Questions in webhooks: of submitted studies with their answers, and of studies whose status changed.
SET VARIABLE studysync_webhook_questions = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "event_key", make_timestamp(epoch_us("received_at")) AS "received_at", "question_ordinal", "survey_id", "response_group_uid", "question_text", "question_order", "question_type", "export_question_type", "response_json", "response_parsed_json", "response_text", "response_number", "extra", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^received_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "event_key", NULL::TIMESTAMP WITH TIME ZONE AS "received_at", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "survey_id", NULL::VARCHAR AS "response_group_uid", NULL::VARCHAR AS "question_text", NULL::BIGINT AS "question_order", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "export_question_type", NULL::VARCHAR AS "response_json", NULL::VARCHAR AS "response_parsed_json", NULL::VARCHAR AS "response_text", NULL::DOUBLE AS "response_number", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/webhook_questions/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "event_key", NULL::TIMESTAMP AS "received_at", NULL::BIGINT AS "question_ordinal", NULL::BIGINT AS "survey_id", NULL::VARCHAR AS "response_group_uid", NULL::VARCHAR AS "question_text", NULL::BIGINT AS "question_order", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "export_question_type", NULL::VARCHAR AS "response_json", NULL::VARCHAR AS "response_parsed_json", NULL::VARCHAR AS "response_text", NULL::DOUBLE AS "response_number", NULL::VARCHAR AS "extra", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS received_month WHERE false'
END FROM glob(getvariable('studysync_root') || '/webhook_questions/*/data.parquet'));
CREATE OR REPLACE VIEW "webhook_questions" AS FROM query(getvariable('studysync_webhook_questions'));

-- Records that could not become rows of their table, with their exact text, so that no record is lost.
SET VARIABLE studysync_rejects = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "stream", "raw_hash", "reason", "field", "scan_id", "raw", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "stream", NULL::BIGINT AS "raw_hash", NULL::VARCHAR AS "reason", NULL::VARCHAR AS "field", NULL::VARCHAR AS "scan_id", NULL::VARCHAR AS "raw", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/rejects/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "stream", NULL::BIGINT AS "raw_hash", NULL::VARCHAR AS "reason", NULL::VARCHAR AS "field", NULL::VARCHAR AS "scan_id", NULL::VARCHAR AS "raw", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/rejects/data.parquet'));
CREATE OR REPLACE VIEW "rejects" AS FROM query(getvariable('studysync_rejects'));

-- The ledger: every scan that changed the warehouse, in the same transaction as its rows.
SET VARIABLE studysync_sync_windows = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "scan_id", "stream", "survey_id", make_timestamp(epoch_us("window_start")) AS "window_start", make_timestamp(epoch_us("window_end")) AS "window_end", "flags", make_timestamp(epoch_us("scanned_at")) AS "scanned_at", "rows_read", "inserted", "updated", "filled_in", "unchanged", "soft_deleted", "vanished", "withheld", "rejected", "collisions", "keys_checked", "outside_window", "pages", "end_style", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "scan_id", NULL::VARCHAR AS "stream", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "window_start", NULL::TIMESTAMP WITH TIME ZONE AS "window_end", NULL::BIGINT AS "flags", NULL::TIMESTAMP WITH TIME ZONE AS "scanned_at", NULL::BIGINT AS "rows_read", NULL::BIGINT AS "inserted", NULL::BIGINT AS "updated", NULL::BIGINT AS "filled_in", NULL::BIGINT AS "unchanged", NULL::BIGINT AS "soft_deleted", NULL::BIGINT AS "vanished", NULL::BIGINT AS "withheld", NULL::BIGINT AS "rejected", NULL::BIGINT AS "collisions", NULL::BOOLEAN AS "keys_checked", NULL::BIGINT AS "outside_window", NULL::BIGINT AS "pages", NULL::VARCHAR AS "end_style", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/sync_windows/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "scan_id", NULL::VARCHAR AS "stream", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "window_start", NULL::TIMESTAMP AS "window_end", NULL::BIGINT AS "flags", NULL::TIMESTAMP AS "scanned_at", NULL::BIGINT AS "rows_read", NULL::BIGINT AS "inserted", NULL::BIGINT AS "updated", NULL::BIGINT AS "filled_in", NULL::BIGINT AS "unchanged", NULL::BIGINT AS "soft_deleted", NULL::BIGINT AS "vanished", NULL::BIGINT AS "withheld", NULL::BIGINT AS "rejected", NULL::BIGINT AS "collisions", NULL::BOOLEAN AS "keys_checked", NULL::BIGINT AS "outside_window", NULL::BIGINT AS "pages", NULL::VARCHAR AS "end_style", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/sync_windows/data.parquet'));
CREATE OR REPLACE VIEW "sync_windows" AS FROM query(getvariable('studysync_sync_windows'));

-- What each run that changed the warehouse did, and how long each part took.
SET VARIABLE studysync_sync_runs = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "run_id", "command", "outcome", "exit_code", make_timestamp(epoch_us("started_at")) AS "started_at", make_timestamp(epoch_us("finished_at")) AS "finished_at", "base_url", "environment", "program_version", "report", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "run_id", NULL::VARCHAR AS "command", NULL::VARCHAR AS "outcome", NULL::BIGINT AS "exit_code", NULL::TIMESTAMP WITH TIME ZONE AS "started_at", NULL::TIMESTAMP WITH TIME ZONE AS "finished_at", NULL::VARCHAR AS "base_url", NULL::VARCHAR AS "environment", NULL::VARCHAR AS "program_version", NULL::VARCHAR AS "report", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/sync_runs/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "run_id", NULL::VARCHAR AS "command", NULL::VARCHAR AS "outcome", NULL::BIGINT AS "exit_code", NULL::TIMESTAMP AS "started_at", NULL::TIMESTAMP AS "finished_at", NULL::VARCHAR AS "base_url", NULL::VARCHAR AS "environment", NULL::VARCHAR AS "program_version", NULL::VARCHAR AS "report", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/sync_runs/data.parquet'));
CREATE OR REPLACE VIEW "sync_runs" AS FROM query(getvariable('studysync_sync_runs'));

-- Receipts of erasures: what was searched, found and removed, and when. They do not name the person.
SET VARIABLE studysync_erasures = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "erasure_id", "kind", make_timestamp(epoch_us("requested_at")) AS "requested_at", make_timestamp(epoch_us("finished_at")) AS "finished_at", "people", "identifiers", "not_followed", "purge_requests", "delay_seconds", make_timestamp(epoch_us("suppressed_from")) AS "suppressed_from", "removed", "searched", "mentions", "redacted", "outcome", make_timestamp(epoch_us("service_checked_at")) AS "service_checked_at", "service_users_checked", make_timestamp(epoch_us("suppression_ended_at")) AS "suppression_ended_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "erasure_id", NULL::VARCHAR AS "kind", NULL::TIMESTAMP WITH TIME ZONE AS "requested_at", NULL::TIMESTAMP WITH TIME ZONE AS "finished_at", NULL::BIGINT AS "people", NULL::BIGINT AS "identifiers", NULL::BIGINT AS "not_followed", NULL::VARCHAR AS "purge_requests", NULL::BIGINT AS "delay_seconds", NULL::TIMESTAMP WITH TIME ZONE AS "suppressed_from", NULL::VARCHAR AS "removed", NULL::VARCHAR AS "searched", NULL::BIGINT AS "mentions", NULL::BIGINT AS "redacted", NULL::VARCHAR AS "outcome", NULL::TIMESTAMP WITH TIME ZONE AS "service_checked_at", NULL::BIGINT AS "service_users_checked", NULL::TIMESTAMP WITH TIME ZONE AS "suppression_ended_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/erasures/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "erasure_id", NULL::VARCHAR AS "kind", NULL::TIMESTAMP AS "requested_at", NULL::TIMESTAMP AS "finished_at", NULL::BIGINT AS "people", NULL::BIGINT AS "identifiers", NULL::BIGINT AS "not_followed", NULL::VARCHAR AS "purge_requests", NULL::BIGINT AS "delay_seconds", NULL::TIMESTAMP AS "suppressed_from", NULL::VARCHAR AS "removed", NULL::VARCHAR AS "searched", NULL::BIGINT AS "mentions", NULL::BIGINT AS "redacted", NULL::VARCHAR AS "outcome", NULL::TIMESTAMP AS "service_checked_at", NULL::BIGINT AS "service_users_checked", NULL::TIMESTAMP AS "suppression_ended_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/erasures/data.parquet'));
CREATE OR REPLACE VIEW "erasures" AS FROM query(getvariable('studysync_erasures'));

-- The report time zone: how far its local time is ahead of UTC, from one change of the clock to the next.
-- One row: one offset; UTC has a single one.
-- Join it to a time, for days of your own: at >= coalesce(valid_from, at) AND at < coalesce(valid_to, TIMESTAMP 'infinity'), then at + to_seconds(offset_seconds) is the local time.
-- Days, weeks and months of the other views are of this zone: [warehouse] report_time_zone, or --time-zone.
-- Left out: changes of the clock before 1970 and from 2100.
-- Stored times stay UTC.
CREATE OR REPLACE VIEW "time_zone_offsets" AS
SELECT
    'UTC' AS time_zone, valid_from::TIMESTAMP AS valid_from, valid_to::TIMESTAMP AS valid_to,
    offset_seconds::BIGINT AS offset_seconds
FROM (VALUES
    (NULL, NULL, 0)
) AS offsets(valid_from, valid_to, offset_seconds);

-- The current answers.
-- One row: one answered (or skipped) question of one session; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service, and internal columns.
-- An empty external_user_id or partner_anonymous_id reads as NULL.
-- Times are UTC.
CREATE OR REPLACE VIEW "current_responses" AS
SELECT
    response_group_uid, question_id, survey_id, visitor_id, visitor_uuid,
    nullif(external_user_id, '') AS external_user_id,
    nullif(partner_anonymous_id, '') AS partner_anonymous_id,
    question_type, question_text, created_at, updated_at,
    answer_text, answer_number, answer_bool, answer_json, is_skipped, selected_indexes,
    url, meta_browser, meta_os, meta_language, meta_href, meta_user_agent,
    meta_client_width, meta_client_height, meta_screen_width, meta_screen_height, meta_extra,
    custom_metadata, extra, _first_seen_at, _synced_at
FROM responses
WHERE deleted_at IS NULL AND _vanished_at IS NULL;

-- The versions of every question: wording, options and position, in the order in which scans saw them.
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without an id.
-- Times are UTC.
-- A scan sees a change some time after it was made, so shown_from and shown_until are only as exact as the interval between scans of surveys.
-- For the version that an answer was given to see answer_versions.
-- A survey that names a question twice: the first of them.
CREATE OR REPLACE VIEW "question_versions" AS
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
    AND labelled.valid_from = numbered.valid_from;

-- The scale of every version of every LIKERT question whose definition has one.
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without a scale: see likert_values for those.
-- The scale comes from the options, if there are two or more.
-- Else it is 1 to the property "range", if there is one.
-- Options at an end whose label is no point are not part of the scale: "N/A", "Not applicable", "Don't know", "Prefer not to say" and their like, also in other languages; abbreviations such as "k.
-- A."; a label without a number beside three or more points that are numbers.
-- The values of the points are the integers that their labels begin with, if these go up or down by 1.
-- Else they are the positions of the options, from 1: so it is for words, and for labels such as 18-24, 1-2 times or 5+ years.
CREATE OR REPLACE VIEW "question_scales" AS
WITH spelled AS (
    SELECT
        survey_id, question_id, version, option_labels AS labels,
        try_cast(regexp_extract(options_properties, '"range"\s*:\s*"?([0-9]{1,2})\s*["},]', 1) AS BIGINT) AS value_range,
        -- Without apostrophes, a number in front, and marks at the ends.
        [regexp_replace(replace(replace(lower(label), '''', ''), '’', ''), '^[^\pL\pN]*([0-9]+[^\pL\pN]+)?(.*?)[^\pL\pN]*$', '\2', 's')
            FOR label IN option_labels] AS words,
        [try_cast(regexp_extract(label, '^\s*([+-]?[0-9]{1,4})([^0-9]|$)', 1) AS BIGINT) FOR label IN option_labels]
            AS numbers,
        -- The beginning of a range (1-2, 1 to 2), of a fraction, or of "5+".
        [regexp_matches(label, '^\s*[+-]?[0-9]+([.,+]|\s*(-|–|—|−|~|〜|～|/|to|bis|à|a)\s*[+-]?[0-9]|\s*\+)')
            FOR label IN option_labels] AS are_spans
    FROM question_versions
    WHERE question_type = 'LIKERT'
),
phrased AS (
    SELECT
        *, [regexp_matches(lower(label), '^[\s(\[]*\pL{1,2}([./\\]\s*\pL{1,2}){1,3}[.)\]\s]*$') FOR label IN labels] AS are_short,
        [regexp_matches(word, '^((n ?[./\\]? ?a|na|nsp|unknown|undecided|unsure|(im |i am |am )?not sure|not relevant|none of (the above|these)|other)$|(n ?[./\\] ?a\b|(not|non|in)[ -]?applicable|(it |this )?(does ?nt|does not|did not|didnt) apply|(i |we )?(do not|dont|did not|didnt|cannot|can not|cant|could not|couldnt) (know|say|tell|judge|rate|answer|assess|evaluate|comment|remember|recall)|unable to |no (opinion|answer|response|comment|idea)\b|(i |id |i would |would )*(prefer|rather|choose|wish) (not|to not)\b|(i )?(decline|refuse)d? to )|(keine? (angaben?|antwort|meinung|aussage)|(ich )?wei(ß|ss) (ich |es )?nicht|(das )?kann ich nicht|nicht (zutreffend|anwendbar|relevant|beurteilbar)|entfällt|möchte ich nicht|sans (objet|opinion|avis|réponse)|non (applicable|concerné)|(je )?ne (sais|sait|se prononce) pas|ne sapplique pas|(je )?préfère ne pas|no (aplica|procede|corresponde|contesta|opina)|(yo )?no (lo )?s(é|abe)|prefiero no|sin (opinión|respuesta)|n[ãa]o (se aplica|aplicável|sei|sabe)|prefiro n[ãa]o|sem (opinião|resposta))|(non (applicabile|pertinente|saprei|si applica|so$)|preferisco non|nessuna opinione|niet van toepassing|weet (ik )?niet|geen (mening|antwoord)|(dat )?(zeg|wil) ik (liever )?niet|vet (ej|inte|ikke)|ved ikke|(ej|inte|ikke) (tillämpligt|aktuellt|aktuelt|relevant)|ingen (åsikt|mening)|(vil|ønsker|vill) (ikke|inte)|en osaa sanoa|en tiedä|ei koske|nie (dotyczy|wiem)|trudno powiedzieć|wolę nie|nevím|neviem|netýká se|nechci|bilmiyorum|fikrim yok|uygun değil|(söylemek|belirtmek) istemiyorum|nem (tudom|vonatkozik)|nu (știu|stiu|se aplică)|tidak (tahu|berlaku)|không (biết|áp dụng))|(не (знаю|применимо|хочу отвечать)|неприменимо|затрудняюсь|нет (мнения|ответа)|важко сказати|δεν (ξέρω|γνωρίζω)|(分|わ)から?ない|わかりません|該当(なし|しない)|答えたくない|回答しない|無回答|不(适用|適用|知道|清楚|愿|願)|[无無]意[见見]|해당 ?(사항 ?)?없음|모름|모르겠|잘 모르|لا (أعرف|ينطبق)|לא (יודע|רלוונטי)))') FOR word IN words] AS are_phrases
    FROM spelled
),
-- "Don't know" is a point beside "Know it well", and "-" is one beside "+".
told AS (
    SELECT
        *, array_to_string([words[place] FOR place IN range(1, len(labels) + 1) IF NOT are_phrases[place]], ' ') AS others,
        len([word FOR word IN words IF word = '']) AS marks
    FROM phrased
),
ends AS (
    SELECT
        *, [place FOR place IN range(1, len(labels) + 1) IF NOT coalesce(
            CASE
                WHEN words[place] = '' THEN marks = 1 AND regexp_matches(labels[place], '^\s*[-–—?./…]\s*$')
                WHEN are_phrases[place] THEN NOT coalesce(contains(others, nullif(regexp_extract(
                    words[place], '(sure|relevant|applicable|apply|know|opinion|answer|decide|remember|recall)', 1
                ), '')), false)
                ELSE are_short[place]
            END, false)] AS points
    FROM told
),
measured AS (
    SELECT
        *, list_min(points) AS first_point, list_max(points) AS last_point,
        [place FOR place IN range(list_min(points), list_max(points) + 1)
            IF numbers[place] IS NOT NULL AND NOT are_spans[place]] AS places
    FROM ends
),
shaped AS (
    SELECT
        *, list_min(places) AS first_number, list_max(places) AS last_number,
        list_min([numbers[place] FOR place IN places]) AS low, list_max([numbers[place] FOR place IN places]) AS high,
        len(list_distinct([numbers[place] - place FOR place IN places])) = 1 AS goes_up,
        len(list_distinct([numbers[place] + place FOR place IN places])) = 1 AS goes_down
    FROM measured
),
-- Words on one side of three or more numbers are no points, unless they stand for a number that is missing.
judged AS (
    SELECT
        *, len(places) >= 2 AND len(places) = last_number - first_number + 1 AND (goes_up OR goes_down) AND CASE
            WHEN first_number = first_point AND last_number = last_point THEN true
            WHEN len(places) < 3 OR (first_number > first_point AND last_number < last_point) THEN false
            WHEN len([place FOR place IN range(first_point, last_point + 1) IF (place < first_number OR place > last_number)
                AND regexp_matches(labels[place], '(?i)\pN|^\s*(no|none|never|nothing|zero|not at all)\b')]) > 0 THEN false
            WHEN (first_number > first_point) = goes_up THEN low <= 1
            ELSE true
        END AS is_counted
    FROM shaped
),
scaled AS (
    SELECT
        *, CASE WHEN is_counted THEN low ELSE first_point END AS lowest,
        CASE WHEN is_counted THEN high ELSE last_point END AS highest,
        CASE WHEN is_counted THEN first_number ELSE first_point END AS first_place,
        CASE WHEN is_counted THEN last_number ELSE last_point END AS last_place,
        CASE WHEN last_place >= first_place AND len(labels) >= 2 THEN 'options' WHEN value_range >= 2 THEN 'properties' END AS scale_source
    FROM judged
)
SELECT
    survey_id, question_id, version,
    CASE scale_source WHEN 'options' THEN lowest ELSE 1 END AS scale_min,
    CASE scale_source WHEN 'options' THEN highest ELSE value_range END AS scale_max,
    scale_source,
    -- An option that is no point is known by its own number, by its position, or by the next number of the sequence.
    CASE WHEN scale_source = 'options' THEN [value
        FOR value IN list_sort(list_distinct(flatten([
            [numbers[place], place, CASE
                WHEN is_counted AND goes_up THEN lowest + place - first_place
                WHEN is_counted THEN highest - (place - first_place)
            END]
            FOR place IN range(1, len(labels) + 1) IF place < first_place OR place > last_place
        ])))
        IF value < lowest OR value > highest
    ] END AS not_rated_values
FROM scaled
WHERE scale_source IS NOT NULL;

-- The versions of every survey's set of questions: which questions it had, in which order, from when until when.
-- One row: one version of one survey's set of questions; key (survey_id, set_version).
-- Left out: surveys that no scan saw, definitions without an id, and the time in which a survey had no questions.
-- Times are UTC.
-- A question that is reworded, or gets other options, makes no version.
-- A question that is named twice stands at its first position.
CREATE OR REPLACE VIEW "survey_question_sets" AS
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
WINDOW survey AS (PARTITION BY survey_id ORDER BY moment);

-- Which version of its question each answer was given to: the rule for all views that judge an answer by its question.
-- One row: one current answer; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service.
-- Answers that name no survey have no version.
-- The wording that came with the answer decides: of the versions with this wording, the one that was current when the answer was given.
-- If no version has the wording, the time alone decides.
-- An answer from before the first version belongs to the first version.
-- A scan sees a change some time after it was made.
-- So an answer with an option or value that only the next version has belongs to the next version.
-- This is known of LIKERT, MULTIPLECHOICE and MULTIPLESELECT.
-- The same rule finds the set of questions that a session was shown, by the questions that it answered: see session_stages.
CREATE OR REPLACE VIEW "answer_versions" AS
WITH answers AS (
    SELECT
        response_group_uid, question_id, survey_id, question_type, question_text, created_at, is_skipped, answer_number,
        CASE
            WHEN NOT is_skipped AND answer_text IS NOT NULL AND question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
                THEN selected_indexes
        END AS selected_indexes,
        CASE
            WHEN is_skipped OR answer_text IS NULL THEN NULL
            WHEN question_type = 'MULTIPLECHOICE' THEN [answer_text]
            WHEN question_type IS DISTINCT FROM 'MULTIPLESELECT' THEN NULL
            WHEN starts_with(ltrim(answer_text), '[') AND json_valid(answer_text) THEN json_extract_string(answer_text, '$[*]')
            -- One text beside several indexes names several options, or one of them.
            WHEN len(selected_indexes) > 1 THEN NULL
            ELSE [answer_text]
        END AS chosen_labels
    FROM current_responses
),
defined AS (
    SELECT
        version.survey_id, version.question_id, version.version, version.question_text, version.option_labels,
        coalesce(version.shown_from, TIMESTAMP '0001-01-01 00:00:00') AS timed_from,
        scale.scale_min, scale.scale_max, scale.scale_source, scale.not_rated_values,
        list_concat(range(scale.scale_min, scale.scale_max + 1), scale.not_rated_values) AS scale_values,
        count(*) OVER question > 1 AS has_changed
    FROM question_versions AS version
    LEFT JOIN question_scales AS scale
        ON scale.survey_id = version.survey_id AND scale.question_id = version.question_id
        AND scale.version = version.version
    WINDOW question AS (PARTITION BY version.survey_id, version.question_id)
),
-- For each wording of a question that has changed, and without one (NULL) for all other answers: which version was shown when, and what
-- the next one has that this one has not.
spans AS (
    SELECT
        survey_id, question_id, wording, version,
        CASE WHEN row_number() OVER worded = 1 THEN TIMESTAMP '0001-01-01 00:00:00' ELSE timed_from END AS begins,
        coalesce(lead(timed_from) OVER worded, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends,
        lead(version) OVER worded AS next_version,
        [label FOR label IN lead(option_labels) OVER worded IF NOT list_contains(coalesce(option_labels, []), label)] AS new_labels,
        CASE WHEN scale_source IS NOT NULL THEN
            [value::DOUBLE FOR value IN lead(scale_values) OVER worded IF NOT list_contains(scale_values, value)]
        END AS new_values,
        coalesce(len(option_labels), 0) AS options,
        len(lead(option_labels) OVER worded) AS next_options,
        question_text, scale_min, scale_max, scale_source, not_rated_values,
        lead(scale_min) OVER worded AS next_min, lead(scale_max) OVER worded AS next_max,
        lead(scale_source) OVER worded AS next_source, lead(not_rated_values) OVER worded AS next_not_rated
    FROM (
        SELECT *, NULL AS wording FROM defined
        UNION ALL
        SELECT *, question_text FROM defined WHERE has_changed AND question_text IS NOT NULL
    )
    WINDOW worded AS (PARTITION BY survey_id, question_id, wording ORDER BY version)
),
wordings AS (
    SELECT survey_id, question_id, list(DISTINCT wording) AS wordings
    FROM spans
    WHERE wording IS NOT NULL
    GROUP BY survey_id, question_id
),
placed AS (
    SELECT
        answer.*, span.* EXCLUDE (survey_id, question_id, question_text),
        coalesce(span.question_text = answer.question_text, false) AS is_wording_shown,
        CASE
            WHEN span.next_version IS NULL THEN false
            WHEN answer.question_type = 'LIKERT' THEN list_contains(span.new_values, answer.answer_number)
            WHEN answer.question_type NOT IN ('MULTIPLECHOICE', 'MULTIPLESELECT') THEN false
            WHEN answer.chosen_labels IS NULL THEN
                list_max(answer.selected_indexes) BETWEEN span.options + 1 AND span.next_options
            ELSE list_has_any(answer.chosen_labels, span.new_labels)
        END AS is_next
    FROM answers AS answer
    LEFT JOIN wordings ON wordings.survey_id = answer.survey_id AND wordings.question_id = answer.question_id
    LEFT JOIN spans AS span
        ON span.survey_id = answer.survey_id AND span.question_id = answer.question_id
        AND span.wording IS NOT DISTINCT FROM
            CASE WHEN list_contains(wordings.wordings, answer.question_text) THEN answer.question_text END
        AND answer.created_at >= span.begins AND answer.created_at < span.ends
)
SELECT
    response_group_uid, question_id, survey_id,
    CASE WHEN is_next THEN next_version ELSE version END AS version,
    is_wording_shown, question_type, question_text, created_at, is_skipped, answer_number, chosen_labels,
    CASE WHEN chosen_labels IS NULL OR len(chosen_labels) = len(selected_indexes) THEN selected_indexes END AS chosen_indexes,
    CASE WHEN is_next THEN next_min ELSE scale_min END AS scale_min,
    CASE WHEN is_next THEN next_max ELSE scale_max END AS scale_max,
    CASE WHEN is_next THEN next_source ELSE scale_source END AS scale_source,
    CASE WHEN is_next THEN next_not_rated ELSE not_rated_values END AS not_rated_values
FROM placed;

-- Which version of its question each answer was given to, for answers to questions that scans of surveys saw.
-- One row: one current answer; key (response_group_uid, question_id).
-- Joins answers to question_versions.
-- The rule is that of answer_versions.
-- Left out: answers to questions that no scan of surveys saw, and those that are deleted or have vanished.
CREATE OR REPLACE VIEW "response_question_versions" AS
SELECT response_group_uid, question_id, survey_id, version, is_wording_shown
FROM answer_versions
WHERE version IS NOT NULL;

-- The chosen options of current answers (MULTIPLECHOICE, MULTIPLESELECT).
-- One row: one chosen option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
-- The label that the answer itself carries comes first, also from each element of a list, with or without indexes.
-- If the service sent only indexes, or one text for several indexes, the label is that of the option in the version that the answer was given to (see answer_versions), provided that it is proven whether indexes of the question begin with 0 or 1: by other answers with label and index, by an index 0, or by an index equal to the number of options.
-- Else it is the label that other answers to the same version have for that index, if all agree.
-- Else it is not known.
CREATE OR REPLACE VIEW "current_choices" AS
WITH reported AS (
    SELECT
        survey_id, question_id, version, selected_index,
        CASE WHEN min(label) = max(label) THEN min(label) END AS label
    FROM (
        SELECT
            survey_id, question_id, version, unnest(chosen_labels) AS label, unnest(chosen_indexes) AS selected_index
        FROM answer_versions
        WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND chosen_indexes IS NOT NULL
    )
    GROUP BY survey_id, question_id, version, selected_index
    QUALIFY bool_or(count(label) < count(*)) OVER (PARTITION BY survey_id, question_id)
),
-- Evidence for the index of the first option: options that are sent with their index, and the ends of the range.
signs AS (
    SELECT
        reported.survey_id, reported.question_id, reported.version, reported.selected_index, reported.label,
        defined.option_labels AS labels,
        reported.selected_index - nullif(list_position(defined.option_labels, reported.label), 0) + 1 AS sign,
        min(reported.selected_index) OVER version_of AS lowest,
        max(reported.selected_index) OVER version_of AS highest
    FROM reported
    LEFT JOIN question_versions AS defined
        ON defined.survey_id = reported.survey_id AND defined.question_id = reported.question_id
        AND defined.version = reported.version
    WINDOW version_of AS (PARTITION BY reported.survey_id, reported.question_id, reported.version)
),
ranged AS (
    SELECT
        *, CASE
            WHEN lowest = 0 AND highest < len(labels) THEN 0
            WHEN lowest > 0 AND highest = len(labels) THEN 1
        END AS range_sign
    FROM signs
),
weighed AS (
    SELECT
        *, least(min(range_sign) OVER question, min(sign) OVER question) AS least_sign,
        greatest(max(range_sign) OVER question, max(sign) OVER question) AS greatest_sign
    FROM ranged
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
named AS (
    SELECT
        survey_id, question_id, version, selected_index, label,
        CASE
            WHEN least_sign = greatest_sign AND least_sign IN (0, 1) AND selected_index >= least_sign
                THEN labels[selected_index - least_sign + 1]
        END AS option_label
    FROM weighed
)
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at, part.choice_ordinal, part.selected_index,
    coalesce(part.label, named.option_label, named.label) AS label,
    CASE
        WHEN part.label IS NOT NULL THEN 'answer'
        WHEN named.option_label IS NOT NULL THEN 'options'
        WHEN named.label IS NOT NULL THEN 'other answers'
    END AS label_source,
    part.version
FROM (
    SELECT
        response_group_uid, question_id, survey_id, version, created_at,
        unnest(chosen_labels) AS label, unnest(chosen_indexes) AS selected_index,
        unnest(range(1, coalesce(len(chosen_labels), len(chosen_indexes)) + 1)) AS choice_ordinal
    FROM answer_versions
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped
) AS part
LEFT JOIN named
    ON named.survey_id = part.survey_id AND named.question_id = part.question_id
    AND named.version IS NOT DISTINCT FROM part.version
    AND named.selected_index = CASE WHEN part.label IS NULL THEN part.selected_index END;

-- The rows of current matrix answers (MATRIX).
-- One row: one row of the matrix of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE OR REPLACE VIEW "current_matrix_cells" AS
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.row_label, part.row_ordinal, part.column_label, part.column_number
FROM response_matrix_cells AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id;

-- The ranked options of current answers (RANKORDER).
-- One row: one option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE OR REPLACE VIEW "current_ranks" AS
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.option_label, part.rank
FROM response_ranks AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id;

-- The items shown in current answers (MAXDIFF).
-- One row: one item in one round of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE OR REPLACE VIEW "current_maxdiff_items" AS
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.round, part.item_ordinal, part.item_id, part.option, part.selected
FROM response_maxdiff_items AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id;

-- The themes of current answers.
-- One row: one theme on one answer; key (id, response_group_uid, question_id).
-- Left out: themes that have vanished, and those of answers that are deleted or have vanished.
-- Times are UTC.
CREATE OR REPLACE VIEW "current_themes" AS
SELECT
    found.id, found.response_group_uid, found.question_id, found.survey_id, found.visitor_id,
    found.created_at AS found_at,
    coalesce(answer.created_at, found.created_at) AS answered_at,
    found.theme, found.theme_description, found.response
FROM themes AS found
LEFT JOIN responses AS answer
    ON answer.response_group_uid = found.response_group_uid AND answer.question_id = found.question_id
WHERE found._vanished_at IS NULL AND answer.deleted_at IS NULL AND answer._vanished_at IS NULL;

-- The current attributes of people.
-- One row: one attribute of one person; key (external_user_id, name).
-- Left out: earlier values, and people whom the service no longer knows.
-- Times are UTC.
CREATE OR REPLACE VIEW "current_user_attributes" AS
SELECT
    attribute.external_user_id, attribute.name, attribute.value_text, attribute.value_number, attribute.value_bool,
    attribute.valid_from AS known_since
FROM user_attributes AS attribute
WHERE attribute.is_current;

-- Every version of every answer: what the warehouse knew, and from when until when.
-- One row: one version of one answer; key (response_group_uid, question_id, version).
-- Left out: the time in which an answer had vanished, records that were never current because they lost a collision, and people who were erased.
-- Times are UTC, and are the starts of the scans that saw the changes.
-- An answer that only gained optional columns has no new version.
-- A deleted answer has a version for the time in which it is deleted.
-- responses_as_of has the versions of one moment.
CREATE OR REPLACE VIEW "response_versions" AS
WITH marked AS (
    -- Earlier versions of the program wrote a version for the time in which a row had vanished: it begins when the version before vanished.
    SELECT
        * REPLACE (
            CASE
                WHEN reason <> 'vanished' THEN NULL
                WHEN returned_at IS NULL AND lead(valid_from) OVER ended = valid_to THEN lead(valid_to) OVER ended
                ELSE returned_at
            END AS returned_at
        ),
        coalesce(
            lag(reason) OVER ended = 'vanished' AND lag(returned_at) OVER ended IS NULL AND lag(valid_to) OVER ended = valid_from, false
        ) AS is_gap
    FROM response_history
    -- A record that lost a collision has a version if it was current before.
    WHERE reason <> 'collision' OR valid_from < valid_to
    WINDOW ended AS (PARTITION BY response_group_uid, question_id ORDER BY valid_to, valid_from, _row_hash)
),
ended AS (
    SELECT * FROM marked WHERE NOT is_gap
),
last_ended AS (
    SELECT
        response_group_uid, question_id, count(*) AS versions, max(valid_to) AS valid_to,
        arg_max(reason, (valid_to, valid_from, _row_hash)) AS reason,
        arg_max({'at': returned_at}, (valid_to, valid_from, _row_hash)).at AS returned_at,
        arg_max({'at': deleted_at}, (valid_to, valid_from, _row_hash)).at AS deleted_at,
        arg_max({'id': survey_id}, (valid_to, valid_from, _row_hash)).id AS survey_id
    FROM ended
    GROUP BY response_group_uid, question_id
),
first_seen AS (
    SELECT today.response_group_uid, today.question_id, min(today._first_seen_at) AS seen_at
    FROM responses AS today
    SEMI JOIN last_ended AS had
        ON had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    GROUP BY today.response_group_uid, today.question_id
),
earlier AS (
    SELECT
        was.*, row_number() OVER ended AS version, lag(was.valid_to) OVER ended AS ended_before,
        lag(was.reason) OVER ended AS reason_before, lag(was.returned_at) OVER ended AS returned_before,
        lag(was.deleted_at) OVER ended AS deleted_before, lag(was.survey_id) OVER ended AS survey_before, found.seen_at
    FROM ended AS was
    LEFT JOIN first_seen AS found
        ON found.response_group_uid = was.response_group_uid AND found.question_id = was.question_id
    WINDOW ended AS (PARTITION BY was.response_group_uid, was.question_id ORDER BY was.valid_to, was.valid_from, was._row_hash)
),
latest AS (
    SELECT
        today.*, coalesce(had.versions, 0) + 1 AS version, today._vanished_at AS valid_to, had.valid_to AS ended_before,
        had.reason AS reason_before, had.returned_at AS returned_before, had.deleted_at AS deleted_before,
        had.survey_id AS survey_before, today._first_seen_at AS seen_at, today._synced_at AS valid_from,
        CASE WHEN today._vanished_at IS NOT NULL THEN 'vanished' END AS reason
    FROM responses AS today
    LEFT JOIN last_ended AS had
        ON had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    -- The last version of an answer that has vanished is in the history.
    WHERE today._vanished_at IS NULL OR had.valid_to IS NULL OR had.valid_to < today._vanished_at
),
versions AS (
    SELECT * EXCLUDE (is_gap, returned_at) FROM earlier
    UNION ALL BY NAME
    SELECT * EXCLUDE (_first_seen_at, _vanished_at, _flags) FROM latest
)
SELECT
    response_group_uid, question_id, survey_id, visitor_id, visitor_uuid,
    nullif(external_user_id, '') AS external_user_id, nullif(partner_anonymous_id, '') AS partner_anonymous_id,
    question_type, question_text, created_at, updated_at, answer_text, answer_number, answer_bool, answer_json, is_skipped,
    selected_indexes, url, meta_browser, meta_os, meta_language, meta_href, meta_user_agent, meta_client_width,
    meta_client_height, meta_screen_width, meta_screen_height, meta_extra, custom_metadata, extra, deleted_at, version,
    CASE
        WHEN ended_before IS NULL THEN least(seen_at, valid_from)
        WHEN reason_before = 'vanished' THEN coalesce(returned_before, greatest(ended_before, valid_from))
        ELSE ended_before
    END AS valid_from,
    valid_to,
    CASE
        WHEN ended_before IS NULL THEN 'new'
        WHEN deleted_at IS NOT NULL AND deleted_before IS NULL THEN 'deleted'
        WHEN reason_before = 'vanished' OR (deleted_at IS NULL AND deleted_before IS NOT NULL) THEN 'returned'
        WHEN survey_id IS DISTINCT FROM survey_before THEN 'moved'
        ELSE 'edited'
    END AS begun_by,
    CASE WHEN reason = 'collision' THEN 'edited' ELSE reason END AS ended_by, survey_before
FROM versions;

-- Every version of every theme on an answer: what the warehouse knew, and from when until when.
-- One row: one version of one theme on one answer; key (id, response_group_uid, question_id, version).
-- Left out: the time in which a theme had vanished, and people who were erased.
-- Whether the answer was deleted or had vanished does not matter.
-- Times are UTC, and are the starts of the scans that saw the changes.
-- themes_as_of has the versions of one moment.
CREATE OR REPLACE VIEW "theme_versions" AS
WITH marked AS (
    -- Earlier versions of the program wrote a version for the time in which a row had vanished: it begins when the version before vanished.
    SELECT
        * REPLACE (
            CASE
                WHEN reason <> 'vanished' THEN NULL
                WHEN returned_at IS NULL AND lead(valid_from) OVER ended = valid_to THEN lead(valid_to) OVER ended
                ELSE returned_at
            END AS returned_at
        ),
        coalesce(
            lag(reason) OVER ended = 'vanished' AND lag(returned_at) OVER ended IS NULL AND lag(valid_to) OVER ended = valid_from, false
        ) AS is_gap
    FROM theme_history
    WINDOW ended AS (PARTITION BY id, response_group_uid, question_id ORDER BY valid_to, valid_from, _row_hash)
),
ended AS (
    SELECT * FROM marked WHERE NOT is_gap
),
last_ended AS (
    SELECT
        id, response_group_uid, question_id, count(*) AS versions, max(valid_to) AS valid_to,
        arg_max(reason, (valid_to, valid_from, _row_hash)) AS reason,
        arg_max({'at': returned_at}, (valid_to, valid_from, _row_hash)).at AS returned_at,
        arg_max({'id': survey_id}, (valid_to, valid_from, _row_hash)).id AS survey_id
    FROM ended
    GROUP BY id, response_group_uid, question_id
),
first_seen AS (
    SELECT today.id, today.response_group_uid, today.question_id, min(today._first_seen_at) AS seen_at
    FROM themes AS today
    SEMI JOIN last_ended AS had
        ON had.id = today.id AND had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    GROUP BY today.id, today.response_group_uid, today.question_id
),
earlier AS (
    SELECT
        was.*, row_number() OVER ended AS version, lag(was.valid_to) OVER ended AS ended_before,
        lag(was.reason) OVER ended AS reason_before, lag(was.returned_at) OVER ended AS returned_before,
        lag(was.survey_id) OVER ended AS survey_before, found.seen_at
    FROM ended AS was
    LEFT JOIN first_seen AS found
        ON found.id = was.id AND found.response_group_uid = was.response_group_uid AND found.question_id = was.question_id
    WINDOW ended AS (
        PARTITION BY was.id, was.response_group_uid, was.question_id ORDER BY was.valid_to, was.valid_from, was._row_hash
    )
),
latest AS (
    SELECT
        today.*, coalesce(had.versions, 0) + 1 AS version, today._vanished_at AS valid_to, had.valid_to AS ended_before,
        had.reason AS reason_before, had.returned_at AS returned_before, had.survey_id AS survey_before,
        today._first_seen_at AS seen_at, today._synced_at AS valid_from,
        CASE WHEN today._vanished_at IS NOT NULL THEN 'vanished' END AS reason
    FROM themes AS today
    LEFT JOIN last_ended AS had
        ON had.id = today.id AND had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    -- The last version of a theme that has vanished is in the history.
    WHERE today._vanished_at IS NULL OR had.valid_to IS NULL OR had.valid_to < today._vanished_at
),
versions AS (
    SELECT * EXCLUDE (is_gap, returned_at) FROM earlier
    UNION ALL BY NAME
    SELECT * EXCLUDE (_first_seen_at, _vanished_at) FROM latest
)
SELECT
    id, response_group_uid, question_id, survey_id, visitor_id, created_at AS found_at, theme, theme_description, response,
    version,
    CASE
        WHEN ended_before IS NULL THEN least(seen_at, valid_from)
        WHEN reason_before = 'vanished' THEN coalesce(returned_before, greatest(ended_before, valid_from))
        ELSE ended_before
    END AS valid_from,
    valid_to,
    CASE
        WHEN ended_before IS NULL THEN 'new'
        WHEN reason_before = 'vanished' THEN 'returned'
        WHEN survey_id IS DISTINCT FROM survey_before THEN 'moved'
        ELSE 'edited'
    END AS begun_by,
    reason AS ended_by, survey_before
FROM versions;

-- The questions of the current definition of every survey.
-- One row: one question of one survey.
-- A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- A survey that vanished keeps its last definition.
CREATE OR REPLACE VIEW "current_questions" AS
SELECT
    survey_id, question_id, min(question_ordinal) AS question_ordinal,
    arg_min(question_type, question_ordinal) AS question_type,
    arg_min(question_text, question_ordinal) AS question_text,
    arg_min(left_label, question_ordinal) AS left_label,
    arg_min(right_label, question_ordinal) AS right_label
FROM survey_questions
WHERE question_id IS NOT NULL
GROUP BY survey_id, question_id;

-- The questions of the current definition of every survey, with the scale that the definition gives a LIKERT question.
-- One row: one question of one survey.
-- A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- The scale is that of the last version: see question_scales.
CREATE OR REPLACE VIEW "questions" AS
WITH last_versions AS (
    SELECT survey_id, question_id, max(version) AS version FROM question_versions GROUP BY survey_id, question_id
)
SELECT
    question.survey_id, question.question_id, survey.name AS survey_name, question.question_ordinal,
    question.question_type, question.question_text, question.left_label, question.right_label,
    scale.scale_min, scale.scale_max, scale.scale_source
FROM current_questions AS question
LEFT JOIN surveys AS survey ON survey.id = question.survey_id
LEFT JOIN last_versions
    ON last_versions.survey_id = question.survey_id AND last_versions.question_id = question.question_id
LEFT JOIN question_scales AS scale
    ON scale.survey_id = question.survey_id AND scale.question_id = question.question_id
    AND scale.version = last_versions.version;

-- The sessions in which visitors answered surveys.
-- One row: one session of one survey; key (survey_id, response_group_uid).
-- Left out: answers that are deleted or have vanished at the service, and sessions that have no other answers.
-- Where the answers of a session disagree about the visitor, the greatest value is used.
-- Times are UTC.
CREATE OR REPLACE VIEW "sessions" AS
SELECT
    survey_id, response_group_uid,
    max(visitor_id) AS visitor_id,
    max(visitor_uuid) AS visitor_uuid,
    max(external_user_id) AS external_user_id,
    min(created_at) AS started_at,
    max(created_at) AS ended_at,
    (epoch_us(max(created_at)) - epoch_us(min(created_at))) / 1e6 AS duration_secs,
    count(*) AS questions,
    count(*) FILTER (NOT is_skipped AND question_type IS DISTINCT FROM 'TEXTURLPROMPT') AS answered,
    count(*) FILTER (is_skipped) AS skipped
FROM current_responses
GROUP BY survey_id, response_group_uid;

-- The NPS answers that count: what the views nps_by_* add up. Start here for a breakdown of your own.
-- One row: one answer to a question of type NPS; key (response_group_uid, question_id).
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Days, weeks and months are those of the report time zone, UTC by default; a week begins on Monday (ISO).
CREATE OR REPLACE VIEW "nps_answers" AS
WITH timed AS (
    SELECT *, created_at AS local_at
    FROM current_responses
    WHERE question_type = 'NPS' AND answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
)
SELECT
    response_group_uid, question_id, survey_id,
    coalesce(visitor_id::VARCHAR, visitor_uuid, response_group_uid) AS visitor_key,
    question_text, created_at,
    local_at::DATE AS day,
    date_trunc('week', local_at)::DATE AS week,
    date_trunc('month', local_at)::DATE AS month,
    answer_number AS score
FROM timed;

-- NPS by day, over all surveys.
-- One row: one day.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_day" AS
WITH tallied AS (
    SELECT
        day, score, count(*) AS answers
    FROM nps_answers
    GROUP BY day, score
),
counted AS (
    SELECT
        day, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY day
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    day, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by day, over all surveys; each visitor counts once.
-- One row: one day.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a day: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_day_latest" AS
WITH tallied AS (
    SELECT
        day, score, count(*) AS answers
    FROM (
        SELECT
            day, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY day, visitor_key
    )
    GROUP BY day, score
),
counted AS (
    SELECT
        day, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY day
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    day, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by day, for each question.
-- One row: one day of one question of one survey.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_day_per_question" AS
WITH tallied AS (
    SELECT day, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM nps_answers
    GROUP BY day, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        day, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY day, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY day IS NOT NULL
)
SELECT
    scored.day, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
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
CREATE OR REPLACE VIEW "nps_by_day_per_question_latest" AS
WITH tallied AS (
    SELECT day, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM (
        SELECT
            day, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY day, survey_id, question_id, visitor_key
    )
    GROUP BY day, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        day, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY day, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY day IS NOT NULL
)
SELECT
    scored.day, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by week, over all surveys.
-- One row: one week.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_week" AS
WITH tallied AS (
    SELECT
        week, score, count(*) AS answers
    FROM nps_answers
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
FROM scored;

-- NPS by week, over all surveys; each visitor counts once.
-- One row: one week.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a week: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_week_latest" AS
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
FROM scored;

-- NPS by week, for each question.
-- One row: one week of one question of one survey.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_week_per_question" AS
WITH tallied AS (
    SELECT week, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM nps_answers
    GROUP BY week, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        week, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY week, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY week IS NOT NULL
)
SELECT
    scored.week, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
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
CREATE OR REPLACE VIEW "nps_by_week_per_question_latest" AS
WITH tallied AS (
    SELECT week, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM (
        SELECT
            week, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY week, survey_id, question_id, visitor_key
    )
    GROUP BY week, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        week, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY week, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY week IS NOT NULL
)
SELECT
    scored.week, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by month, over all surveys.
-- One row: one month.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_month" AS
WITH tallied AS (
    SELECT
        month, score, count(*) AS answers
    FROM nps_answers
    GROUP BY month, score
),
counted AS (
    SELECT
        month, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY month
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    month, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by month, over all surveys; each visitor counts once.
-- One row: one month.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a month: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_month_latest" AS
WITH tallied AS (
    SELECT
        month, score, count(*) AS answers
    FROM (
        SELECT
            month, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY month, visitor_key
    )
    GROUP BY month, score
),
counted AS (
    SELECT
        month, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY month
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    month, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by month, for each question.
-- One row: one month of one question of one survey.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW "nps_by_month_per_question" AS
WITH tallied AS (
    SELECT month, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM nps_answers
    GROUP BY month, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        month, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY month, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY month IS NOT NULL
)
SELECT
    scored.month, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
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
CREATE OR REPLACE VIEW "nps_by_month_per_question_latest" AS
WITH tallied AS (
    SELECT month, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM (
        SELECT
            month, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY month, survey_id, question_id, visitor_key
    )
    GROUP BY month, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        month, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY month, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY month IS NOT NULL
)
SELECT
    scored.month, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS of each question over all its answers, with the shares of promoters, passives and detractors.
-- One row: one question of one survey.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error as in nps_by_week.
CREATE OR REPLACE VIEW "nps_per_question" AS
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
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- The values with which LIKERT questions were answered, each against the scale of the version that the answers were given to.
-- One row: one value of one version of one question of one survey.
-- Values that nobody chose have no row.
-- Left out: skipped answers, values that are not whole, answers that are deleted or have vanished.
-- Which version an answer was given to: answer_versions.
-- Scales of definitions: question_scales.
-- A version without a scale has that of the answers: the shortest usual scale that includes all integers from 0 to 10 with which such versions of the question were answered.
-- Usual are 1 to 5, 7 and 10, and 0 to 4, 6 and 10.
CREATE OR REPLACE VIEW "likert_values" AS
WITH counted AS (
    SELECT
        survey_id, question_id, version, is_skipped, try_cast(answer_number AS BIGINT) AS value, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown,
        any_value(scale_min) AS scale_min, any_value(scale_max) AS scale_max, any_value(scale_source) AS scale_source,
        any_value(not_rated_values) AS not_rated_values
    FROM answer_versions
    WHERE question_type = 'LIKERT' AND (answer_number IS NULL OR answer_number = floor(answer_number))
    GROUP BY survey_id, question_id, version, is_skipped, value
),
defined AS (
    SELECT
        *, min(value) FILTER (scale_source IS NULL AND value BETWEEN 0 AND 10) OVER question AS lowest,
        max(value) FILTER (scale_source IS NULL AND value BETWEEN 0 AND 10) OVER question AS highest,
        max(shown) OVER question AS last_shown
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
usual AS (
    SELECT
        *, CASE WHEN lowest = 0 THEN 0 ELSE 1 END AS usual_min,
        CASE WHEN highest <= usual_min + 4 THEN usual_min + 4 WHEN highest <= usual_min + 6 THEN usual_min + 6 ELSE 10 END AS usual_max
    FROM defined
),
scaled AS (
    SELECT
        survey_id, question_id, version, value, answers, last_shown, not_rated_values,
        CASE WHEN scale_source IS NULL AND highest IS NOT NULL THEN usual_min ELSE scale_min END AS scale_min,
        CASE WHEN scale_source IS NULL AND highest IS NOT NULL THEN usual_max ELSE scale_max END AS scale_max,
        CASE
            WHEN scale_source IS NOT NULL THEN scale_source
            WHEN lowest = usual_min AND highest = usual_max THEN 'observed'
            WHEN highest IS NOT NULL THEN 'usual'
        END AS scale_source
    FROM usual
    WHERE NOT is_skipped
)
SELECT
    survey_id, question_id, version, value, answers,
    CASE
        WHEN value BETWEEN scale_min AND scale_max THEN 'point'
        WHEN value IS NULL OR list_contains(not_rated_values, value) THEN 'not rated'
        ELSE 'outside'
    END AS kind,
    scale_min, scale_max, scale_source, last_shown.text AS last_question_text
FROM scaled;

-- The distribution of the answers to every LIKERT question.
-- One row: one value of one question of one survey.
-- Values that nobody chose have no row.
-- Left out: skipped answers, values that are not whole, outside the scale or not rated (see likert_values), answers that are deleted or have vanished.
-- Each answer is held against the scale of the version that it was given to (see answer_versions).
-- If versions have different scales, their answers are in one distribution, and the columns show the scale of the last version: see likert_values for each version.
CREATE OR REPLACE VIEW "likert_distribution" AS
WITH counted AS (
    SELECT
        survey_id, question_id, CASE WHEN kind = 'point' THEN value END AS value,
        (sum(answers) FILTER (kind = 'point'))::BIGINT AS answers,
        (sum(answers) FILTER (kind = 'not rated'))::BIGINT AS not_rated,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max, 'source': scale_source})
            FILTER (kind = 'point') AS scale,
        max(last_question_text) AS last_text
    FROM likert_values
    GROUP BY ALL
),
shared AS (
    SELECT
        survey_id, question_id, value, answers, answers / sum(answers) OVER question AS share,
        (coalesce(sum(not_rated) OVER question, 0))::BIGINT AS not_rated,
        max(scale) OVER question AS last_scale, max(last_text) OVER question AS last_text
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY value IS NOT NULL
)
SELECT
    shared.survey_id, shared.question_id, survey.name AS survey_name,
    coalesce(question.question_text, last_text) AS question_text,
    value, answers, share, last_scale.min AS scale_min, last_scale.max AS scale_max, last_scale.source AS scale_source, not_rated
FROM shared
LEFT JOIN surveys AS survey ON survey.id = shared.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = shared.survey_id AND question.question_id = shared.question_id;

-- Top-two box and mean of every LIKERT question, against its own scale.
-- One row: one question of one survey that has an answer within its scale.
-- Left out: skipped answers, values that are not whole, outside the scale or not rated (see likert_values), answers that are deleted or have vanished.
-- Each answer is held against the scale of the version that it was given to (see answer_versions).
-- If versions have different scales, the boxes are those of each answer's own scale, and the columns show the scale of the last version: see likert_values for each version.
CREATE OR REPLACE VIEW "likert_top_two" AS
WITH counted AS (
    SELECT
        survey_id, question_id,
        coalesce(sum(answers) FILTER (kind = 'point'), 0)::BIGINT AS answers,
        coalesce(sum(answers) FILTER (kind = 'not rated'), 0)::BIGINT AS not_rated,
        sum(value * answers) FILTER (kind = 'point')::DOUBLE AS total,
        (sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2))::BIGINT AS boxed,
        coalesce(sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2 AND value >= scale_max - 1), 0)::BIGINT AS top,
        coalesce(sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2 AND value <= scale_min + 1), 0)::BIGINT AS bottom,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max, 'source': scale_source})
            FILTER (kind = 'point') AS scale,
        max(last_question_text) AS last_text
    FROM likert_values
    GROUP BY survey_id, question_id
    HAVING count(*) FILTER (kind = 'point') > 0
)
SELECT
    counted.survey_id, counted.question_id, survey.name AS survey_name,
    coalesce(question.question_text, last_text) AS question_text,
    answers, total / answers AS mean,
    CASE WHEN boxed > 0 THEN top END AS top_two, top / boxed AS top_two_share,
    CASE WHEN boxed > 0 THEN bottom END AS bottom_two, bottom / boxed AS bottom_two_share,
    scale.min AS scale_min, scale.max AS scale_max, scale.source AS scale_source, boxed, not_rated
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id;

-- Which options were chosen, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT).
-- One row: one option of one question of one survey.
-- Options that nobody chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished.
-- An option that one answer names twice counts once.
-- An option that was renamed has a row for each of its wordings.
-- The shares of a MULTIPLESELECT question add up to more than 1: each is a share of all who answered the question.
CREATE OR REPLACE VIEW "choice_share" AS
WITH counted AS (
    SELECT
        survey_id, question_id, label, CASE WHEN label IS NULL THEN selected_index END AS selected_index,
        count(DISTINCT response_group_uid) AS chosen, NULL::BIGINT AS answered, NULL AS shown_answer
    FROM current_choices
    GROUP BY ALL
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, count(*) FILTER (NOT is_skipped),
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
    GROUP BY survey_id, question_id
),
based AS (
    SELECT
        survey_id, question_id, label, selected_index, chosen, max(answered) OVER question AS answered,
        max(shown_answer) OVER question AS shown_answer
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY chosen IS NOT NULL
)
SELECT
    based.survey_id, based.question_id, survey.name AS survey_name,
    coalesce(question.question_text, based.shown_answer.text) AS question_text,
    based.label, based.selected_index, based.chosen, based.answered,
    based.chosen / based.answered AS share
FROM based
LEFT JOIN surveys AS survey ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = based.survey_id AND question.question_id = based.question_id;

-- NPS, top-two box and choice shares of every question, one figure a row: what figure_changes compares.
-- One row: one figure of one question of one survey; of choice shares, one option.
-- Options that nobody chose have no row.
-- Left out: questions without an answer that counts, answers that are deleted or have vanished.
-- The figures are those of nps_answers, likert_top_two and choice_share.
CREATE OR REPLACE VIEW "figures" AS
WITH scores AS (
    SELECT survey_id, question_id, count(*) AS answers, sum(worth) AS total, sum(worth * worth) AS squares
    FROM (SELECT *, CASE WHEN score >= 9 THEN 100 WHEN score >= 7 THEN 0 ELSE -100 END AS worth FROM nps_answers)
    GROUP BY survey_id, question_id
),
shares AS (
    SELECT
        survey_id, question_id, 'top_two_share' AS figure, NULL AS label, NULL AS selected_index, boxed AS answers,
        top_two_share AS value
    FROM likert_top_two
    WHERE boxed > 0
    UNION ALL
    SELECT survey_id, question_id, 'choice_share', label, selected_index, answered, share FROM choice_share
)
SELECT
    survey_id, question_id, 'nps' AS figure, NULL::VARCHAR AS label, NULL::BIGINT AS selected_index, answers,
    total / answers AS value,
    CASE WHEN answers > 1 THEN
        sqrt(greatest(squares - total::DOUBLE ** 2 / answers, 0) / (answers - 1) / answers) END AS standard_error
FROM scores
UNION ALL
SELECT
    survey_id, question_id, figure, label, selected_index, answers, value,
    CASE WHEN answers > 1 THEN sqrt(value * (1 - value) / answers) END
FROM shares;

-- How the rows of matrix questions were answered (MATRIX).
-- One row: one column chosen in one row of one question of one survey.
-- Columns that nobody chose have no row.
-- Left out: rows that were skipped, answers that are deleted or have vanished.
CREATE OR REPLACE VIEW "matrix_distribution" AS
WITH counted AS (
    SELECT
        survey_id, question_id, row_label, column_label, max(column_number) AS column_number, count(*) AS answers,
        NULL AS shown_answer
    FROM current_matrix_cells
    WHERE column_label IS NOT NULL
    GROUP BY survey_id, question_id, row_label, column_label
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'MATRIX'
    GROUP BY survey_id, question_id
),
based AS (
    SELECT
        * EXCLUDE (shown_answer), (sum(answers) OVER (PARTITION BY survey_id, question_id, row_label))::BIGINT AS answered,
        max(shown_answer) OVER (PARTITION BY survey_id, question_id) AS shown_answer
    FROM counted
    QUALIFY answers IS NOT NULL
)
SELECT
    based.survey_id, based.question_id, survey.name AS survey_name,
    coalesce(question.question_text, based.shown_answer.text) AS question_text,
    based.row_label, based.column_label, based.column_number,
    based.answers, based.answered, based.answers / based.answered AS share
FROM based
LEFT JOIN surveys AS survey ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = based.survey_id AND question.question_id = based.question_id;

-- How options were ranked (RANKORDER).
-- One row: one option of one question of one survey that was ranked at least once.
-- Left out: options that an answer did not rank, ranks outside 1 to the number of its options, answers that are deleted or have vanished.
CREATE OR REPLACE VIEW "rank_summary" AS
WITH sized AS (
    SELECT *, count(*) OVER (PARTITION BY survey_id, question_id, response_group_uid) AS options FROM current_ranks
),
-- Integers are summed first: the last digits of a sum of fractions would depend on the order of the rows.
counted AS (
    SELECT
        survey_id, question_id, option_label, options, count(*) AS answers, sum(rank)::BIGINT AS ranks,
        count(*) FILTER (rank = 1) AS first_places,
        sum(options - rank)::BIGINT AS points
    FROM sized
    WHERE rank BETWEEN 1 AND options
    GROUP BY survey_id, question_id, option_label, options
),
summed AS (
    SELECT
        survey_id, question_id, option_label, sum(answers)::BIGINT AS answers,
        sum(ranks)::BIGINT / sum(answers)::BIGINT AS mean_rank,
        sum(first_places)::BIGINT AS first_places,
        sum(points)::BIGINT AS borda_points,
        sum(points / (options - 1) ORDER BY options) FILTER (options > 1)
            / sum(answers) FILTER (options > 1) AS borda_score,
        NULL AS shown_answer
    FROM counted
    GROUP BY survey_id, question_id, option_label
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'RANKORDER'
    GROUP BY survey_id, question_id
),
named AS (
    SELECT
        * EXCLUDE (shown_answer), max(shown_answer) OVER (PARTITION BY survey_id, question_id) AS shown_answer
    FROM summed
    QUALIFY answers IS NOT NULL
)
SELECT
    named.survey_id, named.question_id, survey.name AS survey_name,
    coalesce(question.question_text, named.shown_answer.text) AS question_text, named.option_label,
    answers, mean_rank, first_places, first_places / answers AS first_place_share, borda_points, borda_score
FROM named
LEFT JOIN surveys AS survey ON survey.id = named.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = named.survey_id AND question.question_id = named.question_id;

-- Best-worst scores (MAXDIFF).
-- One row: one item of one question of one survey that was shown at least once.
-- Left out: rounds in which nothing was chosen, answers that are deleted or have vanished.
-- The service sends left and right.
-- Which is best and which is worst is read off the two labels of the version that the answer was given to (see answer_versions): one must speak of most, best, highest or top and the other of least, worst, lowest or bottom, and neither of anything contrary (not, never, dis..., un..., hate, annoy..., bad).
-- Answers to other versions are not in best, worst and score, which are NULL if there are no others.
CREATE OR REPLACE VIEW "maxdiff_scores" AS
WITH counted AS (
    SELECT
        answer.survey_id, answer.question_id, answer.version, item.option AS item, count(*) AS shown,
        count(*) FILTER (item.selected = 'left') AS chosen_left,
        count(*) FILTER (item.selected = 'right') AS chosen_right
    FROM response_maxdiff_items AS item
    JOIN answer_versions AS answer
        ON answer.response_group_uid = item.response_group_uid AND answer.question_id = item.question_id
            AND answer.question_type = 'MAXDIFF'
    SEMI JOIN (SELECT response_group_uid, question_id, round FROM response_maxdiff_items WHERE selected IS NOT NULL) AS chosen
        ON chosen.response_group_uid = item.response_group_uid AND chosen.question_id = item.question_id
            AND chosen.round = item.round
    GROUP BY ALL
),
spoken AS (
    SELECT
        survey_id, question_id, version, left_label, right_label,
        regexp_matches(left_label, '(?i)\b(most|best|highest|top)\b') AS left_best,
        regexp_matches(left_label, '(?i)\b(least|worst|lowest|bottom)\b') AS left_worst,
        regexp_matches(right_label, '(?i)\b(most|best|highest|top)\b') AS right_best,
        regexp_matches(right_label, '(?i)\b(least|worst|lowest|bottom)\b') AS right_worst,
        regexp_matches(left_label || ' ' || right_label, '(?i)\b(not|never|(dis|un)[a-z]{3,}|hate|annoy[a-z]*|bad)\b')
            AS is_contrary
    FROM question_versions
),
told AS (
    SELECT
        *, CASE
            WHEN is_contrary THEN NULL
            WHEN left_best AND right_worst AND NOT left_worst AND NOT right_best THEN 'left'
            WHEN right_best AND left_worst AND NOT right_worst AND NOT left_best THEN 'right'
        END AS best_side
    FROM spoken
),
summed AS (
    SELECT
        counted.survey_id, counted.question_id, counted.item, sum(shown)::BIGINT AS shown,
        sum(chosen_left)::BIGINT AS chosen_left, sum(chosen_right)::BIGINT AS chosen_right,
        max({'version': coalesce(counted.version, 0), 'left': told.left_label, 'right': told.right_label}) AS labels,
        (sum(shown) FILTER (best_side IS NOT NULL))::BIGINT AS scored,
        (sum(CASE best_side WHEN 'left' THEN chosen_left WHEN 'right' THEN chosen_right END))::BIGINT AS best,
        (sum(CASE best_side WHEN 'left' THEN chosen_right WHEN 'right' THEN chosen_left END))::BIGINT AS worst,
        NULL AS shown_answer
    FROM counted
    LEFT JOIN told
        ON told.survey_id = counted.survey_id AND told.question_id = counted.question_id AND told.version = counted.version
    GROUP BY counted.survey_id, counted.question_id, counted.item
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'MAXDIFF'
    GROUP BY survey_id, question_id
),
named AS (
    SELECT
        * EXCLUDE (labels, shown_answer), max(labels) OVER question AS labels, max(shown_answer) OVER question AS shown_answer
    FROM summed
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY shown IS NOT NULL
)
SELECT
    named.survey_id, named.question_id, survey.name AS survey_name,
    coalesce(question.question_text, named.shown_answer.text) AS question_text, item, shown, chosen_left, chosen_right,
    labels.left AS left_label, labels.right AS right_label, best, worst, (best - worst) / scored AS score
FROM named
LEFT JOIN surveys AS survey ON survey.id = named.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = named.survey_id AND question.question_id = named.question_id;

-- Themes of answers, by week of the answer.
-- One row: one theme in one survey in one week.
-- Left out: themes that have vanished, and those of answers that are deleted or have vanished.
-- answers of several weeks, or of several surveys, may be added up; themed_answers of several themes may not.
CREATE OR REPLACE VIEW "theme_trend" AS
WITH dated AS (
    SELECT
        date_trunc('week', answered_at)::DATE AS week, survey_id, theme, (response_group_uid, question_id) AS answer
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
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- How far visitors get in a survey: question by question, how many of its sessions were shown it and answered it.
-- One row: one question of one survey that was shown at least once.
-- Order by question_ordinal.
-- Left out: answers that are deleted or have vanished at the service.
CREATE OR REPLACE VIEW "survey_funnel" AS
WITH counted AS (
    SELECT
        survey_id, question_id, count(*) AS shown,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer,
        NULL::BIGINT AS sessions
    FROM current_responses
    GROUP BY survey_id, question_id
    UNION ALL
    SELECT survey_id, NULL, NULL, NULL, NULL, NULL, count(DISTINCT response_group_uid)
    FROM current_responses
    GROUP BY survey_id
),
shown AS (
    SELECT * EXCLUDE (sessions), max(sessions) OVER (PARTITION BY survey_id) AS sessions
    FROM counted
    QUALIFY question_id IS NOT NULL
)
SELECT
    shown.survey_id, survey.name AS survey_name, question.question_ordinal, shown.question_id,
    coalesce(question.question_text, shown.shown_answer.text) AS question_text,
    shown.sessions, shown.shown, shown.answered, shown.skipped,
    shown.shown / shown.sessions AS shown_share,
    shown.answered / shown.sessions AS answered_share
FROM shown
LEFT JOIN surveys AS survey ON survey.id = shown.survey_id
LEFT JOIN current_questions AS question ON question.survey_id = shown.survey_id AND question.question_id = shown.question_id;

-- Answers, sessions and visitors by day and survey.
-- One row: one survey on one day on which it was answered.
-- Left out: answers that are deleted or have vanished at the service.
-- A session that lasts past midnight is counted on both days, a visitor on every day: only answers may be added up.
CREATE OR REPLACE VIEW "daily_breakdown" AS
WITH counted AS (
    SELECT
        created_at::DATE AS day, survey_id,
        count(DISTINCT response_group_uid) AS sessions,
        count(DISTINCT visitor_id) AS visitors,
        count(*) AS answers,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped
    FROM current_responses
    GROUP BY day, survey_id
)
SELECT day, counted.survey_id, survey.name AS survey_name, sessions, visitors, answers, answered, skipped
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- Which questions are skipped, and how the service sends skips.
-- One row: one question of one survey that was shown at least once.
-- Left out: texts that ask nothing (TEXTURLPROMPT), answers that are deleted or have vanished at the service.
-- A question that a session never reached has no answer at all, and is not a skip: see survey_funnel.
CREATE OR REPLACE VIEW "skips" AS
WITH counted AS (
    SELECT
        survey_id, question_id, max(question_type) AS question_type,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer,
        count(*) AS shown,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped,
        count(*) FILTER (is_skipped AND answer_json = 'null') AS sent_null,
        count(*) FILTER (is_skipped AND answer_json <> 'null') AS sent_empty,
        count(*) FILTER (is_skipped AND answer_json IS NULL) AS sent_nothing
    FROM current_responses
    WHERE question_type IS DISTINCT FROM 'TEXTURLPROMPT'
    GROUP BY survey_id, question_id
)
SELECT
    counted.survey_id, counted.question_id, survey.name AS survey_name,
    coalesce(question.question_text, counted.shown_answer.text) AS question_text, counted.question_type,
    shown, answered, skipped, skipped / shown AS skipped_share, sent_null, sent_empty, sent_nothing
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id;

-- The answers in people's own words: texts, and what was said in recordings.
-- One row: one answer to an OPEN question, or one transcription; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service; skipped ones are there, and empty.
-- Times are UTC.
-- Nothing here depends on a language.
-- Two texts are the same if they differ only in case (ß is ss) and in the blanks around them.
CREATE OR REPLACE VIEW "open_answers" AS
WITH texts AS (
    SELECT
        answer.response_group_uid, answer.question_id, answer.survey_id, answer.question_text, answer.created_at,
        CASE WHEN answer.question_type = 'OPEN' THEN 'text' ELSE 'transcription' END AS source,
        CASE WHEN answer.question_type = 'OPEN' THEN answer.answer_text ELSE media.transcription END AS answer
    FROM current_responses AS answer
    LEFT JOIN response_media AS media
        ON media.response_group_uid = answer.response_group_uid AND media.question_id = answer.question_id
    WHERE answer.question_type = 'OPEN' OR media.transcription IS NOT NULL
),
measured AS (
    SELECT *, regexp_replace(coalesce(answer, ''), '^[\s\x0b\x{85}\p{Z}]+|[\s\x0b\x{85}\p{Z}]+$', '', 'g') AS trimmed FROM texts
)
SELECT
    response_group_uid, question_id, survey_id, question_text, created_at, source, answer,
    length(trimmed) AS characters,
    trimmed = '' AS is_empty,
    regexp_matches(trimmed, '(?i)https?://|www\.|[^\s@]+@[^\s@]+\.[^\s@]') AS has_link,
    CASE WHEN trimmed <> ''
        THEN count(*) OVER (PARTITION BY survey_id, question_id, source, replace(lower(upper(nfc_normalize(replace(trimmed, chr(0), ' ')))), 'ß', 'ss')) END AS repeats
FROM measured;

-- How long each survey was in each status, and how many questions were answered in that time.
-- One row: one survey in one status, from one change to the next.
-- Order by survey_id, since.
-- Left out: the time before a survey was first seen, and the time in which it had vanished at the service.
-- Times are UTC.
-- The earlier of webhook and scan gives the time of a change.
-- The current status lasts until the time of the last answer that a scan could have read.
CREATE OR REPLACE VIEW "survey_status_timeline" AS
WITH ordered AS (
    SELECT
        survey_id, changed_at AS since, new_status AS status, seen_by,
        lead(changed_at) OVER (PARTITION BY survey_id ORDER BY changed_at, new_status) AS until
    FROM survey_status_changes
),
known AS (
    SELECT max(window_end) AS scanned_until FROM sync_windows WHERE stream = 'responses'
),
ended AS (
    SELECT
        ordered.*, greatest(coalesce(ordered.until, known.scanned_until, ordered.since), ordered.since) AS ends
    FROM ordered CROSS JOIN known
    WHERE ordered.status IS NOT NULL
),
timed AS (
    SELECT
        ended.survey_id, ended.status, ended.since, ended.until, ended.seen_by,
        (epoch_us(ended.ends) - epoch_us(ended.since)) / 86400e6 AS days,
        count(answer.question_id) AS answers
    FROM ended
    LEFT JOIN current_responses AS answer
        ON answer.survey_id = ended.survey_id AND NOT answer.is_skipped
        AND answer.created_at >= ended.since AND answer.created_at < ended.ends
    GROUP BY ended.survey_id, ended.status, ended.since, ended.until, ended.seen_by, ended.ends
)
SELECT
    timed.survey_id, survey.name AS survey_name, timed.status, timed.since, timed.until, timed.seen_by, timed.days,
    timed.answers, CASE WHEN timed.days > 0 THEN timed.answers / timed.days END AS answers_per_day
FROM timed
LEFT JOIN surveys AS survey ON survey.id = timed.survey_id;

-- How far each session went, from sent to completed, from webhooks and scans together.
-- One row: one session; key response_group_uid.
-- Left out: webhooks of other environments, and sessions whose answers are all deleted or have vanished, unless a webhook reports them.
-- Times are UTC.
-- A webhook of a study without a session counts as a session of its own.
-- A UUID in capitals or in braces is the same session as without.
-- Webhooks are sent once and may be lost, and no list shows what was sent or seen: a stage without a time may have been reached.
-- A session was shown the set of questions that was current when it began; or the next one, if it has an answer to a question that only the next one has: the rule of answer_versions.
CREATE OR REPLACE VIEW "session_stages" AS
WITH deliveries AS (
    SELECT
        *, coalesce(occurred_at, received_at) AS told_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, nullif(response_group_uid, ''), 'event ' || event_key) AS session,
        -- Skipped: null, blanks, a list or object that contains only nulls, and a MAXDIFF in which nothing was selected.
        kind = 'answer_submitted' AND (export_question_type IS NOT DISTINCT FROM 'TEXTURLPROMPT' OR NOT CASE
            WHEN response_parsed_json IS NULL
            THEN regexp_full_match(coalesce(response_text, nullif(response_json::VARCHAR, 'null'), ''), '[\s\x0b\x{85}\p{Z}]*')
            WHEN export_question_type = 'MAXDIFF' THEN NOT regexp_matches(response_parsed_json::VARCHAR, '"selected"\s*:\s*[^\sn]')
            ELSE regexp_full_match(
                regexp_replace(response_parsed_json::VARCHAR, '"(?:[^"\\]|\\.)*"\s*:', '', 'g'), '(?:null|[\[\]{},\s])*'
            )
        END) AS is_answer
    FROM webhook_events
    WHERE kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')
),
reported AS (
    SELECT
        session AS response_group_uid,
        max(survey_id) AS survey_id,
        min(told_at) AS begun_at,
        min(told_at) FILTER (kind = 'study_sent') AS sent_at,
        min(told_at) FILTER (kind = 'study_seen') AS seen_at,
        min(told_at) FILTER (is_answer) AS answered_at,
        min(told_at) FILTER (kind = 'study_submitted') AS submitted_at,
        max(triggering_event) FILTER (kind = 'study_sent') AS sent_trigger,
        max(triggering_event) FILTER (kind = 'answer_submitted') AS answer_trigger,
        max(platform) AS platform,
        session IN (SELECT coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) FROM responses) AS is_listed
    FROM deliveries
    GROUP BY session
),
scanned AS (
    SELECT
        response_group_uid, max(survey_id) AS survey_id, min(created_at) AS begun_at,
        min(created_at) FILTER (NOT is_skipped) AS answered_at,
        list(question_id) AS shown_ids, list(created_at) AS shown_at
    FROM current_responses
    GROUP BY response_group_uid
),
sets AS (
    SELECT
        survey_id, set_version, question_ids,
        coalesce(shown_from, TIMESTAMP '0001-01-01 00:00:00') AS begins,
        coalesce(shown_until, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends,
        lead(set_version) OVER survey AS next_version, lead(question_ids) OVER survey AS next_ids,
        [id FOR id IN lead(question_ids) OVER survey IF NOT list_contains(question_ids, id)] AS new_ids
    FROM survey_question_sets
    WINDOW survey AS (PARTITION BY survey_id ORDER BY set_version)
),
joined AS (
    SELECT
        coalesce(scanned.response_group_uid, reported.response_group_uid) AS response_group_uid,
        coalesce(scanned.survey_id, reported.survey_id) AS survey_id,
        least(scanned.begun_at, reported.begun_at) AS begun_at,
        reported.sent_at, reported.seen_at, least(scanned.answered_at, reported.answered_at) AS answered_at, reported.submitted_at,
        scanned.begun_at AS shown_first_at, scanned.shown_ids, scanned.shown_at, reported.platform, reported.sent_trigger, reported.answer_trigger,
        CASE WHEN reported.begun_at IS NULL THEN 'scan' WHEN scanned.begun_at IS NULL AND NOT reported.is_listed THEN 'webhook' ELSE 'both' END
            AS known_by
    FROM scanned
    FULL JOIN reported
        ON reported.response_group_uid = coalesce(TRY_CAST(scanned.response_group_uid AS UUID)::VARCHAR, scanned.response_group_uid)
),
placed AS (
    SELECT
        joined.*,
        CASE WHEN list_has_any(joined.shown_ids, sets.new_ids) THEN sets.next_version ELSE sets.set_version END AS question_set,
        CASE WHEN list_has_any(joined.shown_ids, sets.new_ids) THEN sets.next_ids ELSE sets.question_ids END AS question_ids
    FROM joined
    LEFT JOIN sets
        ON sets.survey_id = joined.survey_id AND joined.begun_at >= sets.begins AND joined.begun_at < sets.ends
)
SELECT
    joined.response_group_uid, joined.survey_id, joined.begun_at, joined.sent_at, joined.seen_at, joined.answered_at,
    joined.submitted_at,
    joined.submitted_at IS NOT NULL OR coalesce(list_contains(joined.shown_ids, joined.question_ids[-1]), false) AS is_completed,
    coalesce(joined.sent_trigger, joined.answer_trigger, snapshot.triggering_event) AS triggering_event,
    coalesce(joined.platform, survey.platform) AS platform,
    -- Of answers at one time, the first by position in the set.
    CASE
        WHEN joined.shown_ids IS NULL THEN joined.question_ids[1]
        ELSE list_min([
            {'place': coalesce(nullif(list_position(joined.question_ids, shown_ids[i]), 0), 2147483647), 'id': shown_ids[i]}
            FOR i IN range(1, len(shown_ids) + 1) IF shown_at[i] = shown_first_at
        ]).id
    END AS first_question_id,
    joined.known_by, joined.question_set
FROM placed AS joined
LEFT JOIN surveys AS survey ON survey.id = joined.survey_id
LEFT JOIN (
    SELECT response_group_uid, max(triggering_event) AS triggering_event FROM visitor_snapshots GROUP BY response_group_uid
) AS snapshot ON snapshot.response_group_uid = joined.response_group_uid;

-- How many of those who were sent a study saw, answered, submitted and completed it.
-- One row: one survey on one day, by trigger, platform and first question.
-- The counts may be added up; make shares anew from the sums.
-- Left out: sessions from before the first webhook of a study or an answer: what was sent then is not known.
-- Without webhooks the view is empty: `studysync serve` receives them.
-- Webhooks are sent once and may be lost: one_source_share is the share that one side alone knows.
-- Sessions that scans have not reached yet are not counted as known by webhooks alone.
CREATE OR REPLACE VIEW "response_rates" AS
WITH known AS (
    SELECT
        (SELECT min(coalesce(occurred_at, received_at)) FROM webhook_events
         WHERE kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')) AS webhooks_since,
        (SELECT max(window_end) FROM sync_windows WHERE stream = 'responses') AS scanned_until
),
counted AS (
    SELECT
        stage.survey_id, stage.begun_at::DATE AS day, stage.triggering_event, stage.platform, stage.first_question_id,
        count(*) AS sessions,
        count(stage.sent_at) AS sent,
        count(stage.seen_at) AS seen,
        count(stage.answered_at) AS answered,
        count(stage.submitted_at) AS submitted,
        count(*) FILTER (stage.is_completed) AS completed,
        count(*) FILTER (stage.sent_at IS NOT NULL AND stage.seen_at IS NOT NULL) AS sent_and_seen,
        count(*) FILTER (stage.sent_at IS NOT NULL AND stage.answered_at IS NOT NULL) AS sent_and_answered,
        count(*) FILTER (stage.known_by = 'webhook' AND stage.answered_at < known.scanned_until) AS only_webhooks,
        count(*) FILTER (stage.known_by = 'scan' AND stage.answered_at IS NOT NULL) AS only_scans,
        any_value(known.webhooks_since) AS webhooks_since
    FROM session_stages AS stage
    JOIN known ON stage.begun_at >= known.webhooks_since
    GROUP BY ALL
)
SELECT
    counted.survey_id, survey.name AS survey_name, counted.day, counted.triggering_event, counted.platform,
    counted.first_question_id, counted.sessions, counted.sent, counted.seen, counted.answered, counted.submitted,
    counted.completed, counted.sent_and_seen, counted.sent_and_answered,
    counted.sent_and_seen / nullif(counted.sent, 0) AS seen_rate,
    counted.sent_and_answered / nullif(counted.sent, 0) AS response_rate,
    counted.completed / nullif(counted.answered, 0) AS completion_rate,
    counted.only_webhooks, counted.only_scans,
    (counted.only_webhooks + counted.only_scans) / nullif(counted.answered, 0) AS one_source_share,
    counted.webhooks_since
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- Answers that only one source has: reported by a webhook and found by no scan, or found by a scan and reported by no webhook.
-- One row: one answer of one session.
-- Order by answered_at.
-- Left out: times that scans have not reached yet, and answers from before the first webhook of an answer.
-- Webhooks are sent once and may be lost, so rows known by a scan alone are normal; rows known by a webhook alone were deleted before a scan came by, or call for a look.
CREATE OR REPLACE VIEW "webhook_mismatches" AS
WITH told AS (
    SELECT DISTINCT
        survey_id, response_group_uid, question_text, coalesce(occurred_at, received_at) AS answered_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) AS session
    FROM webhook_events
    WHERE kind = 'answer_submitted'
),
held AS (
    SELECT
        survey_id, response_group_uid, question_text, question_id, created_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) AS session
    FROM responses
),
span AS (
    SELECT
        (SELECT min(answered_at) FROM told) AS first_told,
        (SELECT max(window_end) FROM sync_windows WHERE stream = 'responses') AS scanned_until
)
SELECT
    'webhook' AS known_by, told.survey_id, told.response_group_uid, told.question_text, NULL::BIGINT AS question_id, told.answered_at
FROM told
CROSS JOIN span
WHERE told.answered_at < span.scanned_until
    AND NOT EXISTS (
        SELECT 1 FROM held
        WHERE held.session = told.session AND held.question_text = told.question_text
    )
UNION ALL
SELECT
    'scan' AS known_by, held.survey_id, held.response_group_uid, held.question_text, held.question_id, held.created_at AS answered_at
FROM held
CROSS JOIN span
WHERE held.created_at >= span.first_told
    AND NOT EXISTS (
        SELECT 1 FROM told
        WHERE held.session = told.session AND held.question_text = told.question_text
    );

-- Keys that several records of the service have had: one record is current, the others are in response_history.
-- One row: one key (response_group_uid, question_id) that ever collided, also if its records are gone by now.
-- Order by last_found_at.
-- Left out: themes with one key; rejects has them, with the reason key_collision.
-- Times are UTC.
CREATE OR REPLACE VIEW "key_collisions" AS
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
    AND winner._vanished_at IS NULL;

-- Why data may be wrong or incomplete: one list of everything that the warehouse knows against itself.
-- One row: one reason for one range of creation time; a reason without a range concerns all times.
-- An empty view means that nothing is known against the data.
-- Left out: how old the data is; see sync_windows.
-- Ranges are of the stream: responses by creation time of the answer.
-- Join it by range and survey; the example questions do.
-- withheld, needs_recheck and clock are as of the last run that changed the warehouse or one of these three; drift as of the last of the newest 200 runs that read the stream.
-- rejects and collisions stay until the warehouse is built again.
-- Times are UTC.
CREATE OR REPLACE VIEW "untrusted" AS
WITH reports AS (
    SELECT run_id, started_at, report
    FROM sync_runs
    WHERE json_valid(report) AND json_exists(report, '$.drift')
    ORDER BY started_at DESC, run_id DESC
    LIMIT 200
),
last_report AS (
    SELECT started_at, report FROM reports ORDER BY started_at DESC, run_id DESC LIMIT 1
),
told AS (
    SELECT
        started_at, unnest(from_json(
            json_extract(report, '$.untrusted'),
            '[{"reason": "VARCHAR", "stream": "VARCHAR", "survey_id": "BIGINT", "range_start": "VARCHAR", "range_end": "VARCHAR", "records": "BIGINT", "detail": "VARCHAR"}]'
        )) AS part
    FROM last_report
),
unsure AS (
    SELECT
        part.reason, part.stream, part.survey_id, try_cast(part.range_start AS TIMESTAMP) AS range_start,
        try_cast(part.range_end AS TIMESTAMP) AS range_end, part.records, started_at AS found_at, part.detail
    FROM told
),
reject AS (
    SELECT
        rejects.stream, rejects.reason, rejects.field, scan.window_start, scan.window_end, rejects._synced_at,
        CASE WHEN json_valid(raw) THEN try_cast(json_extract_string(
            raw, CASE rejects.stream WHEN 'surveys' THEN '$.id' ELSE '$.surveyId' END
        ) AS BIGINT) END AS survey_id,
        CASE WHEN json_valid(raw) AND rejects.stream IN ('responses', 'themes') THEN
            date_trunc('day', try_cast(json_extract_string(raw, '$.createdAt') AS TIMESTAMP)) END AS day
    FROM rejects
    LEFT JOIN sync_windows AS scan ON scan.scan_id = rejects.scan_id AND rejects.stream IN ('responses', 'themes')
),
scanned AS (
    SELECT DISTINCT stream, survey_id, window_start, window_end
    FROM sync_windows
    WHERE stream IN ('responses', 'themes') AND survey_id IS NULL
    UNION
    SELECT own.stream, own.survey_id, scan.window_start, scan.window_end
    FROM (
        SELECT stream, survey_id FROM sync_windows
        WHERE stream IN ('responses', 'themes') AND survey_id IS NOT NULL
        GROUP BY stream, survey_id
        HAVING sum(rows_read) > 0
    ) AS own
    JOIN sync_windows AS scan ON scan.stream = own.stream AND coalesce(scan.survey_id = own.survey_id, true)
),
gaps AS (
    SELECT
        stream, survey_id, window_start AS range_end,
        max(window_end) OVER (
            PARTITION BY stream, survey_id ORDER BY window_start, window_end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS range_start
    FROM scanned
    QUALIFY range_start < range_end
),
reading AS (
    SELECT unnest(json_keys(report, '$.streams')) AS stream, started_at, run_id, report FROM reports
    UNION ALL
    SELECT 'webhooks', started_at, run_id, report FROM reports WHERE json_exists(report, '$.webhook_events')
),
drifted AS (
    SELECT
        stream, started_at, unnest(from_json(
            json_extract(report, '$.drift'),
            '[{"stream": "VARCHAR", "kind": "VARCHAR", "where": "VARCHAR", "records": "BIGINT", "example": "VARCHAR", "fate": "VARCHAR"}]'
        )) AS drift
    FROM (
        SELECT * FROM reading
        QUALIFY row_number() OVER (PARTITION BY stream ORDER BY started_at DESC, run_id DESC) = 1
    )
)
SELECT
    CASE WHEN reason = 'key_collision' THEN 'collisions' ELSE 'rejects' END AS reason, stream, survey_id,
    coalesce(day, window_start) AS range_start, coalesce(day + INTERVAL 1 DAY, window_end) AS range_end,
    count(*) AS records, max(_synced_at) AS found_at,
    CASE WHEN reason = 'key_collision' THEN 'different records have one key: the table rejects has the others'
        ELSE reason || ' ' || field || ': the table rejects has the records' END AS detail
FROM reject
GROUP BY ALL
UNION ALL
SELECT
    'collisions', 'responses', survey_id, date_trunc('day', coalesce(current_created_at, lost_created_at)) AS day,
    day + INTERVAL 1 DAY, sum(lost_records)::BIGINT, max(last_found_at), 'different records have one key: see key_collisions'
FROM key_collisions
GROUP BY survey_id, day
UNION ALL
SELECT reason, stream, survey_id, range_start, range_end, records, found_at, detail FROM unsure
UNION ALL
SELECT 'uncovered', stream, survey_id, range_start, range_end, NULL, NULL, 'no scan has read this range: run studysync sync'
FROM gaps
UNION ALL
SELECT
    'drift', stream, NULL, NULL, NULL, drift.records, started_at,
    replace(drift.kind, '_', ' ') || ' ' || drift."where" || ' (' || drift.example || '): ' || replace(drift.fate, '_', ' ')
FROM drifted
WHERE drift.stream = stream;

-- The answers as the warehouse knew them at a moment: the data of a report that was made then. Called with moment: A moment, UTC.
-- Call it as a table: FROM responses_as_of(TIMESTAMP '2026-04-01 00:00:00').
-- The moment is UTC.
-- One row: one answer that was current at the moment; key (response_group_uid, question_id).
-- Columns as in current_responses.
-- Left out: answers that no scan had found by then, and those that were known to be deleted or to have vanished.
-- The time of the scan counts: an answer given before the moment and first found after it has no row, and people who were erased since have no rows.
-- An answer that only gained optional columns since then shows them.
CREATE OR REPLACE MACRO "responses_as_of"(moment) AS TABLE
SELECT
    response_group_uid, question_id, survey_id, visitor_id, visitor_uuid, external_user_id, partner_anonymous_id,
    question_type, question_text, created_at, updated_at, answer_text, answer_number, answer_bool, answer_json, is_skipped,
    selected_indexes, url, meta_browser, meta_os, meta_language, meta_href, meta_user_agent, meta_client_width,
    meta_client_height, meta_screen_width, meta_screen_height, meta_extra, custom_metadata, extra
FROM response_versions
WHERE deleted_at IS NULL AND valid_from <= moment::TIMESTAMP AND (valid_to IS NULL OR valid_to > moment::TIMESTAMP);

-- The surveys as the warehouse knew them at a moment. Called with moment: A moment, UTC.
-- Call it as a table: FROM surveys_as_of(TIMESTAMP '2026-04-01 00:00:00').
-- The moment is UTC.
-- One row: one survey; key id.
-- Left out: surveys that no scan had found by then, or that had vanished.
CREATE OR REPLACE MACRO "surveys_as_of"(moment) AS TABLE
SELECT
    id, survey_id, name, platform, type, status, created_at, updated_at, launched_at, completed_at,
    total_response_limit, valid_from, valid_to
FROM survey_history
WHERE valid_from <= moment::TIMESTAMP AND (valid_to IS NULL OR valid_to > moment::TIMESTAMP);

-- The questions of every survey as the warehouse knew them at a moment. Called with moment: A moment, UTC.
-- Call it as a table: FROM questions_as_of(TIMESTAMP '2026-04-01 00:00:00').
-- One row: one question of one survey; key (survey_id, question_ordinal).
-- Left out: questions that no scan had found by then, or that were gone.
CREATE OR REPLACE MACRO "questions_as_of"(moment) AS TABLE
SELECT
    survey_id, question_ordinal, question_id, question_type, question_text, intro_text, left_label, right_label, options,
    options_properties, routing_options, valid_from, valid_to
FROM survey_question_history
WHERE valid_from <= moment::TIMESTAMP AND (valid_to IS NULL OR valid_to > moment::TIMESTAMP);

-- The themes of answers as the warehouse knew them at a moment. Called with moment: A moment, UTC.
-- Call it as a table: FROM themes_as_of(TIMESTAMP '2026-04-01 00:00:00').
-- One row: one theme on one answer; key (id, response_group_uid, question_id).
-- Left out: themes that no scan had found by then, or that had vanished; people who were erased since have no rows.
-- What had become of the answers is not looked at: join responses_as_of for that.
CREATE OR REPLACE MACRO "themes_as_of"(moment) AS TABLE
SELECT id, response_group_uid, question_id, survey_id, visitor_id, found_at, theme, theme_description, response
FROM theme_versions
WHERE valid_from <= moment::TIMESTAMP AND (valid_to IS NULL OR valid_to > moment::TIMESTAMP);

-- The segment that each answer belongs to, for any way to divide answers into segments. Called with segment: browser, os, language, url_path, triggering_event, `attribute:` and the name of an attribute of the visitor's snapshot, `user:` and the name of an attribute that `users pull` read, or `metadata:` and a key of the custom metadata.
-- Call it as a table: FROM answer_segments('attribute:plan'), and join it to other views by response_group_uid and question_id.
-- One row: one current answer; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service.
-- A path is that of the field url, else that of meta.href; a text that is no address with a host has no path.
-- Snapshots are those at the time of the answer (with_snapshots), custom metadata is that of link studies (with_custom_metadata).
-- Attributes of users are the current ones, by external_user_id ([streams.users]).
CREATE OR REPLACE MACRO "answer_segments"(segment) AS TABLE
SELECT
    answer.response_group_uid, answer.question_id,
    CASE
        WHEN segment = 'browser' THEN answer.meta_browser
        WHEN segment = 'os' THEN answer.meta_os
        WHEN segment = 'language' THEN answer.meta_language
        WHEN segment = 'url_path' THEN regexp_extract(
            list_filter(
                [answer.url, answer.meta_href],
                lambda address: regexp_matches(address, '^\s*(?:(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#\s]+(?:[/?#]|\s*$)|[A-Za-z][A-Za-z0-9+.-]*:///)')
            )[1],
            '^\s*[^/?#]*//[^/?#\s]*([^?#]*?)\s*(?:[?#]|$)', 1
        )
        WHEN segment = 'triggering_event' THEN snapshot.triggering_event
        WHEN starts_with(segment, 'attribute:') THEN attribute.value_text
        WHEN starts_with(segment, 'user:') THEN person.value_text
        WHEN starts_with(segment, 'metadata:') THEN metadata.value_text
        ELSE error('segment is none of browser, os, language, url_path, triggering_event, attribute:NAME, user:NAME, metadata:KEY')
    END AS segment_value,
    requested.missing AS not_requested
FROM current_responses AS answer
CROSS JOIN (
    SELECT
        CASE
            WHEN segment IN ('browser', 'os', 'language') AND flags & 4 = 0 THEN 'with_meta'
            WHEN segment = 'url_path' AND flags & 6 = 0 THEN 'with_urls'
            WHEN (segment = 'triggering_event' OR starts_with(segment, 'attribute:')) AND flags & 1 = 0 THEN 'with_snapshots'
            WHEN starts_with(segment, 'metadata:') AND flags & 8 = 0 THEN 'with_custom_metadata'
            WHEN starts_with(segment, 'user:') AND NOT EXISTS (SELECT 1 FROM users) THEN 'users'
        END AS missing
    FROM (SELECT coalesce(bit_or(flags), 0) AS flags FROM sync_windows WHERE stream = 'responses')
) AS requested
LEFT JOIN (
    SELECT response_group_uid, arg_min(triggering_event, created_at) AS triggering_event FROM visitor_snapshots
    WHERE segment = 'triggering_event'
    GROUP BY response_group_uid
) AS snapshot ON snapshot.response_group_uid = answer.response_group_uid
LEFT JOIN (
    SELECT response_group_uid, arg_min(value_text, created_at) AS value_text FROM visitor_snapshot_attributes
    WHERE starts_with(segment, 'attribute:') AND name = substr(segment, 11)
    GROUP BY response_group_uid
) AS attribute ON attribute.response_group_uid = answer.response_group_uid
LEFT JOIN (
    SELECT external_user_id, any_value(value_text) AS value_text FROM user_attributes
    WHERE starts_with(segment, 'user:') AND name = substr(segment, 6) AND is_current
    GROUP BY external_user_id
) AS person ON person.external_user_id = answer.external_user_id
LEFT JOIN response_custom_metadata AS metadata
    ON metadata.response_group_uid = answer.response_group_uid AND metadata.question_id = answer.question_id
    AND starts_with(segment, 'metadata:') AND metadata.name = substr(segment, 10);

-- NPS of every question by week and segment. Called with segment: How to divide the answers into segments; see answer_segments. answers_min := 5: Minimum answers of a segment in a week; smaller ones have no figures.
-- Call it as a table: FROM nps_by_week_and_segment('attribute:plan'), or FROM nps_by_week_and_segment('browser', answers_min := 30).
-- One row: one segment of one question of one survey in one week.
-- Order by survey_id, question_id, segment_value, week.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A segment with fewer answers in the week than answers_min has its count and no figure.
-- Standard error as in nps_by_week.
CREATE OR REPLACE MACRO "nps_by_week_and_segment"(segment, answers_min := 5) AS TABLE
WITH counted AS (
    SELECT
        answer.week, answer.survey_id, answer.question_id, cut.segment_value, any_value(cut.not_requested) AS not_requested, count(*) AS responses,
        count(*) FILTER (answer.score >= 9) AS promoters,
        count(*) FILTER (answer.score BETWEEN 7 AND 8) AS passives,
        count(*) FILTER (answer.score <= 6) AS detractors
    FROM nps_answers AS answer
    JOIN answer_segments(segment) AS cut
        ON cut.response_group_uid = answer.response_group_uid AND cut.question_id = answer.question_id
    GROUP BY ALL
)
SELECT
    counted.week, counted.survey_id, counted.question_id, survey.name AS survey_name, counted.segment_value, counted.responses,
    CASE WHEN responses >= answers_min THEN promoters END AS promoters,
    CASE WHEN responses >= answers_min THEN passives END AS passives,
    CASE WHEN responses >= answers_min THEN detractors END AS detractors,
    CASE WHEN responses >= answers_min THEN 100 * (promoters - detractors)::DOUBLE / responses END AS nps,
    CASE WHEN responses >= answers_min THEN
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) END AS standard_error,
    counted.not_requested
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- NPS of every question by segment. Called with segment: How to divide the answers into segments; see answer_segments. answers_min := 5: Minimum answers of a segment; smaller segments have no figures.
-- Call it as a table: FROM nps_by_segment('attribute:plan'), or FROM nps_by_segment('browser', answers_min := 30).
-- One row: one segment of one question of one survey.
-- Order by survey_id, question_id, responses DESC.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A segment with fewer answers than answers_min has its count and no figure.
-- Standard error as in nps_by_week.
CREATE OR REPLACE MACRO "nps_by_segment"(segment, answers_min := 5) AS TABLE
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
FROM counted;

-- Mean and top-two box of every LIKERT question by segment. Called with segment: How to divide the answers into segments; see answer_segments. answers_min := 5: Minimum answers of a segment; smaller segments have no figures.
-- Call it as a table: FROM likert_by_segment('os'), or FROM likert_by_segment('metadata:campaign', answers_min := 30).
-- One row: one segment of one question of one survey.
-- Order by survey_id, question_id, answers DESC.
-- Left out: skipped answers, values that are not whole, outside the scale or not rated (see likert_values), answers that are deleted or have vanished.
-- Each answer is held against the scale of the version that it was given to, as in likert_top_two.
-- A segment with fewer answers than answers_min has its count and no figure.
CREATE OR REPLACE MACRO "likert_by_segment"(segment, answers_min := 5) AS TABLE
WITH valued AS (
    SELECT
        answer.survey_id, answer.question_id, cut.segment_value, answer.answer_number AS value, held.kind, held.version,
        held.scale_min, held.scale_max, held.scale_max - held.scale_min >= 2 AS has_box
    FROM answer_versions AS answer
    JOIN likert_values AS held
        ON held.survey_id IS NOT DISTINCT FROM answer.survey_id AND held.question_id = answer.question_id
        AND held.version IS NOT DISTINCT FROM answer.version AND held.value IS NOT DISTINCT FROM answer.answer_number
    JOIN answer_segments(segment) AS cut
        ON cut.response_group_uid = answer.response_group_uid AND cut.question_id = answer.question_id
    WHERE answer.question_type = 'LIKERT' AND NOT answer.is_skipped AND held.kind <> 'outside'
),
counted AS (
    SELECT
        survey_id, question_id, segment_value, count(*) FILTER (kind = 'point') AS answers,
        sum(value) FILTER (kind = 'point') AS total, sum(value * value) FILTER (kind = 'point') AS squares,
        count(*) FILTER (kind = 'point' AND has_box) AS boxed,
        count(*) FILTER (kind = 'point' AND has_box AND value >= scale_max - 1) AS top,
        count(*) FILTER (kind = 'not rated') AS not_rated
    FROM valued
    GROUP BY survey_id, question_id, segment_value
),
scales AS (
    SELECT
        survey_id, question_id,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max}) FILTER (kind = 'point') AS scale
    FROM likert_values
    GROUP BY survey_id, question_id
),
shown AS (
    SELECT
        *, CASE WHEN answers >= answers_min THEN answers END AS enough,
        CASE WHEN answers >= answers_min THEN nullif(boxed, 0) END AS enough_boxed
    FROM counted
)
SELECT
    shown.survey_id, shown.question_id, survey.name AS survey_name, shown.segment_value, shown.answers,
    total / enough AS mean,
    sqrt(greatest(squares - total ** 2 / enough, 0) / nullif(enough - 1, 0) / enough) AS mean_standard_error,
    top / enough_boxed AS top_two_share,
    sqrt((top / enough_boxed) * (1 - top / enough_boxed) / enough_boxed) AS top_two_standard_error,
    scales.scale.min AS scale_min, scales.scale.max AS scale_max, shown.not_rated
FROM shown
JOIN scales ON scales.survey_id IS NOT DISTINCT FROM shown.survey_id AND scales.question_id = shown.question_id
LEFT JOIN surveys AS survey ON survey.id = shown.survey_id
WHERE shown.answers > 0 OR shown.not_rated > 0;

-- Which options were chosen by segment, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT). Called with segment: How to divide the answers into segments; see answer_segments. answers_min := 5: Minimum answers of a segment; smaller segments have no row.
-- Call it as a table: FROM choices_by_segment('language'), or FROM choices_by_segment('url_path', answers_min := 30).
-- One row: one option of one question in one segment.
-- Options that nobody in the segment chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished.
-- An option that one answer names twice counts once.
-- Segments with fewer answers than answers_min are left out.
CREATE OR REPLACE MACRO "choices_by_segment"(segment, answers_min := 5) AS TABLE
WITH cut AS (
    FROM answer_segments(segment)
),
answered AS (
    SELECT answer.survey_id, answer.question_id, cut.segment_value, count(*) AS answered
    FROM current_responses AS answer
    JOIN cut ON cut.response_group_uid = answer.response_group_uid AND cut.question_id = answer.question_id
    WHERE answer.question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT answer.is_skipped
    GROUP BY ALL
    HAVING count(*) >= answers_min
),
chosen AS (
    SELECT
        choice.survey_id, choice.question_id, cut.segment_value, choice.label,
        CASE WHEN choice.label IS NULL THEN choice.selected_index END AS selected_index,
        count(DISTINCT choice.response_group_uid) AS chosen
    FROM current_choices AS choice
    JOIN cut ON cut.response_group_uid = choice.response_group_uid AND cut.question_id = choice.question_id
    GROUP BY ALL
)
SELECT
    chosen.survey_id, chosen.question_id, survey.name AS survey_name, chosen.segment_value, chosen.label,
    chosen.selected_index, chosen.chosen, answered.answered,
    chosen.chosen / answered.answered AS share,
    sqrt((chosen.chosen / answered.answered) * (1 - chosen.chosen / answered.answered) / answered.answered) AS standard_error
FROM chosen
JOIN answered
    ON answered.survey_id IS NOT DISTINCT FROM chosen.survey_id AND answered.question_id = chosen.question_id
    AND answered.segment_value IS NOT DISTINCT FROM chosen.segment_value
LEFT JOIN surveys AS survey ON survey.id = chosen.survey_id;

-- The text answers and transcriptions that contain a text. Called with wanted: The text.
-- Call it as a table: FROM search_answers('refund').
-- One row: one answer of open_answers.
-- Case does not count: ß is ss, and a final sigma is a sigma.
-- There are no wildcards.
-- Left out: answers that are deleted or have vanished at the service.
-- A NUL counts as a blank, because the engine would end the text there.
-- A DuckDB file with an index of words (full_text_search) has another definition of this macro, with the same columns: it finds whole words.
CREATE OR REPLACE MACRO "search_answers"(wanted) AS TABLE
SELECT response_group_uid, question_id, survey_id, question_text, created_at, source, answer, NULL::DOUBLE AS score
FROM open_answers
WHERE NOT is_empty AND contains(
    replace(lower(upper(nfc_normalize(replace(answer, chr(0), ' ')))), 'ß', 'ss'), replace(lower(upper(nfc_normalize(replace(wanted, chr(0), ' ')))), 'ß', 'ss')
);

-- How many rows of each survey changed between two moments, as scans saw it. Called with earlier: The earlier moment, UTC. later: The later moment, UTC.
-- Call it as a table: FROM row_changes(TIMESTAMP '2026-04-01 00:00:00', TIMESTAMP '2026-04-08 00:00:00').
-- One row: one survey in which something changed; key survey_id, which is NULL for answers that name no survey.
-- Left out: people who were erased since.
-- A change counts if a scan saw it after the earlier moment and up to the later one.
-- The counts add up: answers_before + new_answers + returned - deleted - vanished = answers_after; themes_before + new_themes + returned_themes - vanished_themes = themes_after; the same for surveys.
-- An answer or theme that moves to another survey vanishes in one and is new in the other.
-- An answer that is first found deleted is no new answer.
CREATE OR REPLACE MACRO "row_changes"(earlier, later) AS TABLE
WITH rows_of AS (
    SELECT
        'answer' AS kind, survey_id, survey_before, valid_from, valid_to, begun_by, ended_by, deleted_at IS NULL AS is_there
    FROM response_versions
    UNION ALL
    SELECT 'theme', survey_id, survey_before, valid_from, valid_to, begun_by, ended_by, true FROM theme_versions
    UNION ALL
    SELECT
        'survey', id, id, valid_from, valid_to,
        CASE
            WHEN lag(valid_to) OVER versions IS NULL THEN 'new'
            WHEN lag(valid_to) OVER versions < valid_from THEN 'returned'
            ELSE 'edited'
        END,
        CASE WHEN valid_to < coalesce(lead(valid_from) OVER versions, TIMESTAMP 'infinity') THEN 'vanished' ELSE 'edited' END,
        true
    FROM survey_history
    WINDOW versions AS (PARTITION BY id ORDER BY valid_from)
),
timed AS (
    SELECT
        *, valid_from > earlier::TIMESTAMP AND valid_from <= later::TIMESTAMP AS begins,
        coalesce(valid_to > earlier::TIMESTAMP AND valid_to <= later::TIMESTAMP, false) AS ends,
        is_there AND valid_from <= earlier::TIMESTAMP AND coalesce(valid_to > earlier::TIMESTAMP, true) AS was_there,
        is_there AND valid_from <= later::TIMESTAMP AND coalesce(valid_to > later::TIMESTAMP, true) AS stays_there
    FROM rows_of
),
counted AS (
    SELECT
        kind, survey_id,
        count(*) FILTER (begins AND is_there AND begun_by IN ('new', 'moved')) AS new,
        count(*) FILTER (begins AND begun_by = 'edited') AS edited,
        count(*) FILTER (ends AND is_there AND ended_by = 'deleted') AS deleted,
        count(*) FILTER (ends AND is_there AND ended_by = 'vanished') AS vanished,
        count(*) FILTER (begins AND is_there AND begun_by = 'returned') AS returned,
        count(*) FILTER (was_there) AS before,
        count(*) FILTER (stays_there) AS after,
        0 AS questions, 0 AS statuses
    FROM timed
    GROUP BY kind, survey_id
    UNION ALL
    SELECT kind, survey_before, 0, 0, 0, count(*), 0, 0, 0, 0, 0
    FROM timed
    WHERE begins AND begun_by = 'moved' AND is_there
    GROUP BY kind, survey_before
    UNION ALL
    SELECT 'question', survey_id, 0, 0, 0, 0, 0, 0, 0, count(DISTINCT coalesce(question_id, -question_ordinal)), 0
    FROM survey_question_history
    WHERE (valid_from > earlier::TIMESTAMP AND valid_from <= later::TIMESTAMP)
        OR (valid_to > earlier::TIMESTAMP AND valid_to <= later::TIMESTAMP)
    GROUP BY survey_id
    UNION ALL
    SELECT 'status', survey_id, 0, 0, 0, 0, 0, 0, 0, 0, count(*)
    FROM survey_status_changes
    WHERE changed_at > earlier::TIMESTAMP AND changed_at <= later::TIMESTAMP
    GROUP BY survey_id
),
summed AS (
    SELECT
        survey_id,
        sum(new) FILTER (kind = 'answer') AS new_answers,
        sum(edited) FILTER (kind = 'answer') AS edited,
        sum(deleted) FILTER (kind = 'answer') AS deleted,
        sum(vanished) FILTER (kind = 'answer') AS vanished,
        sum(returned) FILTER (kind = 'answer') AS returned,
        sum(before) FILTER (kind = 'answer') AS answers_before,
        sum(after) FILTER (kind = 'answer') AS answers_after,
        sum(new) FILTER (kind = 'theme') AS new_themes,
        sum(edited) FILTER (kind = 'theme') AS changed_themes,
        sum(vanished) FILTER (kind = 'theme') AS vanished_themes,
        sum(returned) FILTER (kind = 'theme') AS returned_themes,
        sum(before) FILTER (kind = 'theme') AS themes_before,
        sum(after) FILTER (kind = 'theme') AS themes_after,
        sum(new) FILTER (kind = 'survey') AS new_surveys,
        sum(edited) FILTER (kind = 'survey') AS changed_surveys,
        sum(vanished) FILTER (kind = 'survey') AS vanished_surveys,
        sum(returned) FILTER (kind = 'survey') AS returned_surveys,
        sum(before) FILTER (kind = 'survey') AS surveys_before,
        sum(after) FILTER (kind = 'survey') AS surveys_after,
        sum(questions) AS changed_questions
    FROM counted
    GROUP BY survey_id
    HAVING sum(new + edited + deleted + vanished + returned + questions + statuses) > 0
),
statuses AS (
    SELECT
        survey_id,
        arg_max({'status': new_status}, changed_at) FILTER (changed_at <= earlier::TIMESTAMP).status AS status_before,
        arg_max({'status': new_status}, changed_at) FILTER (changed_at <= later::TIMESTAMP).status AS status_after
    FROM survey_status_changes
    GROUP BY survey_id
)
SELECT
    summed.survey_id, survey.name AS survey_name,
    coalesce(new_answers, 0)::BIGINT AS new_answers, coalesce(edited, 0)::BIGINT AS edited,
    coalesce(deleted, 0)::BIGINT AS deleted, coalesce(vanished, 0)::BIGINT AS vanished,
    coalesce(new_themes, 0)::BIGINT AS new_themes, coalesce(changed_questions, 0)::BIGINT AS changed_questions,
    statuses.status_before, statuses.status_after, coalesce(returned, 0)::BIGINT AS returned,
    coalesce(answers_before, 0)::BIGINT AS answers_before, coalesce(answers_after, 0)::BIGINT AS answers_after,
    coalesce(changed_themes, 0)::BIGINT AS changed_themes, coalesce(vanished_themes, 0)::BIGINT AS vanished_themes,
    coalesce(returned_themes, 0)::BIGINT AS returned_themes, coalesce(themes_before, 0)::BIGINT AS themes_before,
    coalesce(themes_after, 0)::BIGINT AS themes_after, coalesce(new_surveys, 0)::BIGINT AS new_surveys,
    coalesce(changed_surveys, 0)::BIGINT AS changed_surveys, coalesce(vanished_surveys, 0)::BIGINT AS vanished_surveys,
    coalesce(returned_surveys, 0)::BIGINT AS returned_surveys, coalesce(surveys_before, 0)::BIGINT AS surveys_before,
    coalesce(surveys_after, 0)::BIGINT AS surveys_after
FROM summed
LEFT JOIN statuses ON statuses.survey_id = summed.survey_id
LEFT JOIN surveys AS survey ON survey.id = summed.survey_id;

-- NPS, top-two box and choice shares as the view figures showed them at a moment. Called with moment: A moment, UTC.
-- Call it as a table: FROM figures_as_of(TIMESTAMP '2026-04-01 00:00:00').
-- The moment is UTC.
-- One row: one figure of one question of one survey; of choice shares, one option.
-- Options that nobody chose have no row.
-- Left out: answers that responses_as_of leaves out: not yet found, deleted or gone at the moment, or of people who were erased since.
-- Only what was known at the moment counts: the answers as they were, and the definitions of surveys that scans had seen.
-- The figure of a moment is the same whenever it is asked for.
CREATE OR REPLACE MACRO "figures_as_of"(moment) AS TABLE
WITH known_questions AS (
    SELECT * REPLACE (valid_to IS NULL AS is_current)
    FROM (
        SELECT * REPLACE (CASE WHEN valid_to <= moment::TIMESTAMP THEN valid_to END AS valid_to)
        FROM survey_question_history WHERE valid_from <= moment::TIMESTAMP
    )
),
known_options AS (
    SELECT * REPLACE (valid_to IS NULL AS is_current)
    FROM (
        SELECT * REPLACE (CASE WHEN valid_to <= moment::TIMESTAMP THEN valid_to END AS valid_to)
        FROM survey_question_option_history WHERE valid_from <= moment::TIMESTAMP
    )
),
current_responses AS MATERIALIZED (
    SELECT response_group_uid, question_id, survey_id, visitor_id, visitor_uuid, question_type, question_text,
        created_at, answer_text, answer_number, is_skipped, selected_indexes
    FROM responses_as_of(moment)
),
question_versions AS (
WITH defined AS (
    SELECT
        survey_id, question_id, question_ordinal, valid_from,
        coalesce(valid_to, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends
    FROM known_questions
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
    FROM known_questions AS question
    JOIN known_options AS option
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
JOIN known_questions AS question
    ON question.survey_id = numbered.survey_id AND question.question_ordinal = numbered.question_ordinal
    AND question.valid_from = numbered.valid_from
LEFT JOIN labelled
    ON labelled.survey_id = numbered.survey_id AND labelled.question_ordinal = numbered.question_ordinal
    AND labelled.valid_from = numbered.valid_from
),
question_scales AS (
WITH spelled AS (
    SELECT
        survey_id, question_id, version, option_labels AS labels,
        try_cast(regexp_extract(options_properties, '"range"\s*:\s*"?([0-9]{1,2})\s*["},]', 1) AS BIGINT) AS value_range,
        -- Without apostrophes, a number in front, and marks at the ends.
        [regexp_replace(replace(replace(lower(label), '''', ''), '’', ''), '^[^\pL\pN]*([0-9]+[^\pL\pN]+)?(.*?)[^\pL\pN]*$', '\2', 's')
            FOR label IN option_labels] AS words,
        [try_cast(regexp_extract(label, '^\s*([+-]?[0-9]{1,4})([^0-9]|$)', 1) AS BIGINT) FOR label IN option_labels]
            AS numbers,
        -- The beginning of a range (1-2, 1 to 2), of a fraction, or of "5+".
        [regexp_matches(label, '^\s*[+-]?[0-9]+([.,+]|\s*(-|–|—|−|~|〜|～|/|to|bis|à|a)\s*[+-]?[0-9]|\s*\+)')
            FOR label IN option_labels] AS are_spans
    FROM question_versions
    WHERE question_type = 'LIKERT'
),
phrased AS (
    SELECT
        *, [regexp_matches(lower(label), '^[\s(\[]*\pL{1,2}([./\\]\s*\pL{1,2}){1,3}[.)\]\s]*$') FOR label IN labels] AS are_short,
        [regexp_matches(word, '^((n ?[./\\]? ?a|na|nsp|unknown|undecided|unsure|(im |i am |am )?not sure|not relevant|none of (the above|these)|other)$|(n ?[./\\] ?a\b|(not|non|in)[ -]?applicable|(it |this )?(does ?nt|does not|did not|didnt) apply|(i |we )?(do not|dont|did not|didnt|cannot|can not|cant|could not|couldnt) (know|say|tell|judge|rate|answer|assess|evaluate|comment|remember|recall)|unable to |no (opinion|answer|response|comment|idea)\b|(i |id |i would |would )*(prefer|rather|choose|wish) (not|to not)\b|(i )?(decline|refuse)d? to )|(keine? (angaben?|antwort|meinung|aussage)|(ich )?wei(ß|ss) (ich |es )?nicht|(das )?kann ich nicht|nicht (zutreffend|anwendbar|relevant|beurteilbar)|entfällt|möchte ich nicht|sans (objet|opinion|avis|réponse)|non (applicable|concerné)|(je )?ne (sais|sait|se prononce) pas|ne sapplique pas|(je )?préfère ne pas|no (aplica|procede|corresponde|contesta|opina)|(yo )?no (lo )?s(é|abe)|prefiero no|sin (opinión|respuesta)|n[ãa]o (se aplica|aplicável|sei|sabe)|prefiro n[ãa]o|sem (opinião|resposta))|(non (applicabile|pertinente|saprei|si applica|so$)|preferisco non|nessuna opinione|niet van toepassing|weet (ik )?niet|geen (mening|antwoord)|(dat )?(zeg|wil) ik (liever )?niet|vet (ej|inte|ikke)|ved ikke|(ej|inte|ikke) (tillämpligt|aktuellt|aktuelt|relevant)|ingen (åsikt|mening)|(vil|ønsker|vill) (ikke|inte)|en osaa sanoa|en tiedä|ei koske|nie (dotyczy|wiem)|trudno powiedzieć|wolę nie|nevím|neviem|netýká se|nechci|bilmiyorum|fikrim yok|uygun değil|(söylemek|belirtmek) istemiyorum|nem (tudom|vonatkozik)|nu (știu|stiu|se aplică)|tidak (tahu|berlaku)|không (biết|áp dụng))|(не (знаю|применимо|хочу отвечать)|неприменимо|затрудняюсь|нет (мнения|ответа)|важко сказати|δεν (ξέρω|γνωρίζω)|(分|わ)から?ない|わかりません|該当(なし|しない)|答えたくない|回答しない|無回答|不(适用|適用|知道|清楚|愿|願)|[无無]意[见見]|해당 ?(사항 ?)?없음|모름|모르겠|잘 모르|لا (أعرف|ينطبق)|לא (יודע|רלוונטי)))') FOR word IN words] AS are_phrases
    FROM spelled
),
-- "Don't know" is a point beside "Know it well", and "-" is one beside "+".
told AS (
    SELECT
        *, array_to_string([words[place] FOR place IN range(1, len(labels) + 1) IF NOT are_phrases[place]], ' ') AS others,
        len([word FOR word IN words IF word = '']) AS marks
    FROM phrased
),
ends AS (
    SELECT
        *, [place FOR place IN range(1, len(labels) + 1) IF NOT coalesce(
            CASE
                WHEN words[place] = '' THEN marks = 1 AND regexp_matches(labels[place], '^\s*[-–—?./…]\s*$')
                WHEN are_phrases[place] THEN NOT coalesce(contains(others, nullif(regexp_extract(
                    words[place], '(sure|relevant|applicable|apply|know|opinion|answer|decide|remember|recall)', 1
                ), '')), false)
                ELSE are_short[place]
            END, false)] AS points
    FROM told
),
measured AS (
    SELECT
        *, list_min(points) AS first_point, list_max(points) AS last_point,
        [place FOR place IN range(list_min(points), list_max(points) + 1)
            IF numbers[place] IS NOT NULL AND NOT are_spans[place]] AS places
    FROM ends
),
shaped AS (
    SELECT
        *, list_min(places) AS first_number, list_max(places) AS last_number,
        list_min([numbers[place] FOR place IN places]) AS low, list_max([numbers[place] FOR place IN places]) AS high,
        len(list_distinct([numbers[place] - place FOR place IN places])) = 1 AS goes_up,
        len(list_distinct([numbers[place] + place FOR place IN places])) = 1 AS goes_down
    FROM measured
),
-- Words on one side of three or more numbers are no points, unless they stand for a number that is missing.
judged AS (
    SELECT
        *, len(places) >= 2 AND len(places) = last_number - first_number + 1 AND (goes_up OR goes_down) AND CASE
            WHEN first_number = first_point AND last_number = last_point THEN true
            WHEN len(places) < 3 OR (first_number > first_point AND last_number < last_point) THEN false
            WHEN len([place FOR place IN range(first_point, last_point + 1) IF (place < first_number OR place > last_number)
                AND regexp_matches(labels[place], '(?i)\pN|^\s*(no|none|never|nothing|zero|not at all)\b')]) > 0 THEN false
            WHEN (first_number > first_point) = goes_up THEN low <= 1
            ELSE true
        END AS is_counted
    FROM shaped
),
scaled AS (
    SELECT
        *, CASE WHEN is_counted THEN low ELSE first_point END AS lowest,
        CASE WHEN is_counted THEN high ELSE last_point END AS highest,
        CASE WHEN is_counted THEN first_number ELSE first_point END AS first_place,
        CASE WHEN is_counted THEN last_number ELSE last_point END AS last_place,
        CASE WHEN last_place >= first_place AND len(labels) >= 2 THEN 'options' WHEN value_range >= 2 THEN 'properties' END AS scale_source
    FROM judged
)
SELECT
    survey_id, question_id, version,
    CASE scale_source WHEN 'options' THEN lowest ELSE 1 END AS scale_min,
    CASE scale_source WHEN 'options' THEN highest ELSE value_range END AS scale_max,
    scale_source,
    -- An option that is no point is known by its own number, by its position, or by the next number of the sequence.
    CASE WHEN scale_source = 'options' THEN [value
        FOR value IN list_sort(list_distinct(flatten([
            [numbers[place], place, CASE
                WHEN is_counted AND goes_up THEN lowest + place - first_place
                WHEN is_counted THEN highest - (place - first_place)
            END]
            FOR place IN range(1, len(labels) + 1) IF place < first_place OR place > last_place
        ])))
        IF value < lowest OR value > highest
    ] END AS not_rated_values
FROM scaled
WHERE scale_source IS NOT NULL
),
answer_versions AS (
WITH answers AS (
    SELECT
        response_group_uid, question_id, survey_id, question_type, question_text, created_at, is_skipped, answer_number,
        CASE
            WHEN NOT is_skipped AND answer_text IS NOT NULL AND question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
                THEN selected_indexes
        END AS selected_indexes,
        CASE
            WHEN is_skipped OR answer_text IS NULL THEN NULL
            WHEN question_type = 'MULTIPLECHOICE' THEN [answer_text]
            WHEN question_type IS DISTINCT FROM 'MULTIPLESELECT' THEN NULL
            WHEN starts_with(ltrim(answer_text), '[') AND json_valid(answer_text) THEN json_extract_string(answer_text, '$[*]')
            -- One text beside several indexes names several options, or one of them.
            WHEN len(selected_indexes) > 1 THEN NULL
            ELSE [answer_text]
        END AS chosen_labels
    FROM current_responses
),
defined AS (
    SELECT
        version.survey_id, version.question_id, version.version, version.question_text, version.option_labels,
        coalesce(version.shown_from, TIMESTAMP '0001-01-01 00:00:00') AS timed_from,
        scale.scale_min, scale.scale_max, scale.scale_source, scale.not_rated_values,
        list_concat(range(scale.scale_min, scale.scale_max + 1), scale.not_rated_values) AS scale_values,
        count(*) OVER question > 1 AS has_changed
    FROM question_versions AS version
    LEFT JOIN question_scales AS scale
        ON scale.survey_id = version.survey_id AND scale.question_id = version.question_id
        AND scale.version = version.version
    WINDOW question AS (PARTITION BY version.survey_id, version.question_id)
),
-- For each wording of a question that has changed, and without one (NULL) for all other answers: which version was shown when, and what
-- the next one has that this one has not.
spans AS (
    SELECT
        survey_id, question_id, wording, version,
        CASE WHEN row_number() OVER worded = 1 THEN TIMESTAMP '0001-01-01 00:00:00' ELSE timed_from END AS begins,
        coalesce(lead(timed_from) OVER worded, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends,
        lead(version) OVER worded AS next_version,
        [label FOR label IN lead(option_labels) OVER worded IF NOT list_contains(coalesce(option_labels, []), label)] AS new_labels,
        CASE WHEN scale_source IS NOT NULL THEN
            [value::DOUBLE FOR value IN lead(scale_values) OVER worded IF NOT list_contains(scale_values, value)]
        END AS new_values,
        coalesce(len(option_labels), 0) AS options,
        len(lead(option_labels) OVER worded) AS next_options,
        question_text, scale_min, scale_max, scale_source, not_rated_values,
        lead(scale_min) OVER worded AS next_min, lead(scale_max) OVER worded AS next_max,
        lead(scale_source) OVER worded AS next_source, lead(not_rated_values) OVER worded AS next_not_rated
    FROM (
        SELECT *, NULL AS wording FROM defined
        UNION ALL
        SELECT *, question_text FROM defined WHERE has_changed AND question_text IS NOT NULL
    )
    WINDOW worded AS (PARTITION BY survey_id, question_id, wording ORDER BY version)
),
wordings AS (
    SELECT survey_id, question_id, list(DISTINCT wording) AS wordings
    FROM spans
    WHERE wording IS NOT NULL
    GROUP BY survey_id, question_id
),
placed AS (
    SELECT
        answer.*, span.* EXCLUDE (survey_id, question_id, question_text),
        coalesce(span.question_text = answer.question_text, false) AS is_wording_shown,
        CASE
            WHEN span.next_version IS NULL THEN false
            WHEN answer.question_type = 'LIKERT' THEN list_contains(span.new_values, answer.answer_number)
            WHEN answer.question_type NOT IN ('MULTIPLECHOICE', 'MULTIPLESELECT') THEN false
            WHEN answer.chosen_labels IS NULL THEN
                list_max(answer.selected_indexes) BETWEEN span.options + 1 AND span.next_options
            ELSE list_has_any(answer.chosen_labels, span.new_labels)
        END AS is_next
    FROM answers AS answer
    LEFT JOIN wordings ON wordings.survey_id = answer.survey_id AND wordings.question_id = answer.question_id
    LEFT JOIN spans AS span
        ON span.survey_id = answer.survey_id AND span.question_id = answer.question_id
        AND span.wording IS NOT DISTINCT FROM
            CASE WHEN list_contains(wordings.wordings, answer.question_text) THEN answer.question_text END
        AND answer.created_at >= span.begins AND answer.created_at < span.ends
)
SELECT
    response_group_uid, question_id, survey_id,
    CASE WHEN is_next THEN next_version ELSE version END AS version,
    is_wording_shown, question_type, question_text, created_at, is_skipped, answer_number, chosen_labels,
    CASE WHEN chosen_labels IS NULL OR len(chosen_labels) = len(selected_indexes) THEN selected_indexes END AS chosen_indexes,
    CASE WHEN is_next THEN next_min ELSE scale_min END AS scale_min,
    CASE WHEN is_next THEN next_max ELSE scale_max END AS scale_max,
    CASE WHEN is_next THEN next_source ELSE scale_source END AS scale_source,
    CASE WHEN is_next THEN next_not_rated ELSE not_rated_values END AS not_rated_values
FROM placed
),
current_choices AS (
WITH reported AS (
    SELECT
        survey_id, question_id, version, selected_index,
        CASE WHEN min(label) = max(label) THEN min(label) END AS label
    FROM (
        SELECT
            survey_id, question_id, version, unnest(chosen_labels) AS label, unnest(chosen_indexes) AS selected_index
        FROM answer_versions
        WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND chosen_indexes IS NOT NULL
    )
    GROUP BY survey_id, question_id, version, selected_index
    QUALIFY bool_or(count(label) < count(*)) OVER (PARTITION BY survey_id, question_id)
),
-- Evidence for the index of the first option: options that are sent with their index, and the ends of the range.
signs AS (
    SELECT
        reported.survey_id, reported.question_id, reported.version, reported.selected_index, reported.label,
        defined.option_labels AS labels,
        reported.selected_index - nullif(list_position(defined.option_labels, reported.label), 0) + 1 AS sign,
        min(reported.selected_index) OVER version_of AS lowest,
        max(reported.selected_index) OVER version_of AS highest
    FROM reported
    LEFT JOIN question_versions AS defined
        ON defined.survey_id = reported.survey_id AND defined.question_id = reported.question_id
        AND defined.version = reported.version
    WINDOW version_of AS (PARTITION BY reported.survey_id, reported.question_id, reported.version)
),
ranged AS (
    SELECT
        *, CASE
            WHEN lowest = 0 AND highest < len(labels) THEN 0
            WHEN lowest > 0 AND highest = len(labels) THEN 1
        END AS range_sign
    FROM signs
),
weighed AS (
    SELECT
        *, least(min(range_sign) OVER question, min(sign) OVER question) AS least_sign,
        greatest(max(range_sign) OVER question, max(sign) OVER question) AS greatest_sign
    FROM ranged
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
named AS (
    SELECT
        survey_id, question_id, version, selected_index, label,
        CASE
            WHEN least_sign = greatest_sign AND least_sign IN (0, 1) AND selected_index >= least_sign
                THEN labels[selected_index - least_sign + 1]
        END AS option_label
    FROM weighed
)
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at, part.choice_ordinal, part.selected_index,
    coalesce(part.label, named.option_label, named.label) AS label,
    CASE
        WHEN part.label IS NOT NULL THEN 'answer'
        WHEN named.option_label IS NOT NULL THEN 'options'
        WHEN named.label IS NOT NULL THEN 'other answers'
    END AS label_source,
    part.version
FROM (
    SELECT
        response_group_uid, question_id, survey_id, version, created_at,
        unnest(chosen_labels) AS label, unnest(chosen_indexes) AS selected_index,
        unnest(range(1, coalesce(len(chosen_labels), len(chosen_indexes)) + 1)) AS choice_ordinal
    FROM answer_versions
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped
) AS part
LEFT JOIN named
    ON named.survey_id = part.survey_id AND named.question_id = part.question_id
    AND named.version IS NOT DISTINCT FROM part.version
    AND named.selected_index = CASE WHEN part.label IS NULL THEN part.selected_index END
),
nps_answers AS (
WITH timed AS (
    SELECT *, created_at AS local_at
    FROM current_responses
    WHERE question_type = 'NPS' AND answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
)
SELECT
    response_group_uid, question_id, survey_id,
    coalesce(visitor_id::VARCHAR, visitor_uuid, response_group_uid) AS visitor_key,
    question_text, created_at,
    local_at::DATE AS day,
    date_trunc('week', local_at)::DATE AS week,
    date_trunc('month', local_at)::DATE AS month,
    answer_number AS score
FROM timed
),
likert_values AS (
WITH counted AS (
    SELECT
        survey_id, question_id, version, is_skipped, try_cast(answer_number AS BIGINT) AS value, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown,
        any_value(scale_min) AS scale_min, any_value(scale_max) AS scale_max, any_value(scale_source) AS scale_source,
        any_value(not_rated_values) AS not_rated_values
    FROM answer_versions
    WHERE question_type = 'LIKERT' AND (answer_number IS NULL OR answer_number = floor(answer_number))
    GROUP BY survey_id, question_id, version, is_skipped, value
),
defined AS (
    SELECT
        *, min(value) FILTER (scale_source IS NULL AND value BETWEEN 0 AND 10) OVER question AS lowest,
        max(value) FILTER (scale_source IS NULL AND value BETWEEN 0 AND 10) OVER question AS highest,
        max(shown) OVER question AS last_shown
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
usual AS (
    SELECT
        *, CASE WHEN lowest = 0 THEN 0 ELSE 1 END AS usual_min,
        CASE WHEN highest <= usual_min + 4 THEN usual_min + 4 WHEN highest <= usual_min + 6 THEN usual_min + 6 ELSE 10 END AS usual_max
    FROM defined
),
scaled AS (
    SELECT
        survey_id, question_id, version, value, answers, last_shown, not_rated_values,
        CASE WHEN scale_source IS NULL AND highest IS NOT NULL THEN usual_min ELSE scale_min END AS scale_min,
        CASE WHEN scale_source IS NULL AND highest IS NOT NULL THEN usual_max ELSE scale_max END AS scale_max,
        CASE
            WHEN scale_source IS NOT NULL THEN scale_source
            WHEN lowest = usual_min AND highest = usual_max THEN 'observed'
            WHEN highest IS NOT NULL THEN 'usual'
        END AS scale_source
    FROM usual
    WHERE NOT is_skipped
)
SELECT
    survey_id, question_id, version, value, answers,
    CASE
        WHEN value BETWEEN scale_min AND scale_max THEN 'point'
        WHEN value IS NULL OR list_contains(not_rated_values, value) THEN 'not rated'
        ELSE 'outside'
    END AS kind,
    scale_min, scale_max, scale_source, last_shown.text AS last_question_text
FROM scaled
),
likert_top_two AS (
WITH counted AS (
    SELECT
        survey_id, question_id,
        coalesce(sum(answers) FILTER (kind = 'point'), 0)::BIGINT AS answers,
        coalesce(sum(answers) FILTER (kind = 'not rated'), 0)::BIGINT AS not_rated,
        sum(value * answers) FILTER (kind = 'point')::DOUBLE AS total,
        (sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2))::BIGINT AS boxed,
        coalesce(sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2 AND value >= scale_max - 1), 0)::BIGINT AS top,
        coalesce(sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2 AND value <= scale_min + 1), 0)::BIGINT AS bottom,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max, 'source': scale_source})
            FILTER (kind = 'point') AS scale,
        max(last_question_text) AS last_text
    FROM likert_values
    GROUP BY survey_id, question_id
    HAVING count(*) FILTER (kind = 'point') > 0
)
SELECT
    counted.survey_id, counted.question_id, survey.name AS survey_name,
    coalesce(question.question_text, last_text) AS question_text,
    answers, total / answers AS mean,
    CASE WHEN boxed > 0 THEN top END AS top_two, top / boxed AS top_two_share,
    CASE WHEN boxed > 0 THEN bottom END AS bottom_two, bottom / boxed AS bottom_two_share,
    scale.min AS scale_min, scale.max AS scale_max, scale.source AS scale_source, boxed, not_rated
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id
),
choice_share AS (
WITH counted AS (
    SELECT
        survey_id, question_id, label, CASE WHEN label IS NULL THEN selected_index END AS selected_index,
        count(DISTINCT response_group_uid) AS chosen, NULL::BIGINT AS answered, NULL AS shown_answer
    FROM current_choices
    GROUP BY ALL
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, count(*) FILTER (NOT is_skipped),
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
    GROUP BY survey_id, question_id
),
based AS (
    SELECT
        survey_id, question_id, label, selected_index, chosen, max(answered) OVER question AS answered,
        max(shown_answer) OVER question AS shown_answer
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY chosen IS NOT NULL
)
SELECT
    based.survey_id, based.question_id, survey.name AS survey_name,
    coalesce(question.question_text, based.shown_answer.text) AS question_text,
    based.label, based.selected_index, based.chosen, based.answered,
    based.chosen / based.answered AS share
FROM based
LEFT JOIN surveys AS survey ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = based.survey_id AND question.question_id = based.question_id
),
figures AS (
WITH scores AS (
    SELECT survey_id, question_id, count(*) AS answers, sum(worth) AS total, sum(worth * worth) AS squares
    FROM (SELECT *, CASE WHEN score >= 9 THEN 100 WHEN score >= 7 THEN 0 ELSE -100 END AS worth FROM nps_answers)
    GROUP BY survey_id, question_id
),
shares AS (
    SELECT
        survey_id, question_id, 'top_two_share' AS figure, NULL AS label, NULL AS selected_index, boxed AS answers,
        top_two_share AS value
    FROM likert_top_two
    WHERE boxed > 0
    UNION ALL
    SELECT survey_id, question_id, 'choice_share', label, selected_index, answered, share FROM choice_share
)
SELECT
    survey_id, question_id, 'nps' AS figure, NULL::VARCHAR AS label, NULL::BIGINT AS selected_index, answers,
    total / answers AS value,
    CASE WHEN answers > 1 THEN
        sqrt(greatest(squares - total::DOUBLE ** 2 / answers, 0) / (answers - 1) / answers) END AS standard_error
FROM scores
UNION ALL
SELECT
    survey_id, question_id, figure, label, selected_index, answers, value,
    CASE WHEN answers > 1 THEN sqrt(value * (1 - value) / answers) END
FROM shares
)
SELECT survey_id, question_id, figure, label, selected_index, answers, value, standard_error FROM figures;

-- NPS, top-two box and choice shares as the warehouse knew them at two moments. Called with earlier: The earlier moment, UTC. later: The later moment, UTC.
-- Call it as a table: FROM figure_changes(TIMESTAMP '2026-04-01 00:00:00', TIMESTAMP '2026-04-08 00:00:00').
-- One row: one figure of one question of one survey.
-- A question that has no answer that counts at either moment has no row.
-- Left out: answers that were deleted or gone at the moment, or whose people were erased since.
-- Each side is figures_as_of its moment: versions, scales and options are those that were known then.
-- So the figure of a moment stays the same, whatever arrives later.
-- The answers of the earlier moment are among those of the later one, so the two errors do not add up to one of the change.
-- An option that nobody had chosen at one of the moments has the share 0 there, if the question had an answer.
CREATE OR REPLACE MACRO "figure_changes"(earlier, later) AS TABLE
WITH sides AS (
    SELECT true AS is_before, * FROM figures_as_of(earlier)
    UNION ALL
    SELECT false, * FROM figures_as_of(later)
),
paired AS (
    SELECT
        survey_id, question_id, figure, label, selected_index,
        max(answers) FILTER (is_before) AS answers_before, max(value) FILTER (is_before) AS before,
        max(standard_error) FILTER (is_before) AS before_error,
        max(answers) FILTER (NOT is_before) AS answers_after, max(value) FILTER (NOT is_before) AS after,
        max(standard_error) FILTER (NOT is_before) AS after_error
    FROM sides
    GROUP BY survey_id, question_id, figure, label, selected_index
),
based AS (
    SELECT
        *, max(answers_before) OVER question AS based_before, max(answers_after) OVER question AS based_after
    FROM paired
    WINDOW question AS (PARTITION BY survey_id, question_id, figure)
),
filled AS (
    SELECT
        survey_id, question_id, figure, label, selected_index, coalesce(based_before, 0) AS answers_before,
        CASE WHEN based_before > 0 THEN coalesce(before, 0) END AS before,
        CASE WHEN based_before > 1 THEN coalesce(before_error, 0) END AS before_error,
        coalesce(based_after, 0) AS answers_after,
        CASE WHEN based_after > 0 THEN coalesce(after, 0) END AS after,
        CASE WHEN based_after > 1 THEN coalesce(after_error, 0) END AS after_error
    FROM based
),
shown AS (
    SELECT survey_id, question_id, max({'at': created_at, 'text': question_text}).text AS question_text
    FROM current_responses
    WHERE question_text IS NOT NULL AND question_type IN ('NPS', 'LIKERT', 'MULTIPLECHOICE', 'MULTIPLESELECT')
    GROUP BY survey_id, question_id
)
SELECT
    filled.survey_id, survey.name AS survey_name, filled.question_id,
    coalesce(question.question_text, shown.question_text) AS question_text, filled.figure, filled.label,
    filled.answers_before, filled.before, filled.before_error, filled.answers_after, filled.after, filled.after_error,
    filled.after - filled.before AS change, filled.selected_index
FROM filled
LEFT JOIN surveys AS survey ON survey.id = filled.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = filled.survey_id AND question.question_id = filled.question_id
LEFT JOIN shown ON shown.survey_id IS NOT DISTINCT FROM filled.survey_id AND shown.question_id = filled.question_id;
