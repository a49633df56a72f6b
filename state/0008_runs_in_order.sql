-- The runs in the order in which they began: a clock that was ahead and was set right leaves runs of the future behind,
-- which must not stay the last ones.
CREATE TABLE runs_in_order (
    ordinal     INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL UNIQUE,
    command     TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    finished_ms INTEGER,
    outcome     TEXT,
    exit_code   INTEGER,
    report      TEXT
) STRICT;

INSERT INTO runs_in_order (run_id, command, started_ms, finished_ms, outcome, exit_code, report)
SELECT run_id, command, started_ms, finished_ms, outcome, exit_code, report FROM runs ORDER BY started_ms, run_id;

DROP TABLE runs;

ALTER TABLE runs_in_order RENAME TO runs;
