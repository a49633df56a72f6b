-- What the program remembers between runs. See README.md beside this file.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Who runs now, or ran last. The lock itself is held on the file beside the database; this row names the holder.
CREATE TABLE lease (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    run_id     TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    host       TEXT NOT NULL,
    command    TEXT NOT NULL,
    started_ms INTEGER NOT NULL
) STRICT;

-- Windows proven complete: disjoint within a scope. survey_id -1 stands for all surveys.
CREATE TABLE coverage (
    stream     TEXT NOT NULL,
    survey_id  INTEGER NOT NULL,
    start_ms   INTEGER NOT NULL,
    end_ms     INTEGER NOT NULL CHECK (end_ms > start_ms),
    flags      INTEGER NOT NULL,
    scanned_ms INTEGER NOT NULL,
    rows_held  INTEGER NOT NULL,
    PRIMARY KEY (stream, survey_id, start_ms)
) STRICT, WITHOUT ROWID;

-- Scans that were begun and are not committed.
CREATE TABLE scans (
    scan_id         TEXT PRIMARY KEY,
    run_id          TEXT NOT NULL,
    stream          TEXT NOT NULL,
    survey_id       INTEGER NOT NULL,
    start_ms        INTEGER NOT NULL,
    end_ms          INTEGER NOT NULL,
    flags           INTEGER NOT NULL,
    started_ms      INTEGER NOT NULL,
    page_rows       INTEGER NOT NULL,
    pages           INTEGER NOT NULL DEFAULT 0,
    rows_read       INTEGER NOT NULL DEFAULT 0,
    next_page_token TEXT
) STRICT, WITHOUT ROWID;

-- The last scan in each warehouse's ledger: tells a replaced or restored warehouse from the one that was filled. And the number of
-- the last checkpoint that it took part in: one that was left out of a run lags behind.
CREATE TABLE destinations (
    name            TEXT PRIMARY KEY,
    location        TEXT NOT NULL,
    last_scan_id    TEXT,
    last_checkpoint INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Where the coverage of a scope ever began: what was proven once and is no more (a new warehouse) is a gap, not forgotten.
CREATE TABLE extents (
    stream    TEXT NOT NULL,
    survey_id INTEGER NOT NULL,
    start_ms  INTEGER NOT NULL,
    PRIMARY KEY (stream, survey_id)
) STRICT, WITHOUT ROWID;

-- Measured properties of the service, as JSON.
CREATE TABLE traits (
    name        TEXT PRIMARY KEY,
    value       TEXT NOT NULL,
    measured_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    run_id      TEXT PRIMARY KEY,
    command     TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    finished_ms INTEGER,
    outcome     TEXT,
    exit_code   INTEGER,
    report      TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_by_start ON runs (started_ms);
