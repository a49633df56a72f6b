-- How often each visitor sat down to answer, by month of the first answer.
SELECT date_trunc('month', started_at)::DATE AS month, visitor_id, count(*) AS sessions, sum(answered)::BIGINT AS answered
FROM {{ source('studysync', 'sessions') }}
WHERE visitor_id IS NOT NULL
GROUP BY month, visitor_id
