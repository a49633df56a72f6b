-- Why data may be wrong or incomplete: one list of everything that the warehouse knows against itself.
--
-- One row: one reason for one range of creation time; a reason without a range concerns all times. An empty view means that
-- nothing is known against the data.
-- Left out: how old the data is; see sync_windows.
-- Ranges are of the stream: responses by creation time of the answer. Join it by range and survey; the example questions do.
-- withheld, needs_recheck and clock are as of the last run that changed the warehouse or one of these three; drift as of
-- the last of the newest 200 runs that read the stream. rejects and collisions stay until the warehouse is built again.
-- Times are UTC.
--
-- Columns:
--   reason: rejects: records that fit no table. withheld: rows that the service no longer returns, too many to believe.
--     collisions: different records with one key, of which one is current. uncovered: a gap that no scan has read.
--     needs_recheck: the last scan was unsure, and every run repeats it. clock: the service's clock is days off.
--     drift: fields or values that this version does not know.
--   stream: responses, surveys, themes, users or webhooks; NULL for the clock.
--   survey_id: The survey; NULL if the reason concerns all surveys, or the survey is not known.
--   range_start: Start of the range; NULL: no start.
--   range_end: End of the range, exclusive; NULL: no end.
--   records: Number of records; NULL where it is not known.
--   found_at: When it was last found.
--   detail: What was found, in words.
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
WHERE drift.stream = stream
