-- The segment that each answer belongs to, for any way to divide answers into segments.
--
-- Call it as a table: FROM answer_segments('attribute:plan'), and join it to other views by response_group_uid and question_id.
-- One row: one current answer; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service.
-- A path is that of the field url, else that of meta.href; a text that is no address with a host has no path.
-- Snapshots are those at the time of the answer (with_snapshots), custom metadata is that of link studies (with_custom_metadata).
-- Attributes of users are the current ones, by external_user_id ([streams.users]).
--
-- Parameters:
--   segment: browser, os, language, url_path, triggering_event, `attribute:` and the name of an attribute of the visitor's snapshot,
--     `user:` and the name of an attribute that `users pull` read, or `metadata:` and a key of the custom metadata.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   segment_value: The segment; NULL when it is not known. The path of an address without a path is empty.
--   not_requested: What no run requested, so that the segments are unknown: with_meta, with_urls, with_snapshots,
--     with_custom_metadata or users; NULL if it was requested.
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
    AND starts_with(segment, 'metadata:') AND metadata.name = substr(segment, 10)
