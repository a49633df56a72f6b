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
    'SELECT "response_group_uid", "question_id", "survey_id", "visitor_id", "visitor_uuid", "external_user_id", "partner_anonymous_id", "question_type", "question_text", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", make_timestamp(epoch_us("deleted_at")) AS "deleted_at", "answer_text", "answer_number", "answer_bool", "answer_json", "is_skipped", "selected_indexes", "url", "meta_browser", "meta_os", "meta_language", "meta_href", "meta_user_agent", "meta_client_width", "meta_client_height", "meta_screen_width", "meta_screen_height", "meta_extra", "custom_metadata", "extra", "_row_hash", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "reason", make_timestamp(epoch_us("returned_at")) AS "returned_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at", COLUMNS(''^created_(month|date)$'') FROM (SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::VARCHAR AS "visitor_uuid", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "partner_anonymous_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::TIMESTAMP WITH TIME ZONE AS "deleted_at", NULL::VARCHAR AS "answer_text", NULL::DOUBLE AS "answer_number", NULL::BOOLEAN AS "answer_bool", NULL::VARCHAR AS "answer_json", NULL::BOOLEAN AS "is_skipped", NULL::BIGINT[] AS "selected_indexes", NULL::VARCHAR AS "url", NULL::VARCHAR AS "meta_browser", NULL::VARCHAR AS "meta_os", NULL::VARCHAR AS "meta_language", NULL::VARCHAR AS "meta_href", NULL::VARCHAR AS "meta_user_agent", NULL::BIGINT AS "meta_client_width", NULL::BIGINT AS "meta_client_height", NULL::BIGINT AS "meta_screen_width", NULL::BIGINT AS "meta_screen_height", NULL::VARCHAR AS "meta_extra", NULL::VARCHAR AS "custom_metadata", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::VARCHAR AS "reason", NULL::TIMESTAMP WITH TIME ZONE AS "returned_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/response_history/*/data.parquet'', union_by_name = true, hive_partitioning = true))'
ELSE
    'SELECT NULL::VARCHAR AS "response_group_uid", NULL::BIGINT AS "question_id", NULL::BIGINT AS "survey_id", NULL::BIGINT AS "visitor_id", NULL::VARCHAR AS "visitor_uuid", NULL::VARCHAR AS "external_user_id", NULL::VARCHAR AS "partner_anonymous_id", NULL::VARCHAR AS "question_type", NULL::VARCHAR AS "question_text", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::TIMESTAMP AS "deleted_at", NULL::VARCHAR AS "answer_text", NULL::DOUBLE AS "answer_number", NULL::BOOLEAN AS "answer_bool", NULL::VARCHAR AS "answer_json", NULL::BOOLEAN AS "is_skipped", NULL::BIGINT[] AS "selected_indexes", NULL::VARCHAR AS "url", NULL::VARCHAR AS "meta_browser", NULL::VARCHAR AS "meta_os", NULL::VARCHAR AS "meta_language", NULL::VARCHAR AS "meta_href", NULL::VARCHAR AS "meta_user_agent", NULL::BIGINT AS "meta_client_width", NULL::BIGINT AS "meta_client_height", NULL::BIGINT AS "meta_screen_width", NULL::BIGINT AS "meta_screen_height", NULL::VARCHAR AS "meta_extra", NULL::VARCHAR AS "custom_metadata", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::VARCHAR AS "reason", NULL::TIMESTAMP AS "returned_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at", NULL::DATE AS created_month WHERE false'
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
    'SELECT "id", "name", "platform", "type", "status", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", make_timestamp(epoch_us("launched_at")) AS "launched_at", make_timestamp(epoch_us("completed_at")) AS "completed_at", "total_response_limit", "extra", "_row_hash", make_timestamp(epoch_us("_first_seen_at")) AS "_first_seen_at", make_timestamp(epoch_us("_vanished_at")) AS "_vanished_at", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "type", NULL::VARCHAR AS "status", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::TIMESTAMP WITH TIME ZONE AS "launched_at", NULL::TIMESTAMP WITH TIME ZONE AS "completed_at", NULL::BIGINT AS "total_response_limit", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "_first_seen_at", NULL::TIMESTAMP WITH TIME ZONE AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/surveys/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "type", NULL::VARCHAR AS "status", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::TIMESTAMP AS "launched_at", NULL::TIMESTAMP AS "completed_at", NULL::BIGINT AS "total_response_limit", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "_first_seen_at", NULL::TIMESTAMP AS "_vanished_at", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/surveys/data.parquet'));
CREATE OR REPLACE VIEW "surveys" AS FROM query(getvariable('studysync_surveys'));

-- Every version of every survey that a scan saw, including the current version.
SET VARIABLE studysync_survey_history = (SELECT CASE WHEN count(*) > 0 THEN
    'SELECT "id", "name", "platform", "type", "status", make_timestamp(epoch_us("created_at")) AS "created_at", make_timestamp(epoch_us("updated_at")) AS "updated_at", make_timestamp(epoch_us("launched_at")) AS "launched_at", make_timestamp(epoch_us("completed_at")) AS "completed_at", "total_response_limit", "extra", "_row_hash", make_timestamp(epoch_us("valid_from")) AS "valid_from", make_timestamp(epoch_us("valid_to")) AS "valid_to", "is_current", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::BIGINT AS "id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "type", NULL::VARCHAR AS "status", NULL::TIMESTAMP WITH TIME ZONE AS "created_at", NULL::TIMESTAMP WITH TIME ZONE AS "updated_at", NULL::TIMESTAMP WITH TIME ZONE AS "launched_at", NULL::TIMESTAMP WITH TIME ZONE AS "completed_at", NULL::BIGINT AS "total_response_limit", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP WITH TIME ZONE AS "valid_from", NULL::TIMESTAMP WITH TIME ZONE AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/survey_history/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::BIGINT AS "id", NULL::VARCHAR AS "name", NULL::VARCHAR AS "platform", NULL::VARCHAR AS "type", NULL::VARCHAR AS "status", NULL::TIMESTAMP AS "created_at", NULL::TIMESTAMP AS "updated_at", NULL::TIMESTAMP AS "launched_at", NULL::TIMESTAMP AS "completed_at", NULL::BIGINT AS "total_response_limit", NULL::VARCHAR AS "extra", NULL::BIGINT AS "_row_hash", NULL::TIMESTAMP AS "valid_from", NULL::TIMESTAMP AS "valid_to", NULL::BOOLEAN AS "is_current", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
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
    'SELECT "scan_id", "stream", "survey_id", make_timestamp(epoch_us("window_start")) AS "window_start", make_timestamp(epoch_us("window_end")) AS "window_end", "flags", make_timestamp(epoch_us("scanned_at")) AS "scanned_at", "rows_read", "inserted", "updated", "unchanged", "soft_deleted", "vanished", "withheld", "rejected", "collisions", "outside_window", "pages", "end_style", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "scan_id", NULL::VARCHAR AS "stream", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP WITH TIME ZONE AS "window_start", NULL::TIMESTAMP WITH TIME ZONE AS "window_end", NULL::BIGINT AS "flags", NULL::TIMESTAMP WITH TIME ZONE AS "scanned_at", NULL::BIGINT AS "rows_read", NULL::BIGINT AS "inserted", NULL::BIGINT AS "updated", NULL::BIGINT AS "unchanged", NULL::BIGINT AS "soft_deleted", NULL::BIGINT AS "vanished", NULL::BIGINT AS "withheld", NULL::BIGINT AS "rejected", NULL::BIGINT AS "collisions", NULL::BIGINT AS "outside_window", NULL::BIGINT AS "pages", NULL::VARCHAR AS "end_style", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/sync_windows/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "scan_id", NULL::VARCHAR AS "stream", NULL::BIGINT AS "survey_id", NULL::TIMESTAMP AS "window_start", NULL::TIMESTAMP AS "window_end", NULL::BIGINT AS "flags", NULL::TIMESTAMP AS "scanned_at", NULL::BIGINT AS "rows_read", NULL::BIGINT AS "inserted", NULL::BIGINT AS "updated", NULL::BIGINT AS "unchanged", NULL::BIGINT AS "soft_deleted", NULL::BIGINT AS "vanished", NULL::BIGINT AS "withheld", NULL::BIGINT AS "rejected", NULL::BIGINT AS "collisions", NULL::BIGINT AS "outside_window", NULL::BIGINT AS "pages", NULL::VARCHAR AS "end_style", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
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
    'SELECT "erasure_id", "kind", make_timestamp(epoch_us("requested_at")) AS "requested_at", make_timestamp(epoch_us("finished_at")) AS "finished_at", "people", "identifiers", "not_followed", "purge_requests", "delay_seconds", make_timestamp(epoch_us("suppressed_from")) AS "suppressed_from", "removed", "searched", "mentions", "redacted", "outcome", make_timestamp(epoch_us("service_checked_at")) AS "service_checked_at", "service_users_checked", "_run_id", make_timestamp(epoch_us("_synced_at")) AS "_synced_at" FROM (SELECT NULL::VARCHAR AS "erasure_id", NULL::VARCHAR AS "kind", NULL::TIMESTAMP WITH TIME ZONE AS "requested_at", NULL::TIMESTAMP WITH TIME ZONE AS "finished_at", NULL::BIGINT AS "people", NULL::BIGINT AS "identifiers", NULL::BIGINT AS "not_followed", NULL::VARCHAR AS "purge_requests", NULL::BIGINT AS "delay_seconds", NULL::TIMESTAMP WITH TIME ZONE AS "suppressed_from", NULL::VARCHAR AS "removed", NULL::VARCHAR AS "searched", NULL::BIGINT AS "mentions", NULL::BIGINT AS "redacted", NULL::VARCHAR AS "outcome", NULL::TIMESTAMP WITH TIME ZONE AS "service_checked_at", NULL::BIGINT AS "service_users_checked", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP WITH TIME ZONE AS "_synced_at" WHERE false UNION ALL BY NAME FROM read_parquet('''
    || replace(getvariable('studysync_root'), '''', '''''') || '/erasures/data.parquet'', union_by_name = true, hive_partitioning = false))'
ELSE
    'SELECT NULL::VARCHAR AS "erasure_id", NULL::VARCHAR AS "kind", NULL::TIMESTAMP AS "requested_at", NULL::TIMESTAMP AS "finished_at", NULL::BIGINT AS "people", NULL::BIGINT AS "identifiers", NULL::BIGINT AS "not_followed", NULL::VARCHAR AS "purge_requests", NULL::BIGINT AS "delay_seconds", NULL::TIMESTAMP AS "suppressed_from", NULL::VARCHAR AS "removed", NULL::VARCHAR AS "searched", NULL::BIGINT AS "mentions", NULL::BIGINT AS "redacted", NULL::VARCHAR AS "outcome", NULL::TIMESTAMP AS "service_checked_at", NULL::BIGINT AS "service_users_checked", NULL::VARCHAR AS "_run_id", NULL::TIMESTAMP AS "_synced_at" WHERE false'
END FROM glob(getvariable('studysync_root') || '/erasures/data.parquet'));
CREATE OR REPLACE VIEW "erasures" AS FROM query(getvariable('studysync_erasures'));

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

-- The chosen options of current answers (MULTIPLECHOICE, MULTIPLESELECT).
-- One row: one chosen option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
-- If the service sent only indexes, or one text for several indexes, the label is that of the survey's option, provided that it is proven whether indexes begin with 0 or 1: by other answers with label and index, by an index 0, or by an index equal to the number of options.
-- Else it is the label that other answers to the question have for that index, if all agree.
-- Else it is not known.
CREATE OR REPLACE VIEW "current_choices" AS
WITH listed AS (
    SELECT survey_id, question_id, list(label ORDER BY option_ordinal) AS labels
    FROM (
        SELECT survey_id, question_id, option_ordinal, arg_min(label, question_ordinal) AS label
        FROM survey_question_options
        WHERE question_id IS NOT NULL
        GROUP BY survey_id, question_id, option_ordinal
    )
    GROUP BY survey_id, question_id
),
reported AS (
    SELECT
        survey_id, question_id, selected_index,
        CASE WHEN min(label) = max(label) THEN min(label) END AS label
    FROM response_choices
    WHERE selected_index IS NOT NULL
    GROUP BY survey_id, question_id, selected_index
),
-- Evidence for the index of the first option: options that are sent with their index, and the ends of the range.
signs AS (
    SELECT
        reported.survey_id, reported.question_id, reported.selected_index, reported.label, listed.labels,
        reported.selected_index - nullif(list_position(listed.labels, reported.label), 0) + 1 AS sign,
        min(reported.selected_index) OVER question AS lowest,
        max(reported.selected_index) OVER question AS highest
    FROM reported
    LEFT JOIN listed ON listed.survey_id = reported.survey_id AND listed.question_id = reported.question_id
    WINDOW question AS (PARTITION BY reported.survey_id, reported.question_id)
),
weighed AS (
    SELECT
        survey_id, question_id, selected_index, label, labels,
        CASE
            WHEN lowest = 0 AND highest < len(labels) THEN 0
            WHEN lowest > 0 AND highest = len(labels) THEN 1
        END AS range_sign,
        least(range_sign, min(sign) OVER question) AS least_sign,
        greatest(range_sign, max(sign) OVER question) AS greatest_sign
    FROM signs
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
named AS (
    SELECT
        survey_id, question_id, selected_index, label,
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
    END AS label_source
FROM response_choices AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
LEFT JOIN named
    ON named.survey_id = part.survey_id AND named.question_id = part.question_id
        AND named.selected_index = part.selected_index;

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
-- Left out: the time in which an answer had vanished, records that lost a collision, and people who were erased.
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
    WHERE reason <> 'collision'
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
    reason AS ended_by, survey_before
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

-- The questions of the current definition of every survey, with the scale that the definition gives a LIKERT question.
-- One row: one question of one survey.
-- A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- The scale comes from the options, if there are two or more: from the least to the greatest of the integers that their labels begin with, or 1 to their number if one has none.
-- Else it is 1 to the property "range", if there is one.
CREATE OR REPLACE VIEW "questions" AS
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
FROM named;

-- The versions of every question: wording, options and position, in the order in which scans saw them.
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without an id.
-- Times are UTC.
-- A scan sees a change some time after it was made, so shown_from and shown_until are only as exact as the interval between scans of surveys.
-- For the version that an answer was given to see response_question_versions.
-- A survey that names a question twice: the first of them.
CREATE OR REPLACE VIEW "question_versions" AS
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
FROM numbered;

-- Which version of its question each answer was given to.
-- One row: one current answer; key (response_group_uid, question_id).
-- Joins answers to question_versions.
-- Left out: answers to questions that no scan of surveys saw, and those that are deleted or have vanished.
-- The wording that came with the answer decides: of the versions with this wording, the one that was current when the answer was given.
-- If no version has the wording, the time alone decides.
CREATE OR REPLACE VIEW "response_question_versions" AS
WITH ranged AS (
    SELECT
        survey_id, question_id, version, question_text,
        coalesce(shown_from, TIMESTAMP '0001-01-01 00:00:00') AS shown_from,
        coalesce(shown_until, TIMESTAMP '9999-12-31 23:59:59.999999') AS shown_until,
        CASE WHEN row_number() OVER wording = 1 THEN TIMESTAMP '0001-01-01 00:00:00' ELSE valid_from END AS worded_from,
        coalesce(lead(valid_from) OVER wording, TIMESTAMP '9999-12-31 23:59:59.999999') AS worded_until
    FROM question_versions
    WINDOW wording AS (PARTITION BY survey_id, question_id, question_text ORDER BY version)
)
SELECT
    answer.response_group_uid, answer.question_id, answer.survey_id,
    coalesce(worded.version, timed.version) AS version,
    worded.version IS NOT NULL AS is_wording_shown
FROM current_responses AS answer
JOIN ranged AS timed
    ON timed.survey_id = answer.survey_id AND timed.question_id = answer.question_id
    AND answer.created_at >= timed.shown_from AND answer.created_at < timed.shown_until
LEFT JOIN ranged AS worded
    ON worded.survey_id = answer.survey_id AND worded.question_id = answer.question_id
    AND worded.question_text = answer.question_text
    AND answer.created_at >= worded.worded_from AND answer.created_at < worded.worded_until;

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
-- Days, weeks and months are UTC; a week begins on Monday (ISO).
CREATE OR REPLACE VIEW "nps_answers" AS
SELECT
    response_group_uid, question_id, survey_id,
    coalesce(visitor_id::VARCHAR, visitor_uuid, response_group_uid) AS visitor_key,
    question_text, created_at,
    created_at::DATE AS day,
    date_trunc('week', created_at)::DATE AS week,
    date_trunc('month', created_at)::DATE AS month,
    answer_number AS score
FROM current_responses
WHERE question_type = 'NPS' AND answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);

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
    SELECT
        day, survey_id, question_id, score, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM nps_answers
    GROUP BY day, survey_id, question_id, score
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
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    scored.day, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN questions AS question
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
    SELECT
        day, survey_id, question_id, score, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM (
        SELECT
            day, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score,
            arg_max(question_text, (created_at, response_group_uid, question_id)) AS question_text,
            max(created_at) AS created_at
        FROM nps_answers
        GROUP BY day, survey_id, question_id, visitor_key
    )
    GROUP BY day, survey_id, question_id, score
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
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    scored.day, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN questions AS question
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
    SELECT
        week, survey_id, question_id, score, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM nps_answers
    GROUP BY week, survey_id, question_id, score
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
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    scored.week, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN questions AS question
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
    SELECT
        week, survey_id, question_id, score, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM (
        SELECT
            week, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score,
            arg_max(question_text, (created_at, response_group_uid, question_id)) AS question_text,
            max(created_at) AS created_at
        FROM nps_answers
        GROUP BY week, survey_id, question_id, visitor_key
    )
    GROUP BY week, survey_id, question_id, score
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
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    scored.week, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN questions AS question
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
    SELECT
        month, survey_id, question_id, score, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM nps_answers
    GROUP BY month, survey_id, question_id, score
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
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    scored.month, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN questions AS question
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
    SELECT
        month, survey_id, question_id, score, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM (
        SELECT
            month, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score,
            arg_max(question_text, (created_at, response_group_uid, question_id)) AS question_text,
            max(created_at) AS created_at
        FROM nps_answers
        GROUP BY month, survey_id, question_id, visitor_key
    )
    GROUP BY month, survey_id, question_id, score
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
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    scored.month, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- The distribution of the answers to every LIKERT question.
-- One row: one value of one question of one survey.
-- Values that nobody chose have no row.
-- Left out: skipped answers, values that are not whole or lie outside the scale, answers that are deleted or have vanished.
CREATE OR REPLACE VIEW "likert_distribution" AS
WITH counted AS (
    SELECT
        survey_id, question_id, try_cast(answer_number AS BIGINT) AS value, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM current_responses
    WHERE question_type = 'LIKERT' AND answer_number = floor(answer_number)
    GROUP BY survey_id, question_id, value
),
ranged AS (
    SELECT
        survey_id, question_id, min(answer_number)::BIGINT AS least, max(answer_number)::BIGINT AS most,
        CASE WHEN min(answer_number) = 0 THEN 0 ELSE 1 END AS scale_min
    FROM responses
    WHERE question_type = 'LIKERT' AND answer_number = floor(answer_number) AND answer_number BETWEEN 0 AND 10
    GROUP BY survey_id, question_id
),
observed AS (
    SELECT
        *, CASE WHEN most <= scale_min + 4 THEN scale_min + 4 WHEN most <= scale_min + 6 THEN scale_min + 6 ELSE 10 END
            AS scale_max
    FROM ranged
),
scaled AS (
    SELECT
        counted.survey_id, counted.question_id, survey.name AS survey_name, counted.value, counted.answers,
        coalesce(question.question_text, (max(shown) OVER every).text) AS question_text,
        coalesce(question.scale_min, observed.scale_min) AS scale_min,
        coalesce(question.scale_max, observed.scale_max) AS scale_max,
        CASE
            WHEN question.scale_source IS NOT NULL THEN question.scale_source
            WHEN observed.least = observed.scale_min AND observed.most = observed.scale_max THEN 'observed'
            ELSE 'usual'
        END AS scale_source
    FROM counted
    LEFT JOIN observed
        ON observed.survey_id = counted.survey_id AND observed.question_id = counted.question_id
    LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
    LEFT JOIN questions AS question
        ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id
    WINDOW every AS (PARTITION BY counted.survey_id, counted.question_id)
)
SELECT
    survey_id, question_id, survey_name, question_text, value, answers,
    answers / sum(answers) OVER (PARTITION BY survey_id, question_id) AS share,
    scale_min, scale_max, scale_source
FROM scaled
WHERE value BETWEEN scale_min AND scale_max;

-- Top-two box and mean of every LIKERT question, against its own scale.
-- One row: one question of one survey that has an answer within its scale.
-- Left out: skipped answers, values that are not whole or lie outside the scale (see likert_distribution), answers that are deleted or have vanished.
CREATE OR REPLACE VIEW "likert_top_two" AS
WITH boxed AS (
    SELECT
        survey_id, question_id, scale_min, scale_max, scale_source,
        max(survey_name) AS survey_name, max(question_text) AS question_text,
        sum(answers)::BIGINT AS answers,
        sum(value * answers)::DOUBLE / sum(answers) AS mean,
        coalesce(sum(answers) FILTER (value >= scale_max - 1), 0)::BIGINT AS top,
        coalesce(sum(answers) FILTER (value <= scale_min + 1), 0)::BIGINT AS bottom
    FROM likert_distribution
    GROUP BY survey_id, question_id, scale_min, scale_max, scale_source
)
SELECT
    survey_id, question_id, survey_name, question_text, answers, mean,
    CASE WHEN scale_max - scale_min >= 2 THEN top END AS top_two,
    CASE WHEN scale_max - scale_min >= 2 THEN top / answers END AS top_two_share,
    CASE WHEN scale_max - scale_min >= 2 THEN bottom END AS bottom_two,
    CASE WHEN scale_max - scale_min >= 2 THEN bottom / answers END AS bottom_two_share,
    scale_min, scale_max, scale_source
FROM boxed;

-- Which options were chosen, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT).
-- One row: one option of one question of one survey.
-- Options that nobody chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished, answers that name no survey.
-- An option that one answer names twice counts once.
-- The shares of a MULTIPLESELECT question add up to more than 1: each is a share of all who answered the question.
CREATE OR REPLACE VIEW "choice_share" AS
WITH chosen AS (
    SELECT
        survey_id, question_id, label, CASE WHEN label IS NULL THEN selected_index END AS selected_index,
        count(DISTINCT response_group_uid) AS chosen
    FROM current_choices
    GROUP BY ALL
),
answered AS (
    SELECT
        survey_id, question_id, count(*) AS answered,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer
    FROM current_responses
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped
    GROUP BY survey_id, question_id
)
SELECT
    chosen.survey_id, chosen.question_id, survey.name AS survey_name,
    coalesce(question.question_text, answered.shown_answer.text) AS question_text,
    chosen.label, chosen.selected_index, chosen.chosen, answered.answered,
    chosen.chosen / answered.answered AS share
FROM chosen
JOIN answered ON answered.survey_id = chosen.survey_id AND answered.question_id = chosen.question_id
LEFT JOIN surveys AS survey ON survey.id = chosen.survey_id
LEFT JOIN questions AS question
    ON question.survey_id = chosen.survey_id AND question.question_id = chosen.question_id;

-- How the rows of matrix questions were answered (MATRIX).
-- One row: one column chosen in one row of one question of one survey.
-- Columns that nobody chose have no row.
-- Left out: rows that were skipped, answers that are deleted or have vanished.
CREATE OR REPLACE VIEW "matrix_distribution" AS
WITH counted AS (
    SELECT survey_id, question_id, row_label, column_label, max(column_number) AS column_number, count(*) AS answers
    FROM current_matrix_cells
    WHERE column_label IS NOT NULL
    GROUP BY survey_id, question_id, row_label, column_label
),
based AS (
    SELECT *, (sum(answers) OVER (PARTITION BY survey_id, question_id, row_label))::BIGINT AS answered FROM counted
)
SELECT
    based.survey_id, based.question_id, survey.name AS survey_name, question.question_text,
    based.row_label, based.column_label, based.column_number,
    based.answers, based.answered, based.answers / based.answered AS share
FROM based
LEFT JOIN surveys AS survey ON survey.id = based.survey_id
LEFT JOIN questions AS question
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
            / sum(answers) FILTER (options > 1) AS borda_score
    FROM counted
    GROUP BY survey_id, question_id, option_label
)
SELECT
    summed.survey_id, summed.question_id, survey.name AS survey_name, question.question_text, summed.option_label,
    answers, mean_rank, first_places, first_places / answers AS first_place_share, borda_points, borda_score
FROM summed
LEFT JOIN surveys AS survey ON survey.id = summed.survey_id
LEFT JOIN questions AS question
    ON question.survey_id = summed.survey_id AND question.question_id = summed.question_id;

-- Best-worst scores (MAXDIFF).
-- One row: one item of one question of one survey that was shown at least once.
-- Left out: rounds in which nothing was chosen, answers that are deleted or have vanished.
-- The service sends left and right.
-- Which is best and which is worst is read off the question's two labels of today: one must speak of most, best, highest or top and the other of least, worst, lowest or bottom, and neither of anything contrary (not, never, dis..., un..., hate, annoy..., bad).
-- If they do not, best, worst and score are NULL.
CREATE OR REPLACE VIEW "maxdiff_scores" AS
WITH counted AS (
    SELECT
        item.survey_id, item.question_id, item.option AS item, count(*) AS shown,
        count(*) FILTER (item.selected = 'left') AS chosen_left,
        count(*) FILTER (item.selected = 'right') AS chosen_right
    FROM current_maxdiff_items AS item
    SEMI JOIN (SELECT response_group_uid, question_id, round FROM response_maxdiff_items WHERE selected IS NOT NULL) AS chosen
        ON chosen.response_group_uid = item.response_group_uid AND chosen.question_id = item.question_id
            AND chosen.round = item.round
    GROUP BY item.survey_id, item.question_id, item.option
),
spoken AS (
    SELECT
        survey_id, question_id, question_text, left_label, right_label,
        regexp_matches(left_label, '(?i)\b(most|best|highest|top)\b') AS left_best,
        regexp_matches(left_label, '(?i)\b(least|worst|lowest|bottom)\b') AS left_worst,
        regexp_matches(right_label, '(?i)\b(most|best|highest|top)\b') AS right_best,
        regexp_matches(right_label, '(?i)\b(least|worst|lowest|bottom)\b') AS right_worst,
        regexp_matches(left_label || ' ' || right_label, '(?i)\b(not|never|(dis|un)[a-z]{3,}|hate|annoy[a-z]*|bad)\b')
            AS is_contrary
    FROM questions
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
named AS (
    SELECT
        counted.*, survey.name AS survey_name, told.question_text, told.left_label, told.right_label,
        CASE told.best_side WHEN 'left' THEN chosen_left WHEN 'right' THEN chosen_right END AS best,
        CASE told.best_side WHEN 'left' THEN chosen_right WHEN 'right' THEN chosen_left END AS worst
    FROM counted
    LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
    LEFT JOIN told ON told.survey_id = counted.survey_id AND told.question_id = counted.question_id
)
SELECT
    survey_id, question_id, survey_name, question_text, item, shown, chosen_left, chosen_right, left_label, right_label,
    best, worst, (best - worst) / shown AS score
FROM named;

-- Themes of answers, by week of the answer.
-- One row: one theme in one survey in one week.
-- Left out: themes that have vanished or name no survey, and those of answers that are deleted or have vanished.
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
JOIN based ON based.week = counted.week AND based.survey_id = counted.survey_id
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- How far visitors get in a survey: question by question, how many of its sessions were shown it and answered it.
-- One row: one question of one survey that was shown at least once.
-- Order by question_ordinal.
-- Left out: answers that are deleted or have vanished at the service, answers that name no survey.
CREATE OR REPLACE VIEW "survey_funnel" AS
WITH shown AS (
    SELECT
        survey_id, question_id, count(*) AS shown,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer
    FROM current_responses
    GROUP BY survey_id, question_id
),
held AS (
    SELECT survey_id, count(DISTINCT response_group_uid) AS sessions FROM current_responses GROUP BY survey_id
)
SELECT
    shown.survey_id, survey.name AS survey_name, question.question_ordinal, shown.question_id,
    coalesce(question.question_text, shown.shown_answer.text) AS question_text,
    held.sessions, shown.shown, shown.answered, shown.skipped,
    shown.shown / held.sessions AS shown_share,
    shown.answered / held.sessions AS answered_share
FROM shown
JOIN held ON held.survey_id = shown.survey_id
LEFT JOIN surveys AS survey ON survey.id = shown.survey_id
LEFT JOIN questions AS question ON question.survey_id = shown.survey_id AND question.question_id = shown.question_id;

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
SELECT day, survey_id, survey.name AS survey_name, sessions, visitors, answers, answered, skipped
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
LEFT JOIN questions AS question
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
placed AS (
    SELECT
        answer.response_group_uid, answer.survey_id, answer.created_at, answer.question_id, answer.is_skipped,
        question.question_ordinal
    FROM current_responses AS answer
    LEFT JOIN questions AS question
        ON question.survey_id = answer.survey_id AND question.question_id = answer.question_id
),
scanned AS (
    SELECT
        response_group_uid, max(survey_id) AS survey_id, min(created_at) AS begun_at,
        min(created_at) FILTER (NOT is_skipped) AS answered_at,
        max(question_ordinal) AS last_ordinal,
        min({'at': created_at, 'ordinal': coalesce(question_ordinal, 9223372036854775807), 'id': question_id}).id
            AS first_question_id
    FROM placed
    GROUP BY response_group_uid
),
ends AS (
    SELECT
        survey_id, max(question_ordinal) AS last_ordinal, arg_min(question_id, question_ordinal) AS first_question_id
    FROM questions
    GROUP BY survey_id
),
joined AS (
    SELECT
        coalesce(scanned.response_group_uid, reported.response_group_uid) AS response_group_uid,
        coalesce(scanned.survey_id, reported.survey_id) AS survey_id,
        least(scanned.begun_at, reported.begun_at) AS begun_at,
        reported.sent_at, reported.seen_at, least(scanned.answered_at, reported.answered_at) AS answered_at, reported.submitted_at,
        scanned.last_ordinal, scanned.first_question_id, reported.platform, reported.sent_trigger, reported.answer_trigger,
        CASE WHEN reported.begun_at IS NULL THEN 'scan' WHEN scanned.begun_at IS NULL AND NOT reported.is_listed THEN 'webhook' ELSE 'both' END
            AS known_by
    FROM scanned
    FULL JOIN reported
        ON reported.response_group_uid = coalesce(TRY_CAST(scanned.response_group_uid AS UUID)::VARCHAR, scanned.response_group_uid)
)
SELECT
    joined.response_group_uid, joined.survey_id, joined.begun_at, joined.sent_at, joined.seen_at, joined.answered_at,
    joined.submitted_at,
    joined.submitted_at IS NOT NULL OR coalesce(joined.last_ordinal >= ends.last_ordinal, false) AS is_completed,
    coalesce(joined.sent_trigger, joined.answer_trigger, snapshot.triggering_event) AS triggering_event,
    coalesce(joined.platform, survey.platform) AS platform,
    coalesce(joined.first_question_id, ends.first_question_id) AS first_question_id,
    joined.known_by
FROM joined
LEFT JOIN ends ON ends.survey_id = joined.survey_id
LEFT JOIN surveys AS survey ON survey.id = joined.survey_id
LEFT JOIN (
    SELECT response_group_uid, max(triggering_event) AS triggering_event FROM visitor_snapshots GROUP BY response_group_uid
) AS snapshot ON snapshot.response_group_uid = joined.response_group_uid;

-- How many of those who were sent a study saw, answered, submitted and completed it.
-- One row: one survey on one day, by trigger, platform and first question.
-- The counts may be added up; make shares anew from the sums.
-- Left out: sessions from before the first webhook of a study or an answer: what was sent then is not known.
-- Without webhooks the view is empty.
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
    id, name, platform, type, status, created_at, updated_at, launched_at, completed_at, total_response_limit,
    valid_from, valid_to
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

-- The segment that each answer belongs to, for any way to divide answers into segments. Called with segment: browser, os, language, url_path, triggering_event, `attribute:` and the name of an attribute of the visitor's snapshot, or `metadata:` and a key of the custom metadata.
-- Call it as a table: FROM answer_segments('attribute:plan'), and join it to other views by response_group_uid and question_id.
-- One row: one current answer; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service.
-- A path is that of the field url, else that of meta.href; a text that is no address with a host has no path.
-- Snapshots are those at the time of the answer (with_snapshots), custom metadata is that of link studies (with_custom_metadata).
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
        WHEN starts_with(segment, 'metadata:') THEN metadata.value_text
        ELSE error('segment is none of browser, os, language, url_path, triggering_event, attribute:NAME, metadata:KEY')
    END AS segment_value
FROM current_responses AS answer
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
LEFT JOIN response_custom_metadata AS metadata
    ON metadata.response_group_uid = answer.response_group_uid AND metadata.question_id = answer.question_id
    AND starts_with(segment, 'metadata:') AND metadata.name = substr(segment, 10);

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
        answer.survey_id, answer.question_id, cut.segment_value, count(*) AS responses,
        count(*) FILTER (answer.score >= 9) AS promoters,
        count(*) FILTER (answer.score BETWEEN 7 AND 8) AS passives,
        count(*) FILTER (answer.score <= 6) AS detractors
    FROM nps_answers AS answer
    JOIN answer_segments(segment) AS cut
        ON cut.response_group_uid = answer.response_group_uid AND cut.question_id = answer.question_id
    GROUP BY ALL
)
SELECT
    counted.survey_id, counted.question_id, survey.name AS survey_name, counted.segment_value, counted.responses,
    CASE WHEN responses >= answers_min THEN promoters END AS promoters,
    CASE WHEN responses >= answers_min THEN passives END AS passives,
    CASE WHEN responses >= answers_min THEN detractors END AS detractors,
    CASE WHEN responses >= answers_min THEN 100 * (promoters - detractors)::DOUBLE / responses END AS nps,
    CASE WHEN responses >= answers_min THEN
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) END AS standard_error
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- Mean and top-two box of every LIKERT question by segment. Called with segment: How to divide the answers into segments; see answer_segments. answers_min := 5: Minimum answers of a segment; smaller segments have no figures.
-- Call it as a table: FROM likert_by_segment('os'), or FROM likert_by_segment('metadata:campaign', answers_min := 30).
-- One row: one segment of one question of one survey.
-- Order by survey_id, question_id, answers DESC.
-- Left out: skipped answers, values that are not whole or lie outside the scale (see likert_distribution), answers that are deleted or have vanished.
-- A segment with fewer answers than answers_min has its count and no figure.
CREATE OR REPLACE MACRO "likert_by_segment"(segment, answers_min := 5) AS TABLE
WITH scaled AS (
    SELECT answer.survey_id, answer.question_id, cut.segment_value, answer.answer_number AS value, scale.scale_min, scale.scale_max
    FROM current_responses AS answer
    JOIN likert_top_two AS scale
        ON scale.survey_id = answer.survey_id AND scale.question_id = answer.question_id
    JOIN answer_segments(segment) AS cut
        ON cut.response_group_uid = answer.response_group_uid AND cut.question_id = answer.question_id
    WHERE answer.question_type = 'LIKERT' AND answer.answer_number = floor(answer.answer_number)
        AND answer.answer_number BETWEEN scale.scale_min AND scale.scale_max
),
counted AS (
    SELECT
        survey_id, question_id, segment_value, scale_min, scale_max, count(*) AS answers,
        sum(value) AS total, sum(value * value) AS squares,
        CASE WHEN scale_max - scale_min >= 2 THEN count(*) FILTER (value >= scale_max - 1) END AS top
    FROM scaled
    GROUP BY survey_id, question_id, segment_value, scale_min, scale_max
),
shown AS (
    SELECT *, CASE WHEN answers >= answers_min THEN answers END AS enough FROM counted
)
SELECT
    shown.survey_id, shown.question_id, survey.name AS survey_name, shown.segment_value, shown.answers,
    total / enough AS mean,
    sqrt(greatest(squares - total ** 2 / enough, 0) / nullif(enough - 1, 0) / enough) AS mean_standard_error,
    top / enough AS top_two_share,
    sqrt((top / enough) * (1 - top / enough) / enough) AS top_two_standard_error,
    shown.scale_min, shown.scale_max
FROM shown
LEFT JOIN surveys AS survey ON survey.id = shown.survey_id;

-- Which options were chosen by segment, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT). Called with segment: How to divide the answers into segments; see answer_segments. answers_min := 5: Minimum answers of a segment; smaller segments have no row.
-- Call it as a table: FROM choices_by_segment('language'), or FROM choices_by_segment('url_path', answers_min := 30).
-- One row: one option of one question in one segment.
-- Options that nobody in the segment chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished, answers that name no survey.
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
        AND answer.survey_id IS NOT NULL
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
    ON answered.survey_id = chosen.survey_id AND answered.question_id = chosen.question_id
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

-- NPS, top-two box and choice shares as the warehouse knew them at two moments. Called with earlier: The earlier moment, UTC. later: The later moment, UTC.
-- Call it as a table: FROM figure_changes(TIMESTAMP '2026-04-01 00:00:00', TIMESTAMP '2026-04-08 00:00:00').
-- One row: one figure of one question of one survey.
-- A question that has no answer that counts at either moment has no row.
-- Left out: answers that name no survey, that were deleted or gone at the moment, or whose people were erased since.
-- The answers of the earlier moment are among those of the later one, so the two errors do not add up to one of the change.
-- Scales are the current ones, see likert_top_two.
-- A chosen option is what most answers call its index; without an index, the text of the answer.
CREATE OR REPLACE MACRO "figure_changes"(earlier, later) AS TABLE
WITH known AS (
    SELECT 'before' AS side, * FROM responses_as_of(earlier)
    UNION ALL
    SELECT 'after' AS side, * FROM responses_as_of(later)
),
scores AS (
    SELECT side, survey_id, question_id, count(*) AS answers, sum(worth) AS total, sum(worth * worth) AS squares
    FROM (
        SELECT side, survey_id, question_id, CASE WHEN answer_number >= 9 THEN 100 WHEN answer_number >= 7 THEN 0 ELSE -100 END AS worth
        FROM known
        WHERE question_type = 'NPS' AND answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) AND survey_id IS NOT NULL
    )
    GROUP BY side, survey_id, question_id
),
boxes AS (
    SELECT
        known.side, known.survey_id, known.question_id, count(*) AS answers,
        count(*) FILTER (known.answer_number >= scale.scale_max - 1) / count(*) AS share
    FROM known
    JOIN likert_top_two AS scale ON scale.survey_id = known.survey_id AND scale.question_id = known.question_id
    WHERE known.question_type = 'LIKERT' AND known.answer_number = floor(known.answer_number)
        AND known.answer_number BETWEEN scale.scale_min AND scale.scale_max AND scale.scale_max - scale.scale_min >= 2
    GROUP BY known.side, known.survey_id, known.question_id
),
called AS (
    -- What most answers call an index; of names that are as frequent, the first.
    SELECT survey_id, question_id, selected_index, label
    FROM (
        SELECT survey_id, question_id, selected_index, label, count(*) AS times
        FROM response_choices
        WHERE selected_index IS NOT NULL AND label IS NOT NULL
        GROUP BY survey_id, question_id, selected_index, label
    )
    QUALIFY row_number() OVER (PARTITION BY survey_id, question_id, selected_index ORDER BY times DESC, label) = 1
),
answered AS (
    SELECT side, survey_id, question_id, count(*) AS answers
    FROM known
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped AND survey_id IS NOT NULL
    GROUP BY side, survey_id, question_id
),
picked AS (
    SELECT
        side, response_group_uid, survey_id, question_id, answer_text,
        unnest(CASE WHEN len(selected_indexes) > 0 THEN selected_indexes ELSE [NULL::BIGINT] END) AS selected_index
    FROM known
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped AND survey_id IS NOT NULL
),
chosen AS (
    SELECT
        picked.side, picked.survey_id, picked.question_id,
        coalesce(called.label, CASE WHEN picked.selected_index IS NULL THEN picked.answer_text END) AS label,
        count(DISTINCT picked.response_group_uid) AS chosen
    FROM picked
    LEFT JOIN called
        ON called.survey_id = picked.survey_id AND called.question_id = picked.question_id
        AND called.selected_index = picked.selected_index
    GROUP BY ALL
),
labels AS (
    SELECT DISTINCT survey_id, question_id, label FROM chosen WHERE label IS NOT NULL
),
shares AS (
    -- An option that nobody chose at one of the moments has the share 0 there.
    SELECT
        answered.side, answered.survey_id, answered.question_id, labels.label, answered.answers,
        coalesce(chosen.chosen, 0) / answered.answers AS share
    FROM answered
    JOIN labels ON labels.survey_id = answered.survey_id AND labels.question_id = answered.question_id
    LEFT JOIN chosen
        ON chosen.side = answered.side AND chosen.survey_id = answered.survey_id AND chosen.question_id = answered.question_id
        AND chosen.label = labels.label
),
figures AS (
    SELECT
        side, survey_id, question_id, 'nps' AS figure, NULL::VARCHAR AS label, answers, total / answers AS value,
        sqrt(greatest(squares - total::DOUBLE ** 2 / answers, 0) / nullif(answers - 1, 0) / answers) AS error
    FROM scores
    UNION ALL
    SELECT side, survey_id, question_id, 'top_two_share', NULL, answers, share, sqrt(share * (1 - share) / answers) FROM boxes
    UNION ALL
    SELECT side, survey_id, question_id, 'choice_share', label, answers, share, sqrt(share * (1 - share) / answers) FROM shares
),
paired AS (
    SELECT
        survey_id, question_id, figure, label,
        coalesce(max(answers) FILTER (side = 'before'), 0) AS answers_before,
        max(value) FILTER (side = 'before') AS before,
        max(error) FILTER (side = 'before' AND answers > 1) AS before_error,
        coalesce(max(answers) FILTER (side = 'after'), 0) AS answers_after,
        max(value) FILTER (side = 'after') AS after,
        max(error) FILTER (side = 'after' AND answers > 1) AS after_error
    FROM figures
    GROUP BY survey_id, question_id, figure, label
)
SELECT
    paired.survey_id, survey.name AS survey_name, paired.question_id, question.question_text, paired.figure, paired.label,
    paired.answers_before, paired.before, paired.before_error, paired.answers_after, paired.after, paired.after_error,
    paired.after - paired.before AS change
FROM paired
LEFT JOIN surveys AS survey ON survey.id = paired.survey_id
LEFT JOIN questions AS question
    ON question.survey_id = paired.survey_id AND question.question_id = paired.question_id;
